"""fsbridge mounts N5, Zarr and HDF5 stores as plain files.

`with fsbridge.mounted("brain.n5", layout="files") as path:` mounts one for a while. Everything else is a command
(`cli.py`), or the fsspec file system `fsbridge` (`unmounted/filesystem.py`).
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes 10 ms, in which an interrupt would be a traceback

__version__ = "0.1.0"

__all__ = ["__version__", "mounted"]

if TYPE_CHECKING:
    from fsbridge.mount import mounted


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that the command and child processes, which import this module, start fast."""
    if name == "mounted":
        from fsbridge.mount import mounted

        return mounted
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
