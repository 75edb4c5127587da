"""Man pages: one for each command from the parser, `fsbridge(1)`, and those with prose in `docs/man/`.

    scripts/manual DIR      writes DIR/man1, DIR/man7, DIR/man8

Not here: the options (`fsbridge/commands/`), tables in Markdown (`option_tables.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fsbridge import __version__
from fsbridge.commands import COMMANDS, command, mount

PROSE = Path(__file__).resolve().parent.parent / "docs" / "man"

SEE_ALSO = ("fsbridge(1)", "mount.fsbridge(8)", "fsbridge-files(7)", "fsbridge-errors(7)")


def escaped(text: str) -> str:
    """`text` as roff shows it: no command, and hyphens that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def pages() -> dict[str, str]:
    """All pages by file name: `man1/fsbridge.1`."""
    found = {f"man1/fsbridge-{name.replace(' ', '-')}.1": "\n".join(_command(name)) + "\n" for name in COMMANDS}
    found["man1/fsbridge.1"] = "\n".join(_overview()) + "\n"
    found["man8/mount.fsbridge.8"] = "\n".join(_helper()) + "\n"
    for path in sorted(PROSE.glob("*.7")):
        found[f"man7/{path.name}"] = path.read_text().replace("@VERSION@", __version__)
    return found


def _title(name: str, section: int, what: str) -> Iterator[str]:
    yield f'.TH {name.upper().replace("-", chr(92) + "-")} {section} "" "fsbridge {__version__}" "fsbridge"'
    yield ".SH NAME"
    yield f"{escaped(name)} \\- {escaped(what)}"


def _overview() -> Iterator[str]:
    yield from _title("fsbridge", 1, "mount N5, Zarr and HDF5 stores as plain files")
    yield from (".SH SYNOPSIS", "\\fBfsbridge\\fR \\fICOMMAND\\fR ...", ".br")
    yield "\\fBfsbridge\\fR \\fISOURCE MOUNTPOINT\\fR [\\fB\\-o\\fR \\fIOPTION\\fR,...]"
    yield from (".SH DESCRIPTION", _prose("fsbridge.1.txt"), ".SH COMMANDS")
    for name, does in COMMANDS.items():
        yield from (".TP", f"\\fBfsbridge\\-{escaped(name.replace(' ', '-'))}\\fR(1)", escaped(does))
    yield from _see_also("fsbridge(1)")


def _command(name: str) -> Iterator[str]:
    parser = command(name).make_parser(f"fsbridge {name}")
    yield from _title(f"fsbridge-{name.replace(' ', '-')}", 1, COMMANDS[name])
    yield ".SH SYNOPSIS"
    yield escaped(" ".join(parser.format_usage().removeprefix("usage: ").split()))
    yield from (".SH DESCRIPTION", escaped(parser.description or ""))
    yield from options(parser)
    for line in (parser.epilog or "").splitlines():
        head, colon, rest = line.partition(": ")
        if colon and head in ("example", "exit codes"):
            yield from (f".SH {head.upper()}", escaped(rest))
        else:
            yield from (".PP", escaped(line))
    yield from _see_also(f"fsbridge-{name.replace(' ', '-')}(1)")


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The arguments of a parser, by group."""
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
        if not actions:
            continue
        title = {"positional arguments": "ARGUMENTS", "options": "OPTIONS"}.get(group.title or "", "")
        yield f".SH {title}" if title else f".SS {escaped((group.title or '').capitalize())}"
        if group.description:
            yield escaped(group.description)
        for action in actions:
            yield ".TP"
            yield _spelled(action)
            yield escaped(action.help or "see above")


def _spelled(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None and action.choices is not None:
        value = "|".join(map(str, action.choices))
    if not action.option_strings:
        return f"\\fI{escaped(value or action.dest)}\\fR"
    shown = f" \\fI{escaped(value or action.dest.upper())}\\fR" if action.nargs != 0 else ""
    return ", ".join(f"\\fB{escaped(option)}\\fR{shown}" for option in action.option_strings)


def _helper() -> Iterator[str]:
    yield from _title("mount.fsbridge", 8, "mount N5, Zarr and HDF5 stores by mount(8) and fstab")
    yield from (
        ".SH SYNOPSIS",
        "\\fBmount \\-t fsbridge\\fR [\\fB\\-o\\fR \\fIOPTION\\fR,...] \\fISOURCE MOUNTPOINT\\fR",
        ".br",
    )
    yield "\\fBmount.fsbridge\\fR \\fISOURCE MOUNTPOINT\\fR [\\fB\\-sfnv\\fR] [\\fB\\-o\\fR \\fIOPTION\\fR,...]"
    yield from (".SH DESCRIPTION", _prose("mount.fsbridge.8.txt"))
    yield from (".SH OPTIONS OF FSBRIDGE", "Their meaning is in \\fBfsbridge\\-mount\\fR(1).")
    parser = command("mount").make_parser("fsbridge mount")
    for action in parser._actions:
        long = [option for option in action.option_strings if option.startswith("--") and option != "--help"]
        if long:
            shown = "=\\fI" + escaped(str(action.metavar or "VALUE")) + "\\fR" if action.nargs != 0 else ""
            yield from (".TP", f"\\fB{escaped(long[-1][2:].replace('-', '_'))}\\fR{shown}", escaped(action.help or ""))
    yield from (
        ".SH OPTIONS OF THE KERNEL",
        f"Passed on: {escaped(', '.join(sorted(mount.KERNEL)))}.",
        ".SH IGNORED OPTIONS",
    )
    yield escaped(f"Bookkeeping of mount(8) and systemd: {', '.join(sorted(mount.IGNORED))}, x-*, X-*, comment=*.")
    yield from _see_also("mount.fsbridge(8)")


def _prose(name: str) -> str:
    return (PROSE / name).read_text().strip()


def _see_also(own: str) -> Iterator[str]:
    yield ".SH SEE ALSO"
    yield ", ".join(f"\\fB{escaped(page[:-3])}\\fR{page[-3:]}" for page in SEE_ALSO if page != own)


def main(folder: str) -> int:
    """Write all pages below `folder`."""
    for name, text in pages().items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: scripts/manual DIR")
    sys.exit(main(sys.argv[1]))
