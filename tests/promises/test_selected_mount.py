"""Mounts of a part of a store: `//path`, --include and --exclude."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from mounting import MountFunction, fsbridge, mounts_at
from samples import SAMPLES, Sample


def first(sample: Sample) -> str:
    """The path of an array in the group that is looked at, from there."""
    above = f"{sample.group}/"
    return next(path.removeprefix(above) for path in sample.arrays if path.startswith(above))


def test_a_mount_shows_what_is_selected_of_each_format(tmp_path: Path, mount: MountFunction) -> None:
    """One mount of a directory with a store of each format."""
    patterns, here, gone = [], list[str](), list[str]()
    for kind in (kind for kind in SAMPLES if "/" not in kind and kind != "hangar"):
        folder = tmp_path / "in" / kind
        folder.mkdir(parents=True)
        sample = SAMPLES[kind](folder)
        if kind == "zip":
            shutil.rmtree(folder / "s.zarr")  # what it was made of
        place, array = f"{kind}/{sample.source.name}/{sample.group}", first(sample)
        patterns += ["--exclude", f"{place}/{array}"]
        gone.append(f"{place}/{array}")
        here += [f"{place}/{path.removeprefix(sample.group)}" for path in sample.arrays if not path.endswith(array)]
    mounted = mount(f"{tmp_path}//in", "--format", "collection", "--layout", "zarr3,files", *patterns)
    for path in gone:
        assert not (mounted / "zarr3" / path).exists()
        assert not (mounted / "zarr3" / path / "zarr.json").exists()
        assert not (mounted / "files" / f"{path}.npy").exists()
    for path in here:
        assert (mounted / "zarr3" / path / "zarr.json").exists(), path
        assert (mounted / "files" / f"{path}.json").exists()


def test_a_mount_of_an_array_and_a_program_that_sees_a_part(tmp_path: Path, mount: MountFunction) -> None:
    sample = SAMPLES["zarr3"](tmp_path)
    mounted = mount(f"{sample.source}//g/volume", "--layout", "files")
    assert (np.load(mounted / "volume.npy") == sample.arrays["g/volume"]).all()
    (row,) = mounts_at(mounted.path)
    assert row.source == f"{sample.source}//g/volume"
    ran = fsbridge("run", f"{sample.source}//g", "--include", "cur*", "--", "ls", "{}")
    assert (ran.returncode, ran.stdout.split()) == (0, ["curve", "zarr.json"])
    listed = fsbridge("ls", sample.source, "-R", "--exclude", "*/*ur*", "--layout", "files")
    assert {path.partition(".")[0] for path in listed.stdout.split()} == {
        *("g", "index", "store"),
        *("g/index", "g/labels", "g/volume", "g/words"),
    }
