"""The documents as tests read them: README.md and the pages of `docs/`. Not here: what must be true of them.

A line `...` in a session's expected output stands for any lines, `...` within a line for any characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mounting import without_log_notice
from paths import ROOT

DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
"""Text by path below the checkout."""


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    """Return what stands below a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert found is not None, title
    return re.split(rf"^#{{1,{len(found[1])}}} ", text[found.end() :], flags=re.MULTILINE)[0]


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    titles = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def steps(session: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a session with the output it shows. A command goes on in lines that begin with `> `."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command = re.match(r".*(?:\n> .*)*\n?", part)
        assert command is not None
        yield command[0].replace("\n> ", "\n").rstrip("\n"), part[command.end() :]


def programs(text: str) -> dict[str, str]:
    """Return the programs that a page asks to save, by name: blocks of Python that begin with `# NAME.py`."""
    found = [(re.match(r"# (\w+\.py)\n", block), block) for block in blocks(text, "python")]
    return {name[1]: block for name, block in found if name is not None}


def matches(expected: str, printed: str) -> bool:
    """Tell if a command printed what a session shows."""
    pattern = "".join(
        "(?:.*\n)*" if line == "...\n" else re.escape(line).replace(r"\.\.\.", ".*")
        for line in expected.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, without_log_notice(printed)) is not None


def target_of(page: str, link: str) -> tuple[Path, str]:
    """Return the file and the anchor that a relative link on `page` leads to."""
    name, _, anchor = link.partition("#")
    return ((ROOT / page).parent / name).resolve() if name else ROOT / page, anchor
