"""Mount options: the `-o a=b,c` language of mount(8), and which options are fsbridge's and which the kernel's.

Not here: fsbridge's own options and their meaning (`mount.py`). The caller passes in their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fsbridge.errors import SetupError

KERNEL = frozenset(
    {"ro", "nosuid", "nodev", "noexec", "noatime", "sync", "dirsync"}
    | {"allow_root", "default_permissions", "auto_unmount", "fsname", "subtype", "context"}
)
"""Passed on to libfuse, with their values. Not max_read, which libfuse 3.14 takes from C programs only."""

IGNORED = frozenset(
    {"auto", "noauto", "user", "nouser", "users", "owner", "group", "defaults", "_netdev", "nofail"}
    | {"relatime", "strictatime", "lazytime", "dev", "suid", "rw", "async", "atime", "exec"}
)
"""Options of fstab and mount(8) only, and the kernel's defaults: ignored. A mount is always ro, nosuid and nodev."""

_IGNORED_PATTERN = re.compile(r"(x-|X-|comment=)")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_ENV_FILE_CHARACTERS = 1 << 20

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)


class Sorted(NamedTuple):
    """Options by owner. `own`: fsbridge's, as command line words (`--cache-size=64M`); `kernel`: as libfuse takes them."""

    own: list[str]
    kernel: list[str]


def split(text: str) -> list[str]:
    """The options in `a,b=c`; a comma belongs to a value after a backslash (libfuse's rule) or in quotes (mount's)."""
    options, current, quoted, escaped = [], "", False, False
    for char in text:
        if escaped:
            current += char if char in ',\\"' else "\\" + char
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            options.append(current)
            current = ""
        else:
            current += char
    if quoted:
        raise SetupError(f"mount options have an unclosed quote: {text}")
    options.append(current + ("\\" if escaped else ""))
    return [option for option in options if option]


def sort(options: Iterable[str], own: Mapping[str, bool], sloppy: bool = False) -> Sorted:
    """Separate fsbridge's options from the kernel's; SetupError names an unknown one, unless `sloppy`.

    `own` maps our option names, spelled with underscores, to whether they take a value.
    """
    result, before = Sorted([], []), ""
    for option in options:
        name, equals, value = option.partition("=")
        if name in own:
            if own[name] and not equals:
                raise SetupError(f"mount option {name} needs a value: {name}=...", _list_advice(option, before))
            if not own[name] and equals:
                raise SetupError(f"mount option {name} takes no value")
            result.own.append(f"--{name.replace('_', '-')}{equals}{value}")
        elif name in KERNEL:
            result.kernel.append(option)
        elif option not in IGNORED and not _IGNORED_PATTERN.match(option) and not sloppy:
            near = nearest(name.replace("-", "_"), own)
            hint = f"perhaps {near}? " if near else ""
            advice = _list_advice(option, before) or f"{hint}fsbridge mount --help lists the options"
            raise SetupError(f"unknown mount option: {option}", advice)
        before = option
    return result


def environment(options: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Return all other options, and the variables that `env.NAME=VALUE` and `env_file=PATH` set. Later ones win."""
    others, found = [], dict[str, str]()
    for option in options:
        name, _, value = option.partition("=")
        if name == "env_file":
            found |= _env_file(value)
        elif name.startswith("env."):
            if not _VARIABLE.fullmatch(name[4:]):
                raise SetupError(f"mount option {name}: {name[4:]!r} is no name of a variable", "write env.NAME=VALUE")
            found[name[4:]] = value
        else:
            others.append(option)
    return others, found


def _env_file(path: str) -> dict[str, str]:
    """The variables in a file of lines `NAME=VALUE`, as systemd's EnvironmentFile has them."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_ENV_FILE_CHARACTERS + 1)
    except (OSError, UnicodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise SetupError(f"env_file {path!r}: {reason}", "it holds a line NAME=VALUE for each variable") from None
    if len(text) > _ENV_FILE_CHARACTERS:
        raise SetupError(f"env_file {path}: more than {_ENV_FILE_CHARACTERS} characters")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        name, equals, value = line.removeprefix("export ").partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise SetupError(f"env_file {path}: line {number} is not NAME=VALUE")  # the line may be a secret
        value = value.strip()
        found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    return found


def _list_advice(option: str, before: str) -> str:
    """Return advice if `option` seems to continue the list `before` behind a comma, because a comma ends a mount option."""
    goes_on = before.startswith(("layout=", "files=")) and "=" not in option
    return f"write + for the comma: {before}+{option}" if goes_on else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the word of `known` that `word` is most like; empty if it is like none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), 1, 0.8)), "")


def size(text: str) -> int:
    """Bytes in `64M`, `1GiB`, `1.5g` or `4096`; units are powers of 1024. ValueError if it is no size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    unit = _UNITS[match[2].lower()]
    try:
        return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    except OverflowError:
        raise ValueError(text) from None
