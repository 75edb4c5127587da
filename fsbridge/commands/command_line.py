"""The command line of a command that opens sources, with the settings that are in force for each of them.

A source has settings of its own, so the words are parsed once for each source, with its settings before them. Settings are
options of `mount`. A command uses those that mean the same to it, so `export` does not use `--include`.

Not here: the command line of `mount` (`mount.py`), where settings stand (`settings.py`), what options mean (`arguments.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import NamedTuple

from fsbridge.commands import arguments, mount
from fsbridge.commands.arguments import Parser
from fsbridge.commands.settings import options_of, settings, spelled
from fsbridge.config import Config, parse_place


class Source(NamedTuple):
    """A source, and the options in force for it."""

    args: argparse.Namespace
    """The options in force for this source."""
    text: str
    """A path or URL: what a name stands for, or what was given."""
    is_named: bool


class CommandLine:
    """A parsed command line: `args` without any settings, and each source with its own."""

    def __init__(self, parser: Parser, words: Sequence[str], left_out: Collection[str] = ()) -> None:
        """`left_out`: options that are ignored in the settings, so that only the command line can give them."""
        self.args = parser.parse_args(words)
        self._parser, self._words, self._left_out = parser, words, left_out
        self._sources: dict[str, Source] = {}

    def source(self, place: str) -> Source:
        """The source of `SOURCE//PATH`; SetupError names the file and the key that is wrong."""
        given = parse_place(place)[0]
        if given not in self._sources:
            options = mount.parser("fsbridge mount")
            known, ours = options_of(options), options_of(self._parser)
            found = settings(options, given)
            words = [
                word
                for option, setting in found.options.items()
                if option in ours and ours[option].dest == known[option].dest and option not in self._left_out
                for word in spelled(setting)
            ]
            args = self._parser.parse_args([*words, *self._words])
            text = given if found.source is None else str(found.source.value)
            self._sources[given] = Source(args, text, found.source is not None)
        return self._sources[given]

    def opened(self, place: str) -> tuple[Config, str]:
        """The Config of the source of `SOURCE//PATH`, and PATH in the tree that a mount of it shows."""
        found = self.source(place)
        # What a name stands for may have a //PATH too, and that is where its tree begins.
        source, inside = arguments.source_and_path(found.text) if found.is_named else (found.text, ())
        return arguments.config(found.args, source, inside=inside), parse_place(place)[1]

    def mounted(self, place: str) -> Config:
        """The Config of a mount of `SOURCE//PATH`."""
        found = self.source(place)
        source, inside = arguments.source_and_path(arguments.below(found.text, place) if found.is_named else place)
        return arguments.config(found.args, source, inside=inside)
