"""The tables of commands and options in `docs/`, from the parser, and that of codecs, from theirs.

    scripts/manual --tables      writes them between their markers, `<!-- options: mount -->` and `<!-- end -->`

Not here: man pages (`manpages.py`), the options (`fsbridge/commands/`).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fsbridge.codecs import table
from fsbridge.commands import COMMANDS, command
from fsbridge.formats.zarr3.array_codecs import ARRAY_CODECS
from fsbridge.formats.zarr3.codecs import ALIASES, SERIALIZERS

DOCS = Path(__file__).resolve().parent.parent / "docs"


def filled(text: str) -> str:
    """`text` with each table between its markers as it is now."""
    return re.sub(
        r"^(<!-- (codecs|commands|options: \w+) -->\n).*?^(<!-- end -->)$",
        lambda found: f"{found[1]}\n" + "\n".join(TABLES[found[2]]()) + f"\n\n{found[3]}",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


def _commands() -> Iterator[str]:
    yield from ("| command | what it does |", "| --- | --- |")
    for name, does in COMMANDS.items():
        yield f"| `fsbridge {name}` | {_cell(does)} |"


def _mount() -> Iterator[str]:
    """All options of `fsbridge mount`, a table for each group."""
    parser = command("mount").make_parser("fsbridge mount")
    later = False
    for group in parser._action_groups:
        actions = list(_shown(group))
        if actions:
            title = "running" if group.title == "options" else str(group.title)
            yield from ([""] if later else [])
            yield from (f"**{title.capitalize()}**", "", "| option | meaning |", "| --- | --- |")
            yield from (f"| {_spelled(action)} | {_cell(action.help or '')} |" for action in actions)
            later = True


def _others() -> Iterator[str]:
    """The options of the other commands that no other command has in the same words."""
    common = {action.dest for action in command("mount").make_parser("")._actions}
    yield from ("| command | option | meaning |", "| --- | --- | --- |")
    for name in COMMANDS:
        if name != "mount":
            for group in command(name).make_parser(f"fsbridge {name}")._action_groups:
                for action in _shown(group):
                    if action.dest not in common or (action.dest == "layout" and name == "info"):
                        yield f"| `{name}` | {_spelled(action)} | {_cell(action.help or '')} |"


WRITERS = {
    **dict.fromkeys(("bytes", "sharding_indexed", "transpose", "vlen-bytes", "vlen-utf8"), "zarr-python, TensorStore"),
    **dict.fromkeys(("cast_value", "scale_offset"), "zarr-python 3.4, zarrs"),
    **dict.fromkeys(("bitround", "packbits", "vlen-array"), "numcodecs, zarrs"),
    **dict.fromkeys(("optional", "zarrs.squeeze", "zarrs.vlen", "zarrs.vlen_v2"), "zarrs"),
    "endian": "zarrita",
    "n5_default": "zarrs_n5, zarr-python-n5",
    "reshape": "TensorStore, zarrs",
}
"""Writers of the codecs of Zarr v3 that the table of codecs has not, or not alone."""


def _codecs() -> Iterator[str]:
    """Every codec by its names in the formats. A name that Zarr v3 has beside numcodecs' may mean other bytes."""
    zarr3 = {*ARRAY_CODECS, *SERIALIZERS, *(name for name, codec in table.ZARR3.items() if codec.kind == "bytes")}
    readable = [codec for codec in table.CODECS if codec.make is not None or codec.library is not None]
    pictures = {codec.name for codec in readable if codec.name.startswith(PICTURES)}
    names = {codec.name for codec in readable} | {name.removeprefix(table.PREFIX) for name in zarr3}
    yield "| codec | written by | Zarr v2 | Zarr v3 | N5 | HDF5 | installed by |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in sorted(names - pictures | {f"{PICTURES}*"}, key=lambda name: (name.lower(), name)):
        if name == f"{PICTURES}*":
            each = f"`{PICTURES}NAME`"
            plain = ", ".join(f"`{codec.name}`" for codec in readable if codec.name in pictures and codec.library is None)
            zarr3_names = f"{each}, `{table.PREFIX}{PICTURES}NAME`"
            yield f"| {PICTURES}* | imagecodecs | {each} | {zarr3_names} | {each} |  | `images`; {plain}: plain |"
            continue
        codecs = [codec for codec in readable if codec.name == name]
        cells = (
            [name for codec in codecs if codec in table.NUMCODECS or codec in table.ADDED],
            [
                *sorted(zarr3 & {name, table.PREFIX + name, *(codec.zarr3 or name for codec in codecs)}),
                *(other for other, same in ALIASES.items() if same == name and "://" not in other),
            ],
            [other for other, codec in table.N5.items() if codec.name == name],
            [codec.hdf5 for codec in codecs if codec.hdf5 is not None],
            {codec.library.extra for codec in codecs if codec.library is not None},
        )
        *formats, extras = (", ".join(f"`{one}`" for one in cell) for cell in cells)
        yield " | ".join((f"| {name}", _writers(name, codecs), *formats, extras or "plain", "")).rstrip()
    yield ""
    yield from wrap(f"NAME is one of {', '.join(sorted(name.removeprefix(PICTURES) for name in pictures))}.", 118)


PICTURES = "imagecodecs_"


def _writers(name: str, codecs: list[table.Codec]) -> str:
    """The writers of a codec that its records name, or that gave it the names there."""
    said = [WRITERS[name]] if name in WRITERS else []
    for codec in codecs:
        own = {"numcodecs": codec in table.NUMCODECS, "N5": codec.n5 is not None, "HDF5": codec.hdf5 is not None}
        said += [codec.writers] if codec.writers else [writer for writer, writes in own.items() if writes]
    return ", ".join(dict.fromkeys(writer for words in said for writer in words.split(", ")))


TABLES = {"codecs": _codecs, "commands": _commands, "options: mount": _mount, "options: others": _others}


def _shown(group: argparse._ArgumentGroup) -> Iterator[argparse.Action]:
    for action in group._group_actions:
        hidden = action.help is argparse.SUPPRESS or isinstance(action, argparse._HelpAction)
        if action.option_strings and not hidden:
            yield action


def _spelled(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None and action.nargs != 0:
        value = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    optional = action.nargs == "?"
    after = "" if action.nargs == 0 else f" [{value}]" if optional else f" {value}"
    *short, last = action.option_strings
    return ", ".join([*(f"`{option}`" for option in short), f"`{last}{after}`"]).replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def main() -> int:
    """Write the tables of all pages."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if (new := filled(text)) != text:
            path.write_text(new)
            print(path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
