"""Chunks beside the cache: each comes back as it went, slots are used again, and none counts as our memory."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from descriptors import list_descriptors

from fsbridge.errors import TooLarge
from fsbridge.layouts.files.elements.spill import Spill, SpillFile

SLOT = 100_000


def make_content(number: int) -> bytes:
    return bytes([number]) * SLOT


def read_chunk(file: SpillFile, key: int) -> bytes | None:
    with file.using(key, SLOT) as view:
        return None if view is None else bytes(view)


def test_chunks_come_back_as_they_went_and_the_oldest_makes_room(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path), 4 * 102_400)
    file = SpillFile(spill, SLOT)
    for number in range(4):
        file.put(number, memoryview(make_content(number)))
    assert [read_chunk(file, number) for number in range(4)] == [make_content(number) for number in range(4)]
    with file.using(0, SLOT) as view:
        assert view is not None
        file.put(4, memoryview(make_content(4)))
        file.put(5, memoryview(make_content(5)))
        assert bytes(view) == make_content(0), "what is looked at stays"
    assert read_chunk(file, 1) is read_chunk(file, 2) is None
    assert read_chunk(file, 4) == make_content(4)
    file.close()
    assert spill.free == spill.limit
    assert read_chunk(file, 4) is None


@pytest.mark.parametrize("failing", ["claiming", "counting", "looking"])
def test_p12_no_two_chunks_have_one_slot_where_memory_was_short(failing: str, tmp_path: Path) -> None:
    lacking = {failing}

    class Scarce(list[int]):
        """Grows by the first of what comes, and no further."""

        def extend(self, more: Iterable[int]) -> None:
            self.append(next(iter(more)))
            raise MemoryError

        def __iter__(self) -> Iterator[int]:
            raise MemoryError

    class ScarceFile(SpillFile):
        def _grow(self, slots: int) -> bool:
            if "looking" in lacking:
                raise MemoryError
            return super()._grow(slots)

    def allocate(file: int, start: int, length: int) -> None:
        if "claiming" in lacking:
            raise MemoryError
        os.posix_fallocate(file, start, length)

    spill = Spill(str(tmp_path), 1 << 30, allocate)
    file = ScarceFile(spill, SLOT)
    if failing == "counting":
        file._free = Scarce()
    with pytest.raises(MemoryError):
        file.put(0, memoryview(make_content(0)))
    lacking.clear()
    if failing == "counting":
        file._free = list(range(len(file._free)))
    for number in range(4):
        file.put(number, memoryview(make_content(number)))
    assert [read_chunk(file, number) for number in range(4)] == [make_content(number) for number in range(4)]
    file.close()
    assert (spill.free, list_descriptors(tmp_path)) == (spill.limit, [])


def test_spilt_chunks_that_are_not_read_again_leave_their_slots(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path), 1 << 30)
    file = SpillFile(spill, SLOT)
    for number in range(100):
        file.put(number, memoryview(make_content(number)))
        file.forget(number)
        file.forget(number + 1000)
    assert spill.limit - spill.free == 102_400, "one slot was enough"
    with file.using(99, SLOT) as view:
        assert view is None
    file.close()


def test_p6_spilt_chunks_are_mapped_only_while_they_are_read(tmp_path: Path) -> None:
    file = SpillFile(Spill(str(tmp_path), 1 << 30), SLOT)
    device = os.stat(tmp_path).st_dev
    mark = f"{os.major(device):02x}:{os.minor(device):02x} {os.fstat(file._file).st_ino} "

    def count_mapped() -> int:
        return Path("/proc/self/maps").read_text().count(mark)

    for number in range(20):
        file.put(number, memoryview(make_content(number)))
        assert read_chunk(file, number) == make_content(number)
        assert count_mapped() == 0
    with file.using(3, SLOT):
        assert count_mapped() == 1
    file.close()


@contextmanager
def limit_resource(kind: int, most: int) -> Iterator[None]:
    """Limit a resource of this process (setrlimit(2))."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


@pytest.mark.parametrize("room", [0, SLOT // 2])
def test_a_disk_that_fails_costs_a_decoding_only(room: int, tmp_path: Path) -> None:
    """At the first byte that is written, or after some."""
    file = SpillFile(Spill(str(tmp_path), 102_400), SLOT, 1)
    with limit_resource(resource.RLIMIT_FSIZE, room):
        file.put(1, memoryview(make_content(1)))
    assert read_chunk(file, 1) is None
    file.put(1, memoryview(make_content(2)))
    assert read_chunk(file, 1) == make_content(2)
    file.close()


def test_without_a_descriptor_a_chunk_is_not_kept_and_its_slot_not_lost(tmp_path: Path) -> None:
    file = SpillFile(Spill(str(tmp_path), 102_400), SLOT)
    with limit_resource(resource.RLIMIT_NOFILE, 0):
        file.put(0, memoryview(make_content(0)))
    assert read_chunk(file, 0) is None
    file.put(1, memoryview(make_content(1)))
    assert read_chunk(file, 1) == make_content(1)
    file.close()


def test_without_room_for_what_is_reserved_opening_says_what_is_missing(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path), 102_400)
    with pytest.raises(TooLarge, match=r"1024000 bytes .*--spill-size has 102400 bytes left: --spill-size 1M permits it"):
        SpillFile(spill, SLOT, 10)
    spill.take(100_000)
    with pytest.raises(TooLarge, match="has 2400 bytes left: --spill-size 2M permits it"):
        SpillFile(spill, SLOT, 10)


def test_a_disk_without_room_is_not_blamed_on_the_size_that_is_allowed(tmp_path: Path) -> None:
    def allocate(file: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(TooLarge, match=rf"{tmp_path} has no room for them \(.*\): name another --spill-dir$"):
        SpillFile(Spill(str(tmp_path), 10_240_000, allocate), SLOT, 10)


def test_room_that_is_being_given_back_is_waited_for(tmp_path: Path) -> None:
    """A reader that closes one file and opens the next must not be refused."""
    spill = Spill(str(tmp_path), 102_400)
    file = SpillFile(spill, SLOT, 1)
    file._lock.acquire()  # so that closing it takes a while
    file.close_later()
    threading.Timer(0.1, file._lock.release).start()
    SpillFile(spill, SLOT, 1).close()
    assert spill.free == spill.limit
