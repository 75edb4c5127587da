"""Where HDF5 looks for a local file that another file names, in a virtual dataset or an external link.

HDF5 takes the first of these places that has a file (H5F_prefix_open_file, H5Fint.c). So data that was moved together is
found again, also if every file is reached through a link (git-annex). HDF5 would look in the working directory of a
program, too; that is left out because it says nothing about the data. Not here: whether a place may be read.
"""

from __future__ import annotations

import os


def without_links(path: str) -> str:
    """Return the path of a file with its directory's links resolved. The file itself may be a link."""
    folder, base = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), base)


def folders(path: str) -> list[str]:
    """Return the directory of the file at `path` and the directory of the file that it links to."""
    return list(dict.fromkeys((os.path.dirname(without_links(path)), os.path.dirname(os.path.realpath(path)))))


def places(folders: list[str], name: str) -> list[str]:
    """Return where the file `name` may be that a file in these folders names: as written, and in each folder."""
    base = os.path.basename(name) if os.path.isabs(name) else name
    return [*([name] if base != name else []), *(os.path.join(folder, base) for folder in folders)]


def first(tried: list[str]) -> int | None:
    """Return the number of the first place that has something, or None."""
    return next((number for number, place in enumerate(tried) if not _is_absent(place)), None)


def _is_absent(path: str) -> bool:
    """Tell whether nothing is there. A place that may not be looked at counts as present."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
