"""The native libraries behind the decoders, imported when first used. Not here: any guard; callers check sizes first.

Importing numcodecs costs as much as importing numpy (it loads every codec and lists entry points), so a mount that shows
only metadata never pays for it. Nothing of numcodecs' registry is used (P5).
"""

from __future__ import annotations

import ctypes
import logging
from contextlib import suppress
from functools import cache
from typing import Any, Literal

import numpy as np

from fsbridge.codecs.chain import Buffer
from fsbridge.errors import Unsupported

log = logging.getLogger(__name__)

EXTRA = "pip install 'fsbridge-fuse[codecs]'"

HEAPS, HEAP_BYTES = 2, 32 << 20
"""Heaps of glibc's malloc, and bytes that each keeps free at its end; a buffer above half of that is mapped for itself.

What is kept is in nobody's budget: with a heap of 64 MiB per processor, strings of 30 MiB a chunk took 270 MiB on four
processors, 590 on 64, and 216 on two, where 214 are promised (P6).
"""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


@cache
def blosc() -> Any:
    """`numcodecs.blosc`, switched to its contextual calls: its global thread pool would serialise callers."""
    from numcodecs import blosc as module

    module.use_threads = False
    return module


@cache
def lz4() -> Any:
    """`numcodecs.lz4`."""
    from numcodecs import lz4 as module

    return module


@cache
def zstd() -> Any:
    """`numcodecs.zstd`."""
    from numcodecs import zstd as module

    return module


@cache
def jenkins() -> Any:
    """`numcodecs.jenkins.jenkins_lookup3`."""
    from numcodecs.jenkins import jenkins_lookup3

    return jenkins_lookup3


@cache
def pcodec() -> Any:
    """`pcodec.standalone`; Unsupported, with the command that helps, where it is not installed."""
    try:
        from pcodec import standalone as module
    except ImportError:
        raise Unsupported(f"codec 'pcodec' needs a library that is not installed: {EXTRA}") from None
    return module


@cache
def zfpy() -> Any:
    """`zfpy`; Unsupported as `pcodec`."""
    try:
        import zfpy as module
    except ImportError:
        raise Unsupported(f"codec 'zfpy' needs a library that is not installed: {EXTRA}") from None
    return module


@cache
def lzo() -> Any:
    """`lzallright`; Unsupported as `pcodec`."""
    try:
        import lzallright as module
    except ImportError:
        raise Unsupported(f"LZO needs a library that is not installed: {EXTRA}") from None
    return module


def inflate(container: Literal["gzip", "zlib"], data: Buffer, out: memoryview) -> bool:
    """Whether `data` is one stream, its checksum right, of exactly as many decoded bytes as `out` has, and nothing else.

    Then they are in `out`, else anything is. Other threads go on meanwhile.
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
        # The last argument would take the number of decoded bytes; without it, any but the target's is an error.
        failed = decode(
            decompressor, source.ctypes.data, source.nbytes, target.ctypes.data, target.nbytes, ctypes.byref(taken), None
        )
    finally:
        library.libdeflate_free_decompressor(decompressor)
    return not failed and taken.value == source.nbytes


@cache
def _libdeflate() -> Any:
    """The C library inside of `deflate`, whose own functions make a new buffer each and do not tell where a stream ends.

    None where a build hides it.
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


def keep_freed_memory() -> None:
    """Tell glibc's malloc to keep what decoders free for their next call, as far as one chunk of usual size goes.

    By default each large buffer goes back to the system at once, and touching it afresh took as long as inflating into it.
    A few heaps for however many threads: what one thread has freed serves another one, where each heap of its own would be
    touched afresh and kept. Elsewhere than on glibc nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_M_MMAP_THRESHOLD, HEAP_BYTES // 2)
    mallopt(_M_TRIM_THRESHOLD, HEAP_BYTES)
    mallopt(_M_ARENA_MAX, HEAPS)


def give_freed_memory_back() -> None:
    """Give all that is kept, and whatever else is free between what is in use, back to the system."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def warm_up() -> None:
    """Import everything a first read may need; for a worker thread with nothing else to do."""
    blosc()
    lz4()
    zstd()
    _libdeflate()
