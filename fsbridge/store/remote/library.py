"""obstore, in a form that works in this process.

Its library runs threads from the first request on. A process that is forked after it does not have them, and its requests
would hang for ever, so it loads another copy of the library, which has no state yet: 10 ms, and 15 MB of memory. Not here:
what obstore is asked for.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

import obstore
import obstore.store

from fsbridge.errors import SetupError
from fsbridge.threads.forking import PerProcess

_NAME, _LIBRARY = "obstore", "obstore._obstore"


def library() -> ModuleType:
    """Return the module `obstore` that this process can use, with its module `store`."""
    return _library.get()


class _Finder:
    """Finds obstore's library in the file at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return how a module is loaded, if it is that library."""
        return spec_from_file_location(name, loader=ExtensionFileLoader(name, self._path)) if name == _LIBRARY else None


def _copy_library() -> ModuleType:
    """Load obstore with a copy of its library. All others in this process keep the one that they have imported.

    The copy is in memory, because the system loads the same file only once into a process.
    """
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == _NAME}
    try:
        with open(str(before[_LIBRARY].__file__), "rb") as original, open(os.memfd_create(_NAME), "wb") as copy:
            while os.sendfile(copy.fileno(), original.fileno(), None, 1 << 30):
                pass
            finder = _Finder(f"/proc/{os.getpid()}/fd/{copy.fileno()}")
            for name in before:
                del sys.modules[name]
            sys.meta_path.insert(0, finder)
            try:
                import obstore as copied
                import obstore.store

                return copied
            finally:
                sys.meta_path.remove(finder)
                sys.modules.update(before)
    except (ImportError, OSError) as error:
        hint = "start it with multiprocessing's 'spawn' or 'forkserver', or open the store in it only"
        raise SetupError(f"a forked process cannot load obstore again: {error}", hint) from None


_used: list[ModuleType] = []
"""Those that this process and the ones it was forked from have used."""


def _usable() -> ModuleType:
    _used.append(_copy_library() if _used else obstore)
    return _used[-1]


_library: PerProcess[ModuleType] = PerProcess(None, _usable)
