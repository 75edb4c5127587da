"""Chunks beside the cache: each comes back as it went, slots are used again, and none counts as our memory."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from fsbridge.errors import TooLarge
from fsbridge.layouts.files.elements.spill import Spill, SpillFile

SLOT = 100_000


def content(number: int) -> bytes:
    return bytes([number]) * SLOT


def found(file: SpillFile, key: int) -> bytes | None:
    with file.using(key, SLOT) as view:
        return None if view is None else bytes(view)


def test_chunks_come_back_as_they_went_and_the_oldest_makes_room(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path), 4 * 102_400)
    file = SpillFile(spill, SLOT)
    for number in range(4):
        file.put(number, memoryview(content(number)))
    assert [found(file, number) for number in range(4)] == [content(number) for number in range(4)]
    with file.using(0, SLOT) as view:
        assert view is not None
        file.put(4, memoryview(content(4)))
        file.put(5, memoryview(content(5)))
        assert bytes(view) == content(0), "what is looked at stays"
    assert found(file, 1) is found(file, 2) is None
    assert found(file, 4) == content(4)
    file.close()
    assert spill.free == spill.limit
    assert found(file, 4) is None


@pytest.mark.parametrize("failing", ["claiming", "counting", "looking"])
def test_p12_no_two_chunks_have_one_slot_where_memory_was_short(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scarce(list[int]):
        """Grows by the first of what comes, and no further."""

        def __iadd__(self, more: Any) -> Any:
            self.append(more[0])
            raise MemoryError

        def __iter__(self) -> Any:
            raise MemoryError

    def fail(*_given: object) -> None:
        raise MemoryError

    spill, descriptors = Spill(str(tmp_path), 1 << 30), len(os.listdir("/proc/self/fd"))
    file = SpillFile(spill, SLOT)
    with monkeypatch.context() as scarce:
        if failing == "claiming":
            scarce.setattr(os, "posix_fallocate", fail)
        elif failing == "counting":
            file._free = Scarce()
        else:
            scarce.setattr(SpillFile, "_grow", fail)
        with pytest.raises(MemoryError):
            file.put(0, memoryview(content(0)))
    if failing == "counting":
        file._free = list(range(len(file._free)))
    for number in range(4):
        file.put(number, memoryview(content(number)))
    assert [found(file, number) for number in range(4)] == [content(number) for number in range(4)]
    file.close()
    assert (spill.free, len(os.listdir("/proc/self/fd"))) == (spill.limit, descriptors)


def test_spilt_chunks_that_are_not_read_again_leave_their_slots(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path), 1 << 30)
    file = SpillFile(spill, SLOT)
    for number in range(100):
        file.put(number, memoryview(content(number)))
        file.passed(number)
        file.passed(number + 1000)
    assert spill.limit - spill.free == 102_400, "one slot was enough"
    with file.using(99, SLOT) as view:
        assert view is None
    file.close()


def test_p6_spilt_chunks_are_mapped_only_while_they_are_read(tmp_path: Path) -> None:
    file = SpillFile(Spill(str(tmp_path), 1 << 30), SLOT)
    device = os.stat(tmp_path).st_dev
    mark = f"{os.major(device):02x}:{os.minor(device):02x} {os.fstat(file._file).st_ino} "

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(mark)

    for number in range(20):
        file.put(number, memoryview(content(number)))
        assert found(file, number) == content(number)
        assert mapped() == 0
    with file.using(3, SLOT):
        assert mapped() == 1
    file.close()


def test_a_disk_that_fails_costs_a_decoding_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SpillFile(Spill(str(tmp_path), 1 << 30), SLOT)

    def broken(*_arguments: object) -> int:
        raise OSError(5, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", broken)
        file.put(1, memoryview(content(1)))
    assert found(file, 1) is None
    file.put(1, memoryview(content(2)))
    assert found(file, 1) == content(2)
    file.close()


def test_without_a_descriptor_a_chunk_is_not_kept_and_its_slot_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    file = SpillFile(Spill(str(tmp_path), 102_400), SLOT)
    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", none_left)
        file.put(0, memoryview(content(0)))
    assert found(file, 0) is None
    file.put(1, memoryview(content(1)))
    assert found(file, 1) == content(1)
    file.close()


def test_without_room_for_what_is_reserved_opening_says_what_is_missing(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path), 102_400)
    with pytest.raises(TooLarge, match=r"1024000 bytes .*--spill-size has 102400 bytes left: --spill-size 1M permits it"):
        SpillFile(spill, SLOT, 10)
    spill.take(100_000)
    with pytest.raises(TooLarge, match="has 2400 bytes left: --spill-size 2M permits it"):
        SpillFile(spill, SLOT, 10)


def test_a_disk_without_room_is_not_blamed_on_the_size_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TooLarge, match=rf"{tmp_path} has no room for them \(.*\): name another --spill-dir$"):
        SpillFile(Spill(str(tmp_path), 10_240_000), SLOT, 10)


def test_room_that_is_being_given_back_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that closes one file and opens the next must not be refused."""
    closing, goes_on, really = threading.Event(), threading.Event(), os.close
    spill = Spill(str(tmp_path), 102_400)
    file = SpillFile(spill, SLOT, 1)
    number = file._file

    def slow(fd: int) -> None:
        if fd == number:
            closing.set()
            assert goes_on.wait(60)
        really(fd)

    monkeypatch.setattr(os, "close", slow)
    file.leave()
    assert closing.wait(60)
    threading.Timer(0.1, goes_on.set).start()
    SpillFile(spill, SLOT, 1).close()
    assert spill.free == spill.limit
