"""Write `spikeinterface.zip`: recordings that SpikeInterface saved in Zarr with each codec of audio, and what it reads.

    python3.11 -m venv spikeinterface
    spikeinterface/bin/pip install spikeinterface==0.105.3 flac-numcodecs==0.1.2 wavpack-numcodecs==0.3.0
    spikeinterface/bin/python tests/data/make_spikeinterface.py

`NAME.zarr` are the recordings, `NAME.npz` the traces of their segments as SpikeInterface reads them. Not for `fsbridge`'s
own code.
"""

import tempfile
import zipfile
from pathlib import Path

import numpy as np
import spikeinterface.core as si
from flac_numcodecs import Flac
from wavpack_numcodecs import WavPack

RESULT = Path(__file__).parent / "spikeinterface.zip"
HERE = Path(tempfile.mkdtemp())
CODECS = {"wavpack": WavPack(level=2), "lossy": WavPack(level=2, bps=3), "flac": Flac(level=5)}

walk = np.cumsum(np.random.default_rng(0).integers(-9, 9, (3000, 4)), 0).astype("int16")
recording = si.NumpyRecording([walk[:2000], walk[2000:]], sampling_frequency=30000.0)
for name, codec in CODECS.items():
    recording.save(format="zarr", folder=HERE / f"{name}.zarr", compressor=codec, chunk_size=750, n_jobs=1)
    again = si.read_zarr(HERE / f"{name}.zarr")
    traces = {f"traces_seg{i}": again.get_traces(segment_index=i) for i in range(again.get_num_segments())}
    np.savez_compressed(HERE / f"{name}.npz", **traces)
with zipfile.ZipFile(RESULT, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for path in sorted(HERE.rglob("*")):
        if path.is_file():
            archive.write(path, path.relative_to(HERE))
