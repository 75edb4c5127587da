"""What ncdump and the netCDF4 of this environment show of files. Each file has a process of its own: some readers die.

Both give the same kind of record, so that two files can be compared in one program. Not here: what is expected.

This module is also the program that reads with netCDF4: `python netcdf_readers.py FILE...` prints a line for each file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 60
NAMING = ["coordinates", "grid_mapping", "bounds", "ancillary_variables", "cell_measures", "formula_terms"]
"""Attributes that name other variables."""


@dataclass
class Shown:
    """What a program shows of one group: by name, the size of a dimension, the type and dimensions of a variable, its
    elements; and each attribute with its value, by the name of its variable, or by "" of the group."""

    dimensions: dict[str, str] = field(default_factory=dict)
    variables: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    elements: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)

    def lines(self) -> set[str]:
        """Everything, as lines that differ where something differs."""
        found = {f"dimension {name} = {size}" for name, size in self.dimensions.items()}
        for name, (kind, dimensions) in self.variables.items():
            found.add(f"{kind} {name}({', '.join(dimensions)})")
        found |= {f"{name} = {text}" for name, text in self.elements.items()}
        return found | {
            f"{owner}:{name} = {text}" for owner, every in self.attributes.items() for name, text in every.items()
        }

    def named(self, name: str) -> set[str]:
        """Return the variables that one needs: itself, its dimensions', and what attributes name, theirs, too."""
        found: set[str] = set()
        waiting = {name}
        while waiting:
            name = waiting.pop()
            found.add(name)
            words = " ".join(self.attributes.get(name, {}).get(key, "") for key in NAMING)
            waiting |= ({*self.variables[name][1], *re.findall(r"\w+", words)} & self.variables.keys()) - found
        return found

    def only(self, name: str) -> Shown:
        """Return the part of the group that one variable needs, with the group's own attributes."""
        names = self.named(name)
        variables = {name: value for name, value in self.variables.items() if name in names}
        used = {name for _, dimensions in variables.values() for name in dimensions}
        return Shown(
            {name: size for name, size in self.dimensions.items() if name in used},
            variables,
            {name: text for name, text in self.elements.items() if name in names},
            {owner: every for owner, every in self.attributes.items() if owner in names or not owner},
        )


Groups = dict[str, Shown]
"""By the group's path, which is empty for the root."""
Read = dict[Path, Groups | str]
"""By file; where the program failed, its last words or the signal that ended it."""


def ncdump(files: Iterable[Path]) -> Read:
    """Return what Debian's ncdump shows of each file, four at a time."""

    def one(file: Path) -> Groups | str:
        done = subprocess.run(["ncdump", file], capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        return parsed(done.stdout) if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"

    files = list(files)
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(files, pool.map(one, files), strict=True))


def parsed(text: str) -> Groups:
    """Read CDL: statements that end with " ;", in sections, in groups."""
    path: list[str] = []
    groups = {"": Shown()}
    section, statement = "", ""
    for line in text.splitlines():
        shown = groups["/".join(path)]
        if not statement and (found := re.match(r"group: (\S+) \{", line.strip())):
            path.append(found[1])
            groups["/".join(path)] = Shown()
        elif not statement and line.strip().startswith("}"):
            path = path[:-1]
        elif not statement and (found := re.match(r"\s*(\w+):$", line)):
            section = found[1]
        elif not statement and (not line.strip() or line.startswith("netcdf ") or line.strip().startswith("//")):
            pass
        else:
            statement += line.strip() + " "
            if line.endswith(" ;"):
                put(shown, section, statement.removesuffix(" ; "))
                statement = ""
    return shared(groups)


def shared(groups: Groups) -> Groups:
    """Give each group the dimensions that its variables use, wherever they are defined: xarray shares those of one name."""
    sizes = {path: dict(shown.dimensions) for path, shown in groups.items()}
    for path, shown in groups.items():
        above = ["/".join(path.split("/")[:count]) for count in range(len(path.split("/")) + 1)]
        known = {name: size for place in above for name, size in sizes[place].items()}
        used = [name for _, dimensions in shown.variables.values() for name in dimensions]
        shown.dimensions = {name: known[name] for name in used}
    return groups


def put(shown: Shown, section: str, statement: str) -> None:
    """Put one statement of CDL in its place."""
    name, _, value = (word.strip() for word in statement.partition(" ="))
    if section == "dimensions":
        shown.dimensions[name] = value
    elif section == "data":
        shown.elements[name] = value
    elif found := re.match(r"(?:(string) )?((?:[^\s:(]|\\.)*):((?:[^\\=]|\\.)*)$", name):
        shown.attributes.setdefault(found[2], {})[found[3]] = value if is_text(value) else f"{found[1] or ''} {value}"
    elif found := re.match(r"(\S+) ([^(]+)(?:\((.*)\))?$", statement):
        shown.variables[found[2]] = found[1], tuple((found[3] or "").split(", ")) if found[3] else ()
    else:
        raise ValueError(f"not understood: {section}: {statement}")


def is_text(value: str) -> bool:
    """One text beyond ASCII: netCDF4 writes it as a string, and programs understand it better as characters."""
    return not value.isascii() and re.fullmatch(r'"(?:[^"\\]|\\.|"," ")*"', value) is not None


def netcdf4(files: Iterable[Path]) -> Read:
    """Return what netCDF4 shows of each file, in a process forked for it."""
    files = list(files)
    command = [sys.executable, "-W", "ignore", __file__, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * 5, check=True)
    found: Read = {}
    for file, line in zip(files, done.stdout.splitlines(), strict=True):
        said = json.loads(line)
        found[file] = said if isinstance(said, str) else shared({path: Shown(*parts) for path, parts in said.items()})
    return found


def read(file: str) -> dict[str, Any]:
    """Read all of one file with netCDF4, elements as they are stored."""
    import netCDF4
    import numpy as np

    found: dict[str, Any] = {}
    with netCDF4.Dataset(file) as dataset:
        dataset.set_auto_maskandscale(False)
        dataset.set_auto_chartostring(False)
        waiting = [dataset]
        while waiting:
            group = waiting.pop()
            waiting += group.groups.values()
            elements = {name: repr(np.asarray(value[...]).tolist()) for name, value in group.variables.items()}
            kinds = {name: (str(value.dtype), value.dimensions) for name, value in group.variables.items()}
            owners: dict[str, Any] = {"": group, **group.variables}
            attributes = {name: attributes_of(owner) for name, owner in owners.items() if owner.ncattrs()}
            sizes = {name: str(dimension.size) for name, dimension in group.dimensions.items()}
            found[group.path.strip("/")] = sizes, kinds, elements, attributes
    return found


def attributes_of(owner: Any) -> dict[str, str]:
    """Return each attribute with its type and value."""
    found = {name: owner.getncattr(name) for name in owner.ncattrs()}
    return {
        name: value if isinstance(value, str) else f"{getattr(value, 'dtype', '')} {value!r}"
        for name, value in found.items()
    }


def print_all(files: Sequence[str]) -> None:
    """Print for each file a line of JSON: what `read` finds, or how it fails."""
    import netCDF4  # noqa: F401  before the forks, which then need not

    for file in files:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                said: Any = read(file)
            except Exception as error:  # the library's own failure, of any kind
                said = f"{type(error).__name__}: {error}"
            print(json.dumps(said), flush=True)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            print(json.dumps(f"it died: {code}"))


if __name__ == "__main__":
    print_all(sys.argv[1:])
