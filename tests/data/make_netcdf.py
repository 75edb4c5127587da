"""Writes netcdf.nc, a netCDF-4 file of the netCDF library itself: `pip install netCDF4` in an environment of its own.

python tests/data/make_netcdf.py tests/data/netcdf.nc
"""

import sys

import netCDF4
import numpy as np

with netCDF4.Dataset(sys.argv[1], "w") as file:
    file.title = "sample"
    for name, size in (("time", None), ("lat", 20), ("station", 3), ("length", 4)):
        file.createDimension(name, size)
    file.createVariable("time", "f8", ("time",), chunksizes=(5,))[:] = np.arange(9)
    file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-90, 90, 20)
    temperature = file.createVariable(
        "temperature", "f4", ("time", "lat"), zlib=True, shuffle=True, chunksizes=(4, 7), fill_value=-999.0
    )
    temperature.units = "K"
    temperature[:] = np.arange(180).reshape(9, 20)
    counts = file.createVariable("counts", ">i2", ("time", "station"), fletcher32=True, endian="big", chunksizes=(4, 3))
    counts[:] = np.arange(27).reshape(9, 3)
    names = file.createVariable("names", str, ("station",))
    for i, name in enumerate(("a", "bb", "ü")):
        names[i] = name
    codes = file.createVariable("codes", "S1", ("station", "length"))
    codes[:] = np.array([list("ab  "), list("c   "), list("defg")], "S1")
    file.createVariable("scalar", "i4", ())[...] = 5
    file.createGroup("inner").createVariable("flags", "u1", ("lat",))[:] = np.arange(20)
