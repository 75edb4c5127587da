"""Where HDF5 looks for a local file that another one names, in a virtual dataset or an external link.

It takes the first of these places where there is a file (H5F_prefix_open_file, H5Fint.c), so data that were moved together
are found beside each other, and so are those of whom all names are links (git-annex). It would also look in the working
directory of a program, which says nothing about the data. Not here: whether one may look there.
"""

from __future__ import annotations

import os


def without_links(path: str) -> str:
    """The path of a file in whatever directory it really is; it may be a link itself."""
    folder, base = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), base)


def folders(path: str) -> list[str]:
    """The directory of the file at `path`, and that of what it links to."""
    return list(dict.fromkeys((os.path.dirname(without_links(path)), os.path.dirname(os.path.realpath(path)))))


def places(folders: list[str], name: str) -> list[str]:
    """For what a file in these folders calls `name`: as it is said, and in each of them."""
    base = os.path.basename(name) if os.path.isabs(name) else name
    return [*([name] if base != name else []), *(os.path.join(folder, base) for folder in folders)]


def first(tried: list[str]) -> int | None:
    """The number of the first place where there is something; None if there is nothing."""
    return next((number for number, place in enumerate(tried) if not _is_absent(place)), None)


def _is_absent(path: str) -> bool:
    """Whether there is nothing; what may not be looked at is there."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
