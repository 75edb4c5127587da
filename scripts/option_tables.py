"""The tables of commands and options in `docs/`, from the parser.

    scripts/manual --tables      writes them between their markers, `<!-- options: mount -->` and `<!-- end -->`

Not here: man pages (`manpages.py`), the options (`fsbridge/commands/`).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fsbridge.commands import COMMANDS, command

DOCS = Path(__file__).resolve().parent.parent / "docs"


def filled(text: str) -> str:
    """`text` with each table between its markers as the parser has it now."""
    return re.sub(
        r"^(<!-- (commands|options: \w+) -->\n).*?^(<!-- end -->)$",
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
    parser = command("mount").parser("fsbridge mount")
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
    common = {action.dest for action in command("mount").parser("")._actions}
    yield from ("| command | option | meaning |", "| --- | --- | --- |")
    for name in COMMANDS:
        if name != "mount":
            for group in command(name).parser(f"fsbridge {name}")._action_groups:
                for action in _shown(group):
                    if action.dest not in common or (action.dest == "layout" and name == "info"):
                        yield f"| `{name}` | {_spelled(action)} | {_cell(action.help or '')} |"


TABLES = {"commands": _commands, "options: mount": _mount, "options: others": _others}


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
