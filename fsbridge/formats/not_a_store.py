"""What a path is that is no store: what people take for one, what lies inside of one, what is of another format.

Each becomes a SetupError that says so, and what to name or do instead. Not here: recognising formats (`detect.py`).
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
"""Files that are mistaken for stores: the place of known bytes, these bytes, what the file is, and what helps."""

_BEGINNING = 512
"""Bytes at the beginning of a file that hold all of these."""

_LEVELS = 40
"""Directories above a path in which a store is looked for: N5 has one for each dimension of a chunk."""


def unreadable(path: str, error: OSError, config: Config) -> SetupError:
    """What the system says of `path`, and what helps."""
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
    """Why the directory at `path` cannot be opened, in which no store was found."""
    words = f"{path}: no N5, Zarr, HDF5, Hangar or Icechunk store, and none beneath it"
    hint = "name the store's own directory, or say --format if it is one without any metadata"
    return SetupError(words, _inside(path, config) or hint)


def strange_file(path: str, config: Config) -> SetupError:
    """Why the file at `path` cannot be opened, which is of no format."""
    with open(path, "rb") as file:
        beginning = file.read(_BEGINNING)
    for offset, magic, kind, help in STRANGERS:
        if beginning.startswith(magic, offset):
            return SetupError(f"{path}: {kind}, which fsbridge does not read", help)
    hint = _inside(path, config) or "name the store's directory, or an HDF5 file"
    return SetupError(f"{path}: neither an HDF5 file nor a zip file", hint)


def check_format(form: Format, store: Store, path: str, config: Config) -> None:
    """Refuse a format that the user names and `store` plainly has not: it would be shown without its arrays.

    What has no metadata may be of any format, and what cannot be looked at is judged when it is opened.
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
    """The directories above, the nearest first."""
    found = [os.path.dirname(os.path.abspath(path))]
    while found[-1] != "/" and len(found) < _LEVELS:
        found.append(os.path.dirname(found[-1]))
    return found


def _inside(path: str, config: Config) -> str:
    """Which store to name instead of `path`, as a hint; empty if that lies in none."""
    form, store = _around(path, config)
    return f"it lies inside a store of the format {form}: name {quote(store)}" if form else ""


def _around(path: str, config: Config) -> tuple[str, str]:
    """Format and path of the store that `path` lies in, empty if in none: the nearest one, which may be an array."""
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
