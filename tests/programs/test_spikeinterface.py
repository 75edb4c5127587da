"""Recordings that SpikeInterface saved with WavPack and FLAC, through a mount: the traces are those that it reads itself.

SpikeInterface needs zarr-python 2, which the tests do not have, so `make_spikeinterface.py` kept what it read. Through a
mount in the layout `zarr2` it was seen to read all of them, equal to the stores.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from mounting import Mount, MountFunction
from paths import DATA

CODECS = {"wavpack": "wavpack", "lossy": "wavpack", "flac": "flac"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spikeinterface")
    shutil.unpack_archive(DATA / "spikeinterface.zip", folder)
    return folder


@pytest.fixture(scope="module")
def mounted(stores: Path, module_mount: MountFunction) -> Mount:
    return module_mount(stores, "--layout", "zarr2,zarr3,files")


@pytest.mark.parametrize("name", CODECS)
def test_p12_traces_are_those_that_spikeinterface_reads(stores: Path, mounted: Mount, name: str) -> None:
    own: Any = zarr.open_group(str(stores / f"{name}.zarr"), mode="r", use_consolidated=False)
    assert f'"id": "{CODECS[name]}"' in (stores / f"{name}.zarr/traces_seg0/.zarray").read_text()
    expected = np.load(stores / f"{name}.npz")
    assert len(expected) == 2
    for layout in ("zarr2", "zarr3"):
        shown: Any = zarr.open_group(str(mounted / layout / f"{name}.zarr"), mode="r", use_consolidated=False)
        assert dict(shown.attrs) == dict(own.attrs)
        assert shown["channel_ids"][...].tolist() == own["channel_ids"][...].tolist()
        for segment, traces in expected.items():
            assert shown[segment].dtype == traces.dtype
            assert np.array_equal(shown[segment][...], traces)
    for segment, traces in expected.items():
        assert np.array_equal(np.load(mounted / "files" / f"{name}.zarr/{segment}.npy"), traces)
