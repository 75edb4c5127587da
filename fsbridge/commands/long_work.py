"""What the commands with long work (`export`, `verify`, `digest`, `diff`) share: options, progress, threads and the end.

Not here: the units of the work (`unmounted/units.py`), any command's own work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import Progress
from fsbridge.commands.sources import CommandLine, Problems, report
from fsbridge.errors import SetupError
from fsbridge.installing import install

if TYPE_CHECKING:
    from fsbridge.unmounted.units import Doers, JobPart, Work, WorkSources

    Make: TypeAlias = Callable[[WorkSources, list[tuple[int, str]], Problems, JobPart], Work[Any, Any]]

REMOTE_THREADS = 32
"""Units at a time for a remote store, where each unit waits for a server."""

END_SECONDS = 1.0
"""Seconds that an interrupted command waits for its threads; those that still wait for a server are left behind."""


def add_options(parser: Parser) -> None:
    """Add the options of long work, and those of all commands that read the tree of a source."""
    shown = "do every N-th unit of work, beginning with the I-th, for N jobs that share the work"
    parser.add_argument("--part", type=types.part, default=(0, 1), metavar="I/N", help=shown)
    parser.add_argument(
        "--threads", type=types.positive, metavar="N", help="work on N units at a time (default: number of processors + 1)"
    )
    shown = "let a Dask cluster do the work; ADDRESS is that of its scheduler, such as tcp://HOST:8786"
    parser.add_argument("--dask", metavar="ADDRESS", help=shown)
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show progress")
    arguments.add_shared(parser)


class LongWork:
    """Starts, watches and ends the work of one command on the sources of some places."""

    def __init__(self, line: CommandLine, places: Sequence[str], waits: bool = False, remote: bool = False) -> None:
        """`waits`: a unit reads its objects one after the other, so a remote source needs many threads.

        `remote`: each unit waits for a server, even if the source is local.
        """
        self.progress = Progress(line.args.quiet)
        self._line = line
        self._args = line.args
        self._given = places
        self._waits = waits
        self._remote = remote
        self._sources: WorkSources | None = None
        self._doers: Doers | None = None

    def run(self, make: Make) -> int:
        """Do the work that `make(sources, places, problems, part)` returns. Return the exit code."""
        try:
            return report(lambda problems: self._perform(make, problems))
        finally:
            self.progress.close()

    def _begin(self, sources: WorkSources) -> Doers:
        """Start a cluster, or threads of this process, which do the units of work."""
        if self._args.dask is not None:
            try:
                from fsbridge.unmounted.cluster import Cluster
            except ImportError as error:
                raise SetupError(f"--dask needs the package distributed: {error}", install("distributed")) from None
            return Cluster(sources, self._args.dask)
        from fsbridge.unmounted.units import Threads

        sources.watcher = self.progress
        many = self._remote or (self._waits and any(config.is_remote for config in sources.configs))
        return Threads(sources, self._args.threads or (REMOTE_THREADS if many else (os.cpu_count() or 1) + 1))

    def end(self) -> None:
        """End interrupted work; threads that take longer than `END_SECONDS` are not waited for."""
        self.progress.close()
        if self._sources is not None:
            self._sources.ended = True
        if self._doers is not None:
            self._doers.close(END_SECONDS)

    def _perform(self, make: Make, problems: Problems) -> None:
        from fsbridge.unmounted.units import JobPart, WorkSources, perform

        given = [self._line.resolve(place) for place in self._given]
        configs = list(dict.fromkeys(config for config, _ in given))
        sources = self._sources = WorkSources(configs)
        try:
            for number in range(len(configs)):
                sources.tree(number)  # its errors are reported before anything begins
            places = [(configs.index(config), path) for config, path in given]
            work = make(sources, places, problems, JobPart(*self._args.part))
            doers = self._doers = self._begin(sources)
            try:
                with problems.at(self._given[0]):
                    perform(work, doers, self.progress.done)
            finally:
                doers.close()
        finally:
            sources.close()
