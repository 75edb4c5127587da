"""Write the NWB files of tests/data/nwb/ with pynwb, as HDF5 and as Zarr, and what pynwb reads from them.

    python3.11 -m venv nwb2 && nwb2/bin/pip install hdmf-zarr==0.13.0 pynwb==4.2.0      # Zarr v2, and HDF5
    python3.12 -m venv nwb3 && nwb3/bin/pip install hdmf-zarr==0.14.0 pynwb==4.2.0      # Zarr v3
    NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE=1 nwb2/bin/python tests/data/make_nwb.py
    nwb3/bin/python tests/data/make_nwb.py

Each run makes `zarr2.tar.xz` or `zarr3.tar.xz`: `session.nwb.zarr` (links and references inside it), `export.nwb.zarr` (the
HDF5 file exported) and `linking.nwb.zarr` (links into session.nwb.zarr). The first also makes `hdf5.tar.xz` (`session.nwb`).
`*.json` and `*.npz` hold what pynwb reads. Not for fsbridge's own code.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import zarr
from hdmf_zarr.nwb import NWBZarrIO
from pynwb import NWBHDF5IO, NWBFile, TimeSeries
from pynwb.ecephys import ElectricalSeries
from pynwb.file import Subject

OUT = Path(__file__).parent / "nwb"
START = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


def make_file():
    """An NWB file with an electrodes table, references in columns, trials that point into a TimeSeries, and a link."""
    nwb = NWBFile(
        "Session d\N{LATIN SMALL LETTER E WITH ACUTE}mo",
        "fsbridge-demo",
        START,
        session_id="session-1",
        keywords=["links", "références"],
        experimenter=["Ada Example"],
    )
    nwb.subject = Subject(subject_id="mouse-1", age="P90D", species="Mus musculus", sex="F")
    device = nwb.create_device(name="probe", description="a probe")
    groups = [
        nwb.create_electrode_group(name=f"shank{i}", description="a shank", location="CA1", device=device) for i in range(2)
    ]
    nwb.add_electrode_column(name="label", description="text")
    for i in range(6):
        nwb.add_electrode(
            x=float(i),
            y=i / 2,
            z=0.25,
            imp=1e6,
            location=f"layer {i % 3}",
            filtering="none",
            group=groups[i % 2],
            label=f"e\N{GREEK SMALL LETTER MU}{i}",
        )
    data = (np.arange(600).reshape(100, 6) * 7 % 201 - 100).astype("int16")
    region = nwb.create_electrode_table_region([0, 2, 5], "some of them")
    series = ElectricalSeries(name="raw", data=data[:, :3], electrodes=region, rate=1000.0)
    nwb.add_acquisition(series)
    times = TimeSeries(name="with_timestamps", data=np.linspace(0, 1, 50), unit="V", timestamps=np.arange(50) / 10)
    nwb.add_acquisition(times)
    nwb.add_acquisition(
        TimeSeries(name="shares_timestamps", data=np.arange(50, dtype="float32"), unit="V", timestamps=times)
    )
    nwb.add_trial_column(name="correct", description="a bool")
    for i in range(5):
        nwb.add_trial(start_time=i / 2, stop_time=i / 2 + 0.25, correct=bool(i % 2), timeseries=[times], tags=f"t{i}")
    return nwb, times


def collect(nwb):
    """Return what pynwb reads: arrays by their path in the file, and facts."""
    arrays, facts = {}, {}
    table = nwb.electrodes
    for name in ("x", "y", "z", "imp"):
        arrays[f"general/extracellular_ephys/electrodes/{name}"] = np.asarray(table[name].data[:])
    for name in ("location", "filtering", "label", "group_name"):
        facts[f"general/extracellular_ephys/electrodes/{name}"] = [str(value) for value in table[name].data[:]]
    facts["general/extracellular_ephys/electrodes/group"] = [
        f"/general/extracellular_ephys/{group.name}" for group in table["group"].data[:]
    ]
    for name in ("raw", "with_timestamps", "shares_timestamps"):
        arrays[f"acquisition/{name}/data"] = np.asarray(nwb.acquisition[name].data[:])
    arrays["acquisition/with_timestamps/timestamps"] = np.asarray(nwb.acquisition["with_timestamps"].timestamps[:])
    arrays["acquisition/raw/electrodes"] = np.asarray(nwb.acquisition["raw"].electrodes.data[:])
    trials = nwb.trials
    for name in ("start_time", "stop_time", "correct"):
        arrays[f"intervals/trials/{name}"] = np.asarray(trials[name].data[:])
    facts["intervals/trials/timeseries"] = [
        [int(row[0]), int(row[1]), f"/acquisition/{row[2].name}"]
        for i in range(len(trials))
        for row in trials["timeseries"][i]
    ]
    facts["session_description"] = nwb.session_description
    facts["session_start_time"] = nwb.session_start_time.isoformat()
    facts["identifier"] = nwb.identifier
    facts["general/subject/age"] = nwb.subject.age
    facts["general/keywords"] = [str(word) for word in nwb.keywords[:]]
    return arrays, facts


def write_linking(folder):
    """A file with series that share data and timestamps with another file."""
    with NWBZarrIO(str(folder / "session.nwb.zarr"), "r") as source:
        other = source.read()
        nwb = NWBFile("links", "fsbridge-linking", START)
        there = other.acquisition["with_timestamps"]
        nwb.add_acquisition(TimeSeries(name="shared", data=there.data, unit="V", timestamps=there.timestamps))
        with NWBZarrIO(str(folder / "linking.nwb.zarr"), "w", manager=source.manager) as io:
            io.write(nwb, link_data=True)


def archive(folder, target):
    """A deterministic tar."""
    with lzma.open(target, "wb", preset=9 | lzma.PRESET_EXTREME) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            info = tar.gettarinfo(str(path), str(path.relative_to(folder)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 1_600_000_000
            with open(path, "rb") if path.is_file() else open(os.devnull, "rb") as file:
                tar.addfile(info, file)


def save(name, arrays, facts):
    np.savez_compressed(OUT / f"{name}.npz", **arrays)
    (OUT / f"{name}.json").write_text(json.dumps(facts, indent=0, sort_keys=True) + "\n")


def main():
    warnings.simplefilter("ignore")
    OUT.mkdir(exist_ok=True)
    generation = "zarr2" if zarr.__version__.startswith("2") else "zarr3"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nwb, _ = make_file()
        with NWBZarrIO(str(folder / "session.nwb.zarr"), "w") as io:
            io.write(nwb)
        write_linking(folder)
        hdf5 = folder / "hdf5" / "session.nwb"
        hdf5.parent.mkdir()
        if generation == "zarr2":
            nwb, _ = make_file()
            with NWBHDF5IO(str(hdf5), "w") as io:
                io.write(nwb)
            archive(hdf5.parent, OUT / "hdf5.tar.xz")
            with NWBHDF5IO(str(hdf5), "r") as io:
                save("hdf5", *collect(io.read()))
        else:
            with tarfile.open(OUT / "hdf5.tar.xz") as tar:
                tar.extractall(hdf5.parent)
        with NWBHDF5IO(str(hdf5), "r") as source, NWBZarrIO(str(folder / "export.nwb.zarr"), "w") as io:
            io.export(src_io=source, write_args={"link_data": False})
        with NWBZarrIO(str(folder / "session.nwb.zarr"), "r") as io:
            save(generation, *collect(io.read()))
        shutil.rmtree(hdf5.parent)
        archive(folder, OUT / f"{generation}.tar.xz")


if __name__ == "__main__":
    sys.exit(main())
