"""Pages in a browser: `index.html` of groups that one would look at. Not here: the browser (`browser.py`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from browser import browser

from legacy.meaning import Check, Field, differs
from legacy.programs import system

STORE = "pages.zarr"
UNFOLD = "document.querySelectorAll('details').forEach(one => { one.open = true })"
WIDER = "document.documentElement.scrollWidth > innerWidth"


def write(folder: Path) -> None:
    root = zarr.open_group(str(folder / STORE), mode="w", attributes={"title": "<b>a</b> & b", "long": list(range(100))})
    root.create_array("curve", shape=(300,), chunks=(100,), dtype="f4")[...] = np.sin(np.arange(300) / 20)
    root.create_array("a 100% <odd> name?#", shape=(40, 50), chunks=(20, 20), dtype="u2")[...] = 7
    axes = [{"name": name, "type": "space"} for name in "yx"]
    datasets = [{"path": str(level)} for level in range(2)]
    scales = {"version": "0.5", "multiscales": [{"name": "cells", "axes": axes, "datasets": datasets}]}
    cells = root.create_group("cells", attributes={"ome": scales})
    picture = np.random.default_rng(1).integers(0, 4000, (600, 800)).astype("<u2")
    for level in range(2):
        values = picture[:: 2**level, :: 2**level]
        cells.create_array(str(level), shape=values.shape, chunks=(256, 256), dtype="<u2")[...] = values


def in_chromium(command: list[str], mount: Path, scratch: Path) -> None:
    with browser(command[0]) as page:
        for names, pictures in (((), 3), (("cells",), 3)):  # of each member, and of the image as a whole
            for width in (400, 1200):
                for dark in (False, True):
                    page.open(mount.joinpath("files", STORE, *names, "index.html"), width, 600, dark)
                    found = page.pictures()
                    differs("pictures", len(found), pictures)
                    differs("pictures that are not shown", [name for name, wide in found.items() if not wide], [])
                    differs("the console", page.errors(), [])
                    differs("wider than the window", page.evaluate(WIDER), False)
                    differs("wider than the window when all is unfolded", page.evaluate(f"{UNFOLD}; {WIDER}"), False)
                    if not page.screenshot().startswith(b"\x89PNG"):
                        raise ValueError("no screenshot")


FIELD = Field(
    "pages",
    write,
    (Check("Chromium", "pages: pictures, console, width", system("chromium", "chromium"), in_chromium),),
)
