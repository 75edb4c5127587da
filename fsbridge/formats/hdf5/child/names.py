"""Names of files in virtual datasets, patterns among them, and what is not there. Part of the HDF5 child.

Not here: which files they stand for (`sources.py`).
"""

from __future__ import annotations

import re

from fsbridge.formats.hdf5.child.opened import Refusal

BLOCK = re.compile(r"%[%b]")
"""In names of virtual datasets: `%b` is the number of a block, `%%` one percent sign (H5Dvirtual.c)."""


def literal(name: str) -> str:
    return name.replace("%%", "%")


def expression(name: str) -> re.Pattern[str]:
    """What names of a pattern look like: the same decimal number wherever `%b` stands."""
    out, position, seen = "", 0, False
    for match in BLOCK.finditer(name):
        out += re.escape(name[position : match.start()])
        out += "%" if match[0] == "%%" else "(?P=block)" if seen else "(?P<block>[0-9]+)"
        seen |= match[0] == "%b"
        position = match.end()
    return re.compile(out + re.escape(name[position:]))


def check_absent(place: str, error: OSError) -> None:
    """A refusal unless what `error` hit is not there: HDF5 reads the fill value for whatever it cannot open."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        kind = "denied" if isinstance(error, PermissionError) else "unreachable"
        raise Refusal(kind, f"has data in another file, {place}: {error.strerror}")
