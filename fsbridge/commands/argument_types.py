"""Types of command line arguments: each turns a text into a value, or says in one line what is wrong with it.

Not here: which options there are (`arguments.py`, and each command), the language of `-o` (`mount.py`).
"""

from __future__ import annotations

import argparse
import grp
import pwd
import re
from collections.abc import Callable

from fsbridge.config import LEAST_CACHE

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)


def path(text: str) -> str:
    """Return a path. It must not be empty, because an unset shell variable would mean the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("a path is needed, but the text is empty")
    return text


def pattern(text: str) -> str:
    """Return a pattern for paths. It must not be empty, because an empty one would match nothing."""
    if not text.strip("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a pattern of paths in the store; write for example 'volumes/*'")
    return text


def size(text: str) -> int:
    """Parse a number of bytes: `64M`, `1GiB`, `1.5g` or `4096`. Units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    try:
        if match is not None:
            unit = _UNITS[match[2].lower()]
            return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    except (OverflowError, ValueError):  # too many digits
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a size; write for example 64M or 1GiB")


def positive(text: str) -> int:
    """Parse a whole number from 1 on."""
    if not text.isdecimal() or not text.isascii() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def number(text: str) -> float:
    """Parse a number that is not negative."""
    if re.fullmatch(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return float(text)


def part(text: str) -> tuple[int, int]:
    """Parse `3/8`, the third of eight parts: (2, 8)."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part; write for example 1/8")
    return int(match[1]) - 1, int(match[2])


def room(text: str) -> int:
    value = size(text)
    if value < LEAST_CACHE:
        raise argparse.ArgumentTypeError(f"{text} is too small for a chunk; give 1M or more (default: 256M)")
    return value


def user(text: str) -> int:
    """Parse a user's number or name."""
    return _identity(text, lambda name: pwd.getpwnam(name).pw_uid, "user")


def group(text: str) -> int:
    """Parse a group's number or name."""
    return _identity(text, lambda name: grp.getgrnam(name).gr_gid, "group")


def _identity(text: str, look_up: Callable[[str], int], kind: str) -> int:
    if text.isdecimal():
        return user_number(text)
    try:
        return look_up(text)
    except (KeyError, ValueError, UnicodeError):
        raise argparse.ArgumentTypeError(f"this machine has no {kind} {text!r}; `id` shows yours") from None


def user_number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) >= 2**32 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a user or group; `id` shows yours")
    return int(text)


def umask(text: str) -> int:
    if re.fullmatch(r"0*[0-7]{1,3}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a mask of permission bits; write for example 027 or 077")
    return int(text, 8)


def files(text: str) -> tuple[str, ...]:
    """Parse file types as in `npy,nii`. `+` may stand for the comma, which separates mount options."""
    from fsbridge.layouts.files.filetypes import CHOICES  # not at the top: few commands need them, and they take long

    names = tuple(text.replace("+", ",").split(","))
    if names == ("all",):
        return CHOICES
    for name in names:
        if name not in CHOICES:
            raise argparse.ArgumentTypeError(f"unknown file type {name!r}; known file types: {', '.join(CHOICES)}, all")
    return names


def milliseconds(text: str) -> float:
    """Parse a number of milliseconds, into seconds."""
    return seconds(text) / 1000


def seconds(text: str) -> float:
    if re.fullmatch(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(e-?[0-9]+)?", text) is None or float(text) > 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to a day")
    return float(text)
