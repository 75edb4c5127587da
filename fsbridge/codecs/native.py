"""The native libraries that decoders share, imported when first used. Not here: any guard; callers check sizes first.

Importing numcodecs costs as much as importing numpy, because it loads every codec and lists entry points. A mount that
shows only metadata never pays for it. numcodecs' registry is never used (P5).
"""

from __future__ import annotations

import ctypes
import logging
from contextlib import suppress
from functools import cache
from typing import Any, Literal

import numpy as np

from fsbridge.codecs import Buffer

log = logging.getLogger(__name__)

HEAPS, HEAP_BYTES = 2, 32 << 20
"""Number of heaps of glibc's malloc, and bytes that each keeps free at its end.

A buffer of more than half of these bytes is mapped by itself. The kept bytes count in no memory budget. With a heap of
64 MiB for each processor, strings of 30 MiB a chunk took 216 MiB on two processors, 270 on four and 590 on 64, where P6
promises 214.
"""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def blosc() -> Any:
    """Return `numcodecs.blosc`, switched to its contextual calls, because its global thread pool would serialise callers."""
    from numcodecs import blosc as module

    module.use_threads = False
    return module


def lz4() -> Any:
    """Return `numcodecs.lz4`."""
    from numcodecs import lz4 as module

    return module


def zstd() -> Any:
    """Return `numcodecs.zstd`."""
    from numcodecs import zstd as module

    return module


def jenkins() -> Any:
    """Return `numcodecs.jenkins.jenkins_lookup3`."""
    from numcodecs.jenkins import jenkins_lookup3

    return jenkins_lookup3


def inflate(container: Literal["gzip", "zlib"], data: Buffer, out: memoryview) -> bool:
    """Try to decode one stream with libdeflate.

    True if its checksum is right and it fills exactly `out` and nothing is left.

    If false, the content of `out` is undefined. Other threads run meanwhile.
    """
    library = _libdeflate()
    if library is None or not len(data):
        return False
    source, target, taken = np.frombuffer(data, np.uint8), np.frombuffer(out, np.uint8), ctypes.c_size_t()
    decompressor = library.libdeflate_alloc_decompressor()
    if decompressor is None:
        return False
    try:
        decode = library.libdeflate_gzip_decompress_ex if container == "gzip" else library.libdeflate_zlib_decompress_ex
        # The last argument would receive the number of decoded bytes. Without it any number but the target's is an error.
        failed = decode(
            decompressor, source.ctypes.data, source.nbytes, target.ctypes.data, target.nbytes, ctypes.byref(taken), None
        )
    finally:
        library.libdeflate_free_decompressor(decompressor)
    return not failed and taken.value == source.nbytes


@cache
def _libdeflate() -> Any:
    """Return the C library inside `deflate`, or None if a build hides it.

    The package's own functions make a new buffer for each call and do not tell where a stream ends.
    """
    import deflate

    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    try:
        library = ctypes.CDLL(deflate._deflate.__file__)
        library.libdeflate_alloc_decompressor.restype = pointer
        library.libdeflate_free_decompressor.argtypes = (pointer,)
        library.libdeflate_free_decompressor.restype = None
        for decode in (library.libdeflate_gzip_decompress_ex, library.libdeflate_zlib_decompress_ex):
            decode.argtypes = (pointer, pointer, size, pointer, size, pointer, pointer)
    except (AttributeError, OSError) as error:
        log.info("the package deflate hides its C library (%s): gzip and zlib take twice as long to decode", error)
        return None
    return library


def keep_freed_memory(library: object = None) -> None:
    """Tell glibc's malloc to keep what decoders free for their next call, up to one chunk of usual size.

    By default each large buffer goes back to the system at once, and touching a new one took as long as inflating into
    it. A few heaps serve all threads, so that one thread uses what another has freed. Without glibc nothing happens.
    `library`: the C library; None for that of this process.
    """
    mallopt = getattr(library or ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_MMAP_THRESHOLD, HEAP_BYTES // 2)
    mallopt(_M_TRIM_THRESHOLD, HEAP_BYTES)
    mallopt(_M_ARENA_MAX, HEAPS)


def give_freed_memory_back() -> None:
    """Return all kept memory, and whatever else is free between what is in use, to the system."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def warm_up() -> None:
    """Import everything that a first read may need. An idle worker thread calls this."""
    jenkins()
    blosc()
    lz4()
    zstd()
    _libdeflate()
