"""Units of work done by the workers of a Dask cluster that runs already. Each opens the sources itself, once for all units.

If a worker dies, Dask gives its units to another one. Not here: the units, the order of results (`units.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar
from uuid import uuid4

from distributed import Client, Worker, WorkerPlugin, get_worker

from fsbridge.errors import FsbridgeError, SetupError
from fsbridge.unmounted.units import Unit, WorkSources

CONNECT_SECONDS = 10.0
"""Seconds to wait for a scheduler, when connecting and when closing."""

U = TypeVar("U", bound=Unit)
R = TypeVar("R")


class Cluster:
    """The workers of the cluster with its scheduler at `address`."""

    def __init__(self, sources: WorkSources, address: str, connect_seconds: float = CONNECT_SECONDS) -> None:
        """Connect. SetupError if no scheduler answers, if it has no workers, or if they cannot load fsbridge."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are reported by our own messages
        try:
            self._client = Client(address, timeout=connect_seconds, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            words = str(error).partition("\n")[0] or type(error).__name__
            raise SetupError(f"{address}: no Dask scheduler answers: {words}", "name it as in tcp://HOST:8786") from None
        self._name = f"fsbridge-{uuid4().hex}"
        try:
            self.threads = sum(self._client.nthreads().values())
            if not self.threads:
                raise SetupError(f"{address}: the cluster has no workers", "start some: dask worker ADDRESS")
            try:
                self._client.register_plugin(_SourcesOfWorker(self._name, sources))
            except Exception as error:
                hint = "install the same version of fsbridge-fuse for all of them"
                raise SetupError(f"{address}: the workers cannot load fsbridge: {error}", hint) from None
        except BaseException:
            self.close()
            raise
        self._executor = self._client.get_executor(pure=False)

    def submit(self, do: Callable[[WorkSources, U], R], unit: U) -> Future[R]:
        """Have a worker do a unit."""
        outcome: Future[R] = Future()
        self._executor.submit(_do_on_worker, self._name, do, unit).add_done_callback(partial(_pass_on, outcome))
        return outcome

    def close(self, seconds: float | None = None) -> None:
        """Let the workers finish the units that they have begun and close the sources; then disconnect."""
        if self._client.status == "running":
            self._client.unregister_worker_plugin(self._name)
        self._client.close(timeout=CONNECT_SECONDS if seconds is None else seconds)


class _SourcesOfWorker(WorkerPlugin):
    """The sources of one worker. The first unit opens them, because a unit can report what is wrong."""

    def __init__(self, name: str, sources: WorkSources) -> None:
        self.name = name
        self.sources = sources

    def teardown(self, worker: Worker) -> None:
        self.sources.close()


def _do_on_worker(name: str, do: Callable[[WorkSources, U], R], unit: U) -> R:
    """Do a unit with the sources of the worker that this runs on."""
    plugin = get_worker().plugins[name]
    assert isinstance(plugin, _SourcesOfWorker)
    return do(plugin.sources, unit)


def _pass_on(outcome: Future[R], future: Future[R]) -> None:
    """Give the result or error of `future` to `outcome`. An error that a unit cannot raise becomes one about the cluster."""
    if outcome.cancelled():
        return
    error = FsbridgeError("the cluster cancelled this work") if future.cancelled() else future.exception()
    if error is None:
        outcome.set_result(future.result())
    elif isinstance(error, FsbridgeError | OSError):
        outcome.set_exception(error)
    else:
        outcome.set_exception(FsbridgeError(f"the cluster failed to do this: {type(error).__name__}: {error}"))
