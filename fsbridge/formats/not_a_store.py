"""Errors for paths that are no store: files of other kinds, paths inside a store, stores of another format.

Each is a SetupError that says what is at the path, and what to name or do instead. Not here: recognising
formats (`detect.py`).
"""

from __future__ import annotations

import errno
import os
from shlex import quote

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, SetupError
from fsbridge.formats.detect import detect, detect_directory
from fsbridge.formats.format import COLLECTION, CandidateDirectory
from fsbridge.formats.registry import FORMATS
from fsbridge.metadata import Format
from fsbridge.store import ROOT, Store
from fsbridge.store.local.store import LocalStore

HINT = "a store is a directory, an HDF5 file, a zip file, or a URL as s3://BUCKET/PATH"

_NETCDF = "convert it to HDF5: nccopy -k netCDF-4 OLD.nc NEW.nc"
_ARCHIVE = "unpack it, and name the store's directory"
_PICTURE = "programs read it as it is"

STRANGERS = (
    (0, b"CDF\x01", "a netCDF-3 file", _NETCDF),
    (0, b"CDF\x02", "a netCDF-3 file (64-bit offsets)", _NETCDF),
    (0, b"CDF\x05", "a netCDF-3 file (CDF-5)", _NETCDF),
    (0, b"\x0e\x03\x13\x01", "an HDF4 file", "convert it to HDF5: h4toh5 OLD.hdf NEW.h5"),
    (257, b"ustar", "a tar archive", _ARCHIVE),
    (0, b"\x1f\x8b", "a file compressed by gzip", _ARCHIVE),
    (0, b"BZh", "a file compressed by bzip2", _ARCHIVE),
    (0, b"\xfd7zXZ", "a file compressed by xz", _ARCHIVE),
    (0, b"7z\xbc\xaf", "an archive of 7-Zip", _ARCHIVE),
    (0, b"II*\0", "a TIFF file", _PICTURE),
    (0, b"MM\0*", "a TIFF file", _PICTURE),
    (0, b"II+\0", "a TIFF file", _PICTURE),
    (0, b"\x93NUMPY", "a NumPy file", _PICTURE),
)
"""Kinds of files that users mistake for stores: offset of the magic bytes, magic bytes, name of the kind, hint."""

_BEGINNING = 512
"""Bytes at the beginning of a file that include all magic bytes above."""

_LEVELS = 40
"""Most parent directories in which a store is looked for. A chunk of N5 is one level deeper for each dimension."""


def unreadable(path: str, error: OSError, config: Config) -> SetupError:
    """Return the error for a path that the system cannot open, with a hint."""
    hint = ""
    if error.errno == errno.ENOENT:
        form, store = _around(path, config)
        hint = f"it lies inside a store of the format {form}: see fsbridge info {quote(store)}" if form else HINT
    elif error.errno == errno.ENOTDIR:
        file = next((above for above in _above(path) if os.path.isfile(above)), "")
        hint = f"{file} is a file: name it alone; what is in it lies below the mount point" if file else ""
    elif error.errno == errno.EACCES:
        hint = "its owner can let you read it; a mount is for whoever made it, unless that was with --allow-other"
    elif error.errno == errno.ENOTCONN:
        hint = f"clear the stale mount with: fsbridge umount {quote(path)}"
    return SetupError(f"{path}: {(error.strerror or str(error)).lower()}", hint)


def strange_directory(path: str, config: Config) -> SetupError:
    """Return the error for a directory in which no store was found."""
    words = f"{path}: no N5, Zarr, HDF5, Hangar or Icechunk store, and none beneath it"
    hint = "name the store's own directory, or say --format if it is one without any metadata"
    return SetupError(words, _inside(path, config) or hint)


def strange_file(path: str, config: Config) -> SetupError:
    """Return the error for a file of no known format."""
    with open(path, "rb") as file:
        beginning = file.read(_BEGINNING)
    for offset, magic, kind, help in STRANGERS:
        if beginning.startswith(magic, offset):
            return SetupError(f"{path}: {kind}, which fsbridge does not read", help)
    hint = _inside(path, config) or "name the store's directory, or an HDF5 file"
    return SetupError(f"{path}: neither an HDF5 file nor a zip file", hint)


def check_format(form: Format, store: Store, path: str, config: Config) -> None:
    """Raise SetupError if the user names a format, but `store` has another one: its arrays would not be shown.

    A store without metadata may have any format. A store that cannot be read raises its error when it is opened.
    """
    try:
        if FORMATS[form.name].recognise(CandidateDirectory(store, config, ROOT)):
            return
        found = detect(store, config)
    except (FsbridgeError, OSError):
        return
    if found not in (None, form, COLLECTION):
        raise SetupError(f"{path}: of the format {found.name}, not {form.name}", "leave --format away")


def _above(path: str) -> list[str]:
    """Return the parent directories, the nearest first."""
    found = [os.path.dirname(os.path.abspath(path))]
    while found[-1] != "/" and len(found) < _LEVELS:
        found.append(os.path.dirname(found[-1]))
    return found


def _inside(path: str, config: Config) -> str:
    """Return a hint that names the store around `path`, empty if there is none."""
    form, store = _around(path, config)
    return f"it lies inside a store of the format {form}: name {quote(store)}" if form else ""


def _around(path: str, config: Config) -> tuple[str, str]:
    """Return format and path of the nearest store around `path`, which may be an array; empty texts if there is none."""
    for above in filter(os.path.isdir, _above(path)):
        try:
            store = LocalStore(above)
            try:
                form = detect_directory(store, config, ROOT)
            finally:
                store.close()
        except (FsbridgeError, OSError):
            break
        if form is not None:
            return form.name, above
    return "", ""
