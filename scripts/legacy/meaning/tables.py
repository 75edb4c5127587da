"""Tables in programs that read CSV: names of columns, the coordinate first, every row, missing values.

The values are those that the source stores: a table has no place for units, packing or a calendar. Not here: fields of more
dimensions (`climate.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from legacy.meaning import Check, Field, differs
from legacy.programs import environment, here, run

STORES = ("series.zarr", "series.nc")
PLAIN = ("count", "station", "single")


def write(folder: Path) -> None:
    variables = {
        "rain": ("day", [1.5, np.nan, 3.25], {"units": "mm"}),
        "count": ("day", np.array([7, -8, 2**40])),
        "station": ("day", np.array(["Uccle", "De Bilt", 'a "b", c'], object)),
        "single": ("day", np.array([0.1, 1e-30, 16777216], "f4")),
    }
    dataset = xarray.Dataset(variables, {"day": ("day", [0.5, 1.5, 2.5], {"units": "days since 2001-01-01"})})
    dataset.to_zarr(folder / STORES[0], zarr_format=3, consolidated=False)
    dataset.to_netcdf(folder / STORES[1], engine="netcdf4")


PRINT = """
import json, sys
columns = {name: [None if value != value else value for value in values] for name, values in columns.items()}
print(json.dumps(columns, default=str))
"""
PANDAS = "import pandas, sys\ncolumns = pandas.read_csv(sys.argv[1]).to_dict('list')\n"
POLARS = "import polars, sys\ncolumns = polars.read_csv(sys.argv[1]).to_dict(as_series=False)\n"
DUCKDB = """
import duckdb, sys
found = duckdb.sql(f"select * from read_csv('{sys.argv[1]}')")
columns = dict(zip(found.columns, map(list, zip(*found.fetchall()))))
"""


def table(code: str, asked: tuple[str, ...]) -> Callable[[list[str], Path, Path], None]:
    """Each array's table, and that of the group, as a library of Python reads them."""

    def compare(command: list[str], mount: Path, scratch: Path) -> None:
        for store in STORES:
            options: dict[str, Any] = {"engine": "zarr", "consolidated": False} if store.endswith(".zarr") else {}
            with xarray.open_dataset(scratch / "meaning" / store, decode_times=False, **options) as source:
                members = list(map(str, source))
                files = {f"{store}.csv": members, **{f"{store}/{name}.csv": [name] for name in members if name in asked}}
                for file, names in files.items():
                    shown = json.loads(run([*command, "-W", "ignore", "-c", code + PRINT, str(mount / "files" / file)]))
                    differs(f"first column of {file}", next(iter(shown)), "day")
                    differs(f"columns of {file}", sorted(shown), sorted(["day", *names]))
                    days = np.array([str(day).replace(" ", "T") for day in shown["day"]], "M8[s]")
                    wanted = xarray.decode_cf(source)["day"].values.astype("M8[s]")
                    differs(f"days of {file}", days.tolist(), wanted.tolist())
                    for name in (name for name in names if name in asked):
                        same(f"{name} of {file}", shown[name], source[name].values.tolist())

    return compare


def same(fact: str, shown: list[Any], expected: list[Any]) -> None:
    """Raise ValueError unless the elements are equal, numbers as float32 tells them apart, None where NaN is."""
    wanted = [None if value != value else value for value in expected]
    numbers = [isinstance(value, float) for value in wanted]
    alike = [np.float32(a) == np.float32(b) if both and a is not None else a == b
             for a, b, both in zip(shown, wanted, numbers, strict=True)]  # fmt: skip
    if not all(alike):
        differs(fact, shown, wanted)


LIBRARIES = (
    ("pandas", here, PANDAS),
    ("polars", environment("polars"), POLARS),
    ("DuckDB", environment("duckdb"), DUCKDB),
)

FIELD = Field(
    "tables",
    write,
    tuple(Check(program, "names, rows of .csv", prepare, table(code, PLAIN)) for program, prepare, code in LIBRARIES),
)
