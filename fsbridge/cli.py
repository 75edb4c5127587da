"""The command line's entry: which command is meant, and errors as one line and an exit code.

Three ways in: `fsbridge COMMAND ...`; the bare `fsbridge SOURCE MOUNTPOINT -o ...`, which is what mount.fuse runs for
`mount -t fuse.fsbridge`; and a link named `mount.fsbridge` or `mount.fuse.fsbridge`, which mount(8) runs with its own flags.

Only the module of the command that is meant is imported: `fsbridge --help` must be instant. Not here: any command's
arguments (`commands/`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence

from fsbridge import __version__
from fsbridge.commands import COMMANDS, CTL, Command, command
from fsbridge.commands.arguments import USAGE, Parser
from fsbridge.commands.output import SYSTEM, ReaderGone
from fsbridge.errors import FsbridgeError, SetupError, nearest, perhaps

INTERRUPTED = 8


def main(argv: Sequence[str] | None = None, find: Callable[[str], Command] = command) -> int:
    """Run the command `argv` (program name first) and return its exit code. `find` returns a command by its name."""
    argv = list(sys.argv if argv is None else argv)
    program = os.path.basename(argv[0])
    try:
        if program in ("mount.fsbridge", "mount.fuse.fsbridge"):
            from fsbridge.commands.mount import helper

            return helper(program, argv[1:])
        argv[1:] = _plain_words(argv[1:])
        if argv[1:] in (["--version", "--verbose"], ["--version", "-v"]):
            from fsbridge.commands.diagnosis import list_versions

            print("\n".join(list_versions()))
            return 0
        if argv[1:2] == [CTL]:
            return _ctl(argv[2:], find)
        if len(argv) > 1 and argv[1] in COMMANDS:
            return find(argv[1]).run(f"fsbridge {argv[1]}", argv[2:])
        if len(argv) == 1 or (argv[1].startswith("-") and len(argv) == 2):
            _overview().parse_args(argv[1:] or ["--help"])
        if re.fullmatch("[A-Za-z][A-Za-z0-9_-]*", argv[1]) and not os.path.lexists(argv[1]):
            near = nearest(argv[1].lower(), [CTL, *_words()]) or next(
                (name for name in COMMANDS if name == f"{CTL} {argv[1]}"), ""
            )
            hint = f"perhaps fsbridge {near}?" if near else f"commands: {', '.join(_words())}"
            raise SetupError(f"{argv[1]}: neither a command nor a store", hint, USAGE)
        return find("mount").run("fsbridge", argv[1:])
    except SetupError as error:
        return _print_error(error)
    except ImportError as error:
        from fsbridge.mount.preflight import unloadable

        return _print_error(unloadable(error))
    except ReaderGone as gone:
        return gone.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # Python's own exit code for it is 1, which means "they differ" to `diff`
        if sys.flags.dev_mode:
            raise
        return _print_error(_wrap_unexpected(error))


def _words(ctl: bool = False) -> list[str]:
    """Return the names of the commands; with `ctl`, the words that can follow `fsbridge ctl`."""
    second = [name.removeprefix(f"{CTL} ") for name in COMMANDS if name.startswith(f"{CTL} ")]
    return second if ctl else [name for name in COMMANDS if " " not in name]


def _ctl(words: list[str], find: Callable[[str], Command]) -> int:
    """Run a command behind `ctl`."""
    if words[:1] in ([], ["-h"], ["--help"]):
        _overview(f"{CTL} ").parse_args(["--help"])
    name = f"{CTL} {words[0]}"
    if name not in COMMANDS:
        raise SetupError(f"{name}: no such command", perhaps(words[0], f"commands of {CTL}", _words(ctl=True)), USAGE)
    return find(name).run(f"fsbridge {name}", words[1:])


def _print_error(error: SetupError) -> int:
    """Print an error, if standard error has a reader, and return its exit code."""
    with contextlib.suppress(OSError, ValueError):
        print(f"fsbridge: {error}", file=sys.stderr)
    return error.exit_code


def _wrap_unexpected(error: Exception) -> SetupError:
    """Return what is said about an exception that was not foreseen."""
    if isinstance(error, MemoryError):
        return SetupError("there is not enough memory", "a smaller --cache-size may help", SYSTEM)
    if isinstance(error, FsbridgeError | OSError):
        return SetupError(str(error), exit_code=SYSTEM)
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}, line {last.lineno}"
    hint = "this is a bug of fsbridge: please report it with the output of: fsbridge --version --verbose"
    return SetupError(f"unexpected {type(error).__name__} in {where}: {error}", hint, SYSTEM)


def _plain_words(words: list[str]) -> list[str]:
    """Return `words` with `help`, `help mount`, `version` and `unmount`, which people type first, in the proper form."""
    if words[:1] == ["help"]:
        return [*words[1:2], "--help"]
    if words[:1] in (["version"], ["-V"], ["--version"]):
        return ["--version", *words[1:]]
    if words[:1] and words[0] in COMMANDS and words[1:] in (["--version"], ["-V"]):
        return ["--version"]
    return ["umount", *words[1:]] if words[:1] == ["unmount"] else words


def _overview(ctl: str = "") -> argparse.ArgumentParser:
    """Return a parser that describes all commands, or, with `ctl `, those behind that word."""
    bare = "" if ctl else "\n       fsbridge SOURCE MOUNTPOINT [-o OPTION,...]"
    parser = Parser(
        prog=f"fsbridge {ctl}".rstrip(),
        description="Change or show what few need." if ctl else "Mount an N5, Zarr or HDF5 store as ordinary files.",
        usage=f"fsbridge {ctl}COMMAND ...{bare}",
        epilog=f"fsbridge {ctl}COMMAND --help describes each command.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"fsbridge {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in _words(bool(ctl)):
        commands.add_parser(name, help=COMMANDS[ctl + name])
    if not ctl:
        commands.add_parser(CTL, help=f"change or show what few need: {', '.join(_words(ctl=True))}")
    return parser
