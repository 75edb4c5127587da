"""The one exception tree: each class carries its errno and is raised with one sentence for the user.

Not here: the translation of exceptions into FUSE replies (`kernel/boundary.py`, the only place that does it).

| class | errno | when |
| --- | --- | --- |
| NotFound | ENOENT | the store says absent |
| NotADirectory / IsADirectory | ENOTDIR / EISDIR | the wrong kind |
| ReadOnly | EROFS | any mutation |
| AccessDenied | EACCES | the store refused, or a target lies outside the root |
| CorruptData | EIO | undecodable, wrong length, bad checksum, bad document |
| Unsupported | EOPNOTSUPP | codec, data type or structure outside the table |
| TooLarge | EFBIG | above a limit |
| OutOfBudget | ENOMEM | no memory reservation within the deadline, or no room for a process |
| MemoryError (Python's) | ENOMEM | no memory at all |
| Unreachable | EIO | the server of a store gives no answer, or none that makes sense |
| TimedOut | ETIMEDOUT | deadline passed |
| Stale | ESTALE | the object changed under an open file |
| TooDeep / NameTooLong | ELOOP / ENAMETOOLONG | limits of the tree |
| OSError (Python's) | its own | what the operating system says |
| ImportError (Python's) | EIO | the package was removed or replaced under the mount |
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import ClassVar, Self


class FsbridgeError(Exception):
    """Base of everything fsbridge raises on purpose; `str(error)` is one sentence naming place and reason."""

    errno: ClassVar[int] = errno.EIO

    def at(self, place: str) -> FsbridgeError:
        """Return this error with `place` (a path or key) in front of its sentence."""
        return type(self)(f"{place}: {self}")

    def anew(self) -> Self:
        """Return a copy of this error for another caller to raise.

        The traceback of this one grows each time it is raised, and keeps alive whatever its frames hold, descriptors too.
        """
        return type(self)(*self.args)


def anew(error: Exception) -> Exception:
    """Return an error that another caller can raise in place of a remembered one.

    An FsbridgeError is copied (`FsbridgeError.anew`). Any other error is a bug, and is returned itself, with its traceback.
    """
    return error.anew() if isinstance(error, FsbridgeError) else error


class NotFound(FsbridgeError):
    """The store says that the object is absent; never used for an object that cannot be read."""

    errno = errno.ENOENT


class IsADirectory(FsbridgeError):
    """A directory where an object was expected."""

    errno = errno.EISDIR


class NotADirectory(FsbridgeError):
    """A file or link where a directory was expected."""

    errno = errno.ENOTDIR


class ReadOnly(FsbridgeError):
    """Any attempt to change the mount."""

    errno = errno.EROFS


class AccessDenied(FsbridgeError):
    """The store refused, or the object lies outside the store's root."""

    errno = errno.EACCES


class CorruptData(FsbridgeError):
    """Stored bytes or a document that cannot be what they claim to be."""

    errno = errno.EIO


class Unreachable(FsbridgeError):
    """The server of a store gives no answer, or none that makes sense."""


class Unsupported(FsbridgeError):
    """A codec, data type or structure that fsbridge knows it cannot present."""

    errno = errno.EOPNOTSUPP


class Unlistable(Unsupported):
    """The store cannot list: a web server gives objects by their names only."""


class TooLarge(FsbridgeError):
    """Something is larger than a limit of `config.Limits` or of the memory."""

    errno = errno.EFBIG


class OutOfBudget(FsbridgeError):
    """No room within the deadline: in the memory budget, or in the system for another process."""

    errno = errno.ENOMEM


class TimedOut(FsbridgeError):
    """A deadline passed."""

    errno = errno.ETIMEDOUT


class Stale(FsbridgeError):
    """The stored object changed after the file was opened."""

    errno = errno.ESTALE


SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""Errors of the operating system that say nothing of what was asked for, only that there was no room for it just then."""

PASSING = (OutOfBudget, Unreachable, TimedOut, Stale)
"""Errors that may pass in a moment. They do not tell whether the object is intact, damaged or absent."""


def is_lasting(error: Exception) -> bool:
    """True if an error is about the object itself; False if it may pass, or says that there was no room just then."""
    return not isinstance(error, PASSING) and not (isinstance(error, OSError) and error.errno in SHORTAGES)


class TooDeep(FsbridgeError):
    """More nested groups than `config.Limits.depth`."""

    errno = errno.ELOOP


class NameTooLong(FsbridgeError):
    """A name that does not fit into a directory entry even when escaped."""

    errno = errno.ENAMETOOLONG


class SetupError(FsbridgeError):
    """The command cannot do what was asked: shown at the terminal as one line, then exit with `exit_code`.

    `hint` is the command or change that helps.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = 1) -> None:
        message = printable(message)
        super().__init__(f"{message}\n  {printable(hint)}" if hint else message)
        self.exit_code = exit_code


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the word of `known` that `word` is most like; empty if it is like none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), 1, 0.8)), "")


def perhaps(word: str, what: str, known: Iterable[str]) -> str:
    """Return a hint for a `word` that is not `known`: the known word that is most like it, and all, called `what`."""
    names = list(known)
    near = nearest(word, names)
    return f"perhaps {near}? {what}: {', '.join(names)}" if near else f"{what}: {', '.join(names)}"


def printable(text: str) -> str:
    r"""Return `text` with unprintable characters as `\n`, `\x1b`, `\u202e`, and bytes that are no text as `\xff`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode's spelling of an undecodable byte
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
