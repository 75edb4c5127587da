"""Functions of the HDF5 library that h5py is linked with, and that h5py lacks or offers for numpy's types only.

For child processes. Each use declares a function's arguments. Imports no h5py: its caller has done that.
"""

from __future__ import annotations

import ctypes
from typing import Any

ID, MEMORY, SIZE, TEXT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
"""`hid_t`, a pointer to elements, `size_t`, a zero-terminated text."""

DEFAULT = 0
"""H5P_DEFAULT, as a number."""


def find_function(module: Any, name: str, *arguments: Any, result: Any = ctypes.c_int) -> Any:
    """Return the function `name` of the HDF5 that a module of h5py is linked with. Raises AttributeError if it has none."""
    c_function = getattr(ctypes.CDLL(module.__file__), name)
    c_function.argtypes, c_function.restype = arguments, result
    return c_function
