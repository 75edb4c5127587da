"""The sources that a command line names: the options in force for each, opening it, reporting errors, the end.

A source has settings of its own, so the words are parsed once for each source, with its settings before them. Settings are
options of `mount`. A command uses those that mean the same to it, so `export` does not use `--include`.

Not here: the command line of `mount` (`mount.py`), where settings stand (`settings.py`), what options mean (`arguments.py`),
the tree of a source (`unmounted/__init__.py`), any command's own work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import ReaderGone
from fsbridge.commands.settings import has_settings, list_options, read_settings, spell
from fsbridge.config import Config, parse_place
from fsbridge.errors import FsbridgeError, NotFound, SetupError, printable

if TYPE_CHECKING:
    from fsbridge.tree import Attrs
    from fsbridge.unmounted import VirtualTree

FAILED = 1
"""The exit code of a command that could not read something, and has said what."""


class Source(NamedTuple):
    """A source, with the options in force for it."""

    args: argparse.Namespace
    """The options in force for this source."""
    text: str
    """A path or URL: what a name stands for, or what was given."""
    is_named: bool


class CommandLine:
    """A parsed command line: `args` without settings, and each source with the settings for it."""

    def __init__(self, parser: Parser, words: Sequence[str], left_out: Collection[str] = ()) -> None:
        """`left_out`: options that are not taken from settings, so that only the command line can give them."""
        self.args = parser.parse_args(words)
        self._parser, self._words, self._left_out = parser, words, left_out
        self._sources: dict[str, Source] = {}

    def find_source(self, place: str) -> Source:
        """Return the source of `SOURCE//PATH`. SetupError for a mistake in the settings, with its file and key."""
        given = parse_place(place)[0]
        if not has_settings():
            return Source(self.args, given, False)
        if given not in self._sources:
            from fsbridge.commands import mount

            options = mount.make_parser("fsbridge mount")
            known, ours = list_options(options), list_options(self._parser)
            choices = read_settings(options, given)
            words = [
                word
                for option, setting in choices.options.items()
                if option in ours and ours[option].dest == known[option].dest and option not in self._left_out
                for word in spell(setting)
            ]
            args = self._parser.parse_args([*words, *self._words])
            text = given if choices.source is None else str(choices.source.value)
            self._sources[given] = Source(args, text, choices.source is not None)
        return self._sources[given]

    def resolve(self, place: str) -> tuple[Config, str]:
        """Return the Config of the source of `SOURCE//PATH`, and PATH in the tree that a mount of it shows."""
        origin = self.find_source(place)
        # What a name stands for may have a //PATH too, and that is where its tree begins.
        source, inside = arguments.split_place(origin.text) if origin.is_named else (origin.text, ())
        return arguments.make_config(origin.args, source, inside=inside), parse_place(place)[1]

    def resolve_mount(self, place: str) -> Config:
        """Return the Config of a mount that has PATH as its root."""
        origin = self.find_source(place)
        source, inside = arguments.split_place(arguments.join_place(origin.text, place) if origin.is_named else place)
        return arguments.make_config(origin.args, source, inside=inside)


class Problems:
    """Prints errors as lines at the terminal, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self, place: str, error: Exception, hint: str = "") -> None:
        """Print that `place` cannot be read, why, and what helps."""
        from fsbridge.unmounted import reason

        self.count += 1
        said = reason(error).removeprefix(f"{place}: ")
        below = f"\n  {printable(hint)}" if hint else ""
        print(f"fsbridge: {printable(place)}: {printable(said)}{below}", file=sys.stderr)

    @contextmanager
    def at(self, place: str, absent: Callable[[], str] = lambda: "") -> Iterator[None]:
        """Return a context that reports errors about `place`, so that the command continues.

        `absent`: what helps if it is missing.
        """
        try:
            yield
        except SetupError:
            raise
        except (FsbridgeError, OSError) as error:
            self.tell(place, error, absent() if isinstance(error, NotFound) else "")

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 1 after an error, else 0."""
        return FAILED if self.count else 0


class Trees:
    """The sources that a command line names. Each is opened only once."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._opened: dict[Config, VirtualTree] = {}

    def at(self, place: str) -> tuple[VirtualTree, str]:
        """Return the tree, and the path in it, of `SOURCE//PATH`; SetupError if the source cannot be opened."""
        from fsbridge.unmounted import VirtualTree

        config, path = self._line.resolve(place)
        if config not in self._opened:
            self._opened[config] = VirtualTree(config)
        return self._opened[config], path

    def elsewhere(self, place: str) -> str:
        """Return a hint if `SOURCE//PATH` exists only in the layout `files`; else an empty text."""
        from fsbridge.unmounted import VirtualTree

        config, path = self._line.resolve(place)
        if "files" in config.layout.split(","):
            return ""
        try:
            with VirtualTree(replace(config, layout="files", consolidated=False, chunk_separator=".")) as tree:
                tree.stat(path)
        except (FsbridgeError, OSError):
            return ""
        return "the layout files has it: add --layout files"

    def close(self) -> None:
        """Close all trees that have been opened."""
        for tree in self._opened.values():
            tree.close()


def describe_target(tree: VirtualTree, path: str, attrs: Attrs, problems: Problems) -> str:
    """Return ` -> TARGET`, which is shown after the name of a link; empty if it is no link, or cannot be read."""
    if attrs.kind == "link":
        with problems.at(path):
            return f" -> {tree.target(path)}"
    return ""


def read(parser: Parser, words: Sequence[str], work: Callable[[argparse.Namespace, Trees, Problems], None]) -> int:
    """Do `work` and return the exit code. `work` gets the parsed `words`, and opens trees by name."""
    line = CommandLine(parser, words)
    trees = Trees(line)

    def body(problems: Problems) -> None:
        try:
            work(line.args, trees, problems)
        finally:
            trees.close()

    return report(body)


def report(work: Callable[[Problems], None]) -> int:
    """Do `work` on a thread of its own and return the exit code.

    An interrupt ends the command at once, even if that thread is waiting for a server.
    """
    from fsbridge.commands.terminal import warnings_to_terminal
    from fsbridge.threads.parallel import apart

    warnings_to_terminal()
    problems = Problems()
    try:
        apart(lambda: work(problems))
    except ReaderGone as gone:
        raise ReaderGone(gone.exit_code or problems.exit_code) from None
    return problems.exit_code
