"""P8 and P9 for HDF5: damaged files, files that change or are being written. Not here: hanging children."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hdf5_children import asked, child_of, chunked, stopped, watched
from hdf5_model import array, decoded, opened, stored, values
from paths import DATA

from fsbridge.children import client, supervisor
from fsbridge.config import Config
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.file import HDF5File, HDF5Limits, Pools
from fsbridge.formats.hdf5.source import HDF5Group, HDF5Source, open_hdf5
from fsbridge.formats.hdf5.versions import FileVersion, LocalDataFile
from fsbridge.formats.shared import Shared
from fsbridge.model import Link
from fsbridge.store import Stat

MUTATIONS = 200
"""Damaged copies; 2,000 were run once per kind of file when this was written."""
NODES = 60
"""Nodes looked at in each damaged copy: cycles can make them endless."""


def write_small(path: Path, libver: str) -> None:
    """A little of everything: groups, links, attributes, chunk indexes of several kinds, strings, compounds, references."""
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["title"], file.attrs["matrix"] = "small", np.arange(6).reshape(2, 3)
        group = file.create_group("group")
        group.create_dataset("gzip", data=np.arange(60).reshape(6, 10), chunks=(4, 4), compression="gzip", shuffle=True)
        group.create_dataset("checked", data=np.arange(20.0), chunks=(7,), fletcher32=True, maxshape=(None,))
        group.create_dataset("text", data=["a", "bc"], dtype=h5py.string_dtype())
        file["plain"] = np.arange(10, dtype=">i2")
        file["struct"] = np.zeros(3, [("a", "<i4"), ("b", "S3")])
        file.create_dataset("refs", (2,), h5py.ref_dtype)[0] = group.ref
        file["soft"], file["external"] = h5py.SoftLink("/group/gzip"), h5py.ExternalLink("no.h5", "/x")
        file.create_dataset("grown", (5, 5), "<f4", maxshape=(None, None), chunks=(2, 2))[:3] = 1


def everything_or_errors(group: Any, budget: Iterator[int], depth: int = 0) -> Iterator[FsbridgeError | None]:
    """Read everything that can be read. Only our own errors may occur."""
    try:
        group.attributes()
        children = list(itertools.islice(group.children(), NODES))
    except FsbridgeError as error:
        yield error
        return
    for child in children:
        if next(budget, None) is None:
            return
        try:
            node = group.child(child.name)
            if isinstance(node, HDF5Array):
                for index in itertools.islice(stored(node), 20):
                    if (node.metadata.chunk_bytes(index) or 0) <= 1 << 24:
                        decoded(node, index)
            yield None
        except FsbridgeError as error:
            yield error
        else:
            if isinstance(node, HDF5Group) and depth < 4:
                yield from everything_or_errors(node, budget, depth + 1)
            assert isinstance(node, HDF5Group | HDF5Array | Link)


def mutate(raw: bytes, rng: random.Random) -> bytes:
    """One of the usual kinds of damage: flipped bits, overwritten runs, extreme values, truncation, moved blocks."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(min(len(data), 2000))
        kind = rng.randrange(5)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place : place + 4] = rng.randbytes(4)
        elif kind == 2:
            data[place : place + 8] = rng.choice((b"\xff", b"\0", b"\x7f")) * 8
        elif kind == 3:
            other = rng.randrange(len(data))
            data[place : place + 16] = data[other : other + 16]
        else:
            del data[rng.randrange(len(data) // 2, len(data)) :]
    return bytes(data)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_p8_mutated_files_are_read_or_refused(tmp_path: Path, libver: str) -> None:
    """P8: whatever the bytes, every answer is data or one of our errors, and the daemon then reads a good file."""
    good, path = tmp_path / "good.h5", tmp_path / "mutated.h5"
    write_small(good, libver)
    raw = good.read_bytes()
    rng = random.Random(1)
    outcomes: list[FsbridgeError | None] = []
    path.write_bytes(raw)
    data_file = HDF5File(LocalDataFile(str(path)), Config(str(path), "/nowhere", read_deadline=10.0))
    for number in range(MUTATIONS // 2):
        path.write_bytes(mutate(raw, rng))
        os.utime(path, ns=(number, number))
        outcomes += everything_or_errors(HDF5Group(data_file, ()), iter(range(NODES)))
    path.write_bytes(raw)
    found = list(everything_or_errors(HDF5Group(data_file, ()), iter(range(NODES))))
    data_file.close()
    assert [type(outcome).__name__ for outcome in found if outcome is not None] == ["AccessDenied"]  # the external link
    assert len(found) == 10
    assert 0 < sum(outcome is None for outcome in outcomes) < len(outcomes)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_p8_truncated_files_are_refused_and_never_give_other_data(tmp_path: Path, libver: str) -> None:
    """P8: cut at 40 places, it gives an error when opened or when the missing part is needed, and never other data."""
    good, path = tmp_path / "good.h5", tmp_path / "cut.h5"
    write_small(good, libver)
    raw = good.read_bytes()
    with opened(good) as source:
        expected = values(array(source, "group/gzip")).tolist()
    path.write_bytes(raw)
    data_file = HDF5File(LocalDataFile(str(path)), Config(str(path), "/nowhere"))
    complete = 0
    for length in range(0, len(raw), len(raw) // 40):
        path.write_bytes(raw[:length])
        os.utime(path, ns=(length, length))
        try:
            found = HDF5Group(data_file, ("group",)).child("gzip")
            assert isinstance(found, HDF5Array)
            assert values(found).tolist() == expected
            complete += 1
        except (CorruptData, NotFound):
            continue
    data_file.close()
    assert complete < 40


def test_killed_child_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If a child is killed while it answers, the question goes to another one. Chunk bytes need no child."""
    with opened(chunked(tmp_path / "x.h5")) as source:
        found = array(source, "x")
        info = found.chunks.find((1,))
        child = stopped(child_of(source))
        outcomes: list[Any] = []
        thread = asked(source, child, outcomes)
        os.kill(child.pid, signal.SIGKILL)
        thread.join()
        assert outcomes == [{"attributes": {}}]
        assert child_of(source).pid != child.pid
        os.kill(child_of(source).pid, signal.SIGKILL)
        out = memoryview(bytearray(80))
        found.chunks.read_into((1,), info, out)
        assert np.frombuffer(out, "<i8").tolist() == list(range(10, 20))
        assert source.root.attributes() == {}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_p8_what_ends_children_is_avoided_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P8: a question that ends two children is one line in the log and an error at once for a minute. Others continue."""
    chunked(tmp_path / "x.h5", rows=4000)
    pids, deadly = [], {"table"}

    def die(child: client.ChildProcess, question: dict[str, Any]) -> None:
        if question.get("op") in deadly:
            pids.append(child.pid)
            os.kill(child.pid, signal.SIGSEGV)

    with opened(tmp_path / "x.h5", watched(during=die)) as source:
        for _ in range(5):
            with pytest.raises(CorruptData, match="table x: the child process ended"):
                array(source, "x").chunks.count()
            assert source.root.attributes() == {}
            assert [child.name for child in source.root.children()] == ["x"]
        assert len(set(pids)) == 2
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) == 1
        deadly.clear()
        with pytest.raises(CorruptData):
            array(source, "x").chunks.count()
        source.file.supervisor.forgive()
        assert array(source, "x").chunks.count() == 400


def test_p8_a_chunk_that_ends_children_is_avoided_and_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P8: all chunks of its dataset were errors for a minute. If many chunks of a dataset end children, all are avoided."""
    with h5py.File(tmp_path / "x.h5", "w") as made:
        for name in ("texts", "others", "text"):
            made.create_dataset(name, data=[str(i) for i in range(20)], chunks=(1,), dtype=h5py.string_dtype())
    deadly, pids = {3}, []

    def die(child: client.ChildProcess, question: dict[str, Any]) -> None:
        if question.get("op") == "read" and question["path"] != ["others"] and question["start"][0] in deadly:
            pids.append(child.pid)
            os.kill(child.pid, signal.SIGSEGV)

    with opened(tmp_path / "x.h5", watched(during=die)) as source:

        def read(name: str, number: int) -> bytes:
            chunks = array(source, name).chunks
            return bytes(chunks.read_all((number,), chunks.find((number,)), 100))[8:]

        for number in range(20):
            if number == 3:
                with pytest.raises(CorruptData, match=r"read texts at \[3\]: the child process ended"):
                    read("texts", number)
            else:
                assert read("texts", number) == b"%d" % number
        assert len(set(pids)) == 2
        with pytest.raises(CorruptData):
            read("texts", 3)
        deadly.update(range(10))
        for _ in range(2):
            for number in range(20):
                assert read("others", number) == b"%d" % number
                with contextlib.suppress(CorruptData):
                    assert read("texts", number) == b"%d" % number
                    assert number >= 10
        assert len(set(pids)) == 2 * (supervisor.AVOIDED_PARTS + 1)
        with pytest.raises(CorruptData, match="asked again"):
            read("texts", 15)
        with pytest.raises(CorruptData):
            read("text", 3)
        assert read("text", 15) == b"15", "another one's name begins like its own"


def test_a_changed_file_is_asked_again(tmp_path: Path) -> None:
    """A question that ended children is asked again at once for the next version of the file."""
    path, deadly = chunked(tmp_path / "x.h5"), {"attributes"}

    def die(child: client.ChildProcess, question: dict[str, Any]) -> None:
        if question.get("op") in deadly:
            os.kill(child.pid, signal.SIGSEGV)

    with opened(path, watched(during=die)) as source:
        for _ in range(2):
            with pytest.raises(CorruptData, match="SIGSEGV"):
                source.file.ask({"op": "attributes", "path": []})
            deadly.clear()
        os.utime(path, ns=(5, 5))
        assert source.file.ask({"op": "attributes", "path": []})[0] == {"attributes": {}}


def test_p7_an_endless_loop_in_hdf5_is_answered_and_ends_its_child(caplog: pytest.LogCaptureFixture) -> None:
    """One byte of `endless.h5` is damaged, so that HDF5 2.0 reads one attribute for ever. Everything else is shown.

    What ended a child is not asked again for a minute, and each such question leaves less time for the next one.
    """
    shared = Shared(Pools(HDF5Limits(computing_seconds=2.0)))
    with opened(DATA / "hdf5/endless.h5", shared) as source, h5py.File(DATA / "hdf5/endless.h5") as whole:
        assert [child.name for child in source.root.children()] == list(whole)
        group = source.root.child("g")
        assert isinstance(group, HDF5Group)
        assert "cannot be read" in str(group.attributes()["text"])
        ended = [record for record in caplog.records if "computed for too long" in record.getMessage()]
        assert len(ended) == 4, "the texts of a page, all attributes of a page, those of the group, this one"
        for _ in range(5):
            assert "cannot be read" in str(group.attributes()["text"])
            assert [child.name for child in group.children()] == list(whole["g"])
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == len(ended)
        for name in ("contiguous", "g/chunked"):
            np.testing.assert_array_equal(values(array(source, name)), whole[name][...])


def test_p9_a_changed_file_is_stale_and_the_new_one_is_read(tmp_path: Path) -> None:
    """P9: after a rewrite or a replacement the old view is stale and the new one right. One child serves both in place."""
    path = chunked(tmp_path / "x.h5")
    with opened(path) as source:
        for number, replace in enumerate((False, True, False), 1):
            old = array(source, "x")
            info = old.chunks.find((0,))
            pid = source.file.supervisor.child.pid if source.file.supervisor.child else None
            if replace:
                chunked(tmp_path / "new.h5", start=1000 * number)
                os.replace(tmp_path / "new.h5", path)
            else:
                shutil.copyfile(chunked(tmp_path / "new.h5", start=1000 * number), path)
            os.utime(path, ns=(number, number))
            assert not old.current()
            with pytest.raises(Stale):
                old.chunks.read_into((0,), info, memoryview(bytearray(80)))
            with pytest.raises(Stale):
                old.chunks.find((0,))
            new = array(source, "x")
            assert new.version != old.version
            assert values(new)[0] == 1000 * number
            assert (child_of(source).pid == pid) is not replace
        path.unlink()
        with pytest.raises(Stale, match="no longer there"):
            source.root.attributes()


def test_p9_writing_between_reads_is_stale(tmp_path: Path) -> None:
    """P9: bytes that may have changed during the read are not returned."""
    path = chunked(tmp_path / "x.h5")
    with opened(path) as source:
        descriptor = source.file.current()
        assert len(descriptor.read(0, 8)) == 8
        os.utime(path, ns=(5, 5))
        with pytest.raises(Stale):
            descriptor.read(0, 8)
        with pytest.raises(CorruptData, match="truncated"):
            source.file.current().read(path.stat().st_size - 4, 8)


def test_files_of_writers_at_work_or_crashed_are_read(tmp_path: Path) -> None:
    """A file that is being written is shown as it grows; one that a crashed writer left open can be read."""
    path = tmp_path / "swmr.h5"
    script = """
        import os, sys, h5py, numpy as np
        file = h5py.File(sys.argv[1], "w", libver="latest")
        dataset = file.create_dataset("x", (0,), "<i8", maxshape=(None,), chunks=(10,), compression="gzip")
        file.swmr_mode = True
        for line in sys.stdin:
            dataset.resize((len(dataset) + 10,))
            dataset[-10:] = np.arange(10) + int(line)
            dataset.flush()
            print("written", flush=True)
        os._exit(1)
    """
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer:
        questions, replies = writer.stdin, writer.stdout
        assert questions is not None
        assert replies is not None

        def write(number: int) -> None:
            questions.write(f"{number}\n")
            questions.flush()
            assert replies.readline() == "written\n"

        write(0)
        with opened(path) as source:
            for number in range(1, 4):
                assert values(array(source, "x")).tolist() == [10 * (i // 10) + i % 10 for i in range(10 * number)]
                write(10 * number)
        questions.close()
    with pytest.raises(OSError, match="already open"):
        h5py.File(path, "r", locking=False)
    with opened(path) as source:
        assert values(array(source, "x")).tolist() == list(range(40))


def test_p8_damage_in_a_file_of_a_crashed_writer_stays_local(tmp_path: Path) -> None:
    """P8: HDF5 reads such a file as a SWMR reader, which waits for wrong metadata to become right.

    The wait must be short.
    """
    path = tmp_path / "crashed.h5"
    script = """
        import os, sys, h5py
        file = h5py.File(sys.argv[1], "w", libver="latest")
        for name in ("damaged", "whole"):
            file.create_dataset(name, data=range(20), maxshape=(None,), chunks=(10,))
        file.swmr_mode = True
        print(h5py.h5o.get_info(file["damaged"].id).addr, flush=True)
        file.flush()
        os._exit(1)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], stdout=subprocess.PIPE, text=True, check=False
    )
    raw = bytearray(path.read_bytes())
    raw[int(done.stdout) + 30] ^= 1
    path.write_bytes(raw)
    with opened(path) as source:
        pid = child_of(source).pid
        assert [child.name for child in source.root.children()] == ["damaged", "whole"]
        with pytest.raises(CorruptData, match="checksum"):
            source.root.child("damaged")
        assert values(array(source, "whole")).tolist() == list(range(20))
        assert child_of(source).pid == pid


def test_p9_a_file_rewritten_within_a_tick_of_the_clock_is_read_again(tmp_path: Path) -> None:
    """On a file system with whole seconds the version stays the same, so what was read within the second is not kept."""
    path, ticking = tmp_path / "x.h5", True

    def coarse(stat: Stat) -> Stat:
        return stat._replace(version=("one",), settled=not ticking, mtime_ns=10**9)

    class CoarseVersion(FileVersion):
        unchanged = True

    class CoarseFile(LocalDataFile):
        def look(self) -> Stat:
            return coarse(super().look())

        def open(self, seen: Stat) -> FileVersion:
            version = CoarseVersion(self.name)
            version.stat = coarse(version.stat)
            return version

    def write(value: int) -> None:
        with h5py.File(path, "a") as out:
            out.attrs["v"] = value
            out.require_dataset("x", (30,), "i8", chunks=(10,))[...] = value
            out["x"].attrs["v"] = value
            out.require_dataset("t", (1,), h5py.string_dtype())[...] = str(value)

    def look(source: HDF5Source) -> tuple[Any, ...]:
        found = array(source, "x")
        return (
            source.root.attributes()["v"],
            found.metadata.attributes["v"],
            *set(values(found)),
            *values(array(source, "t")),
        )

    write(1)
    with contextlib.closing(open_hdf5(CoarseFile(str(path)), Config(str(path), "/nowhere"))) as source:
        held = array(source, "x")
        assert look(source) == (1, 1, 1, "1")
        write(2)
        assert look(source) == (2, 2, 2, "2")
        write(3)
        ticking = False
        assert look(source) == (3, 3, 3, "3")
        assert look(source) == (3, 3, 3, "3")
        assert held is not array(source, "x")


def test_parallel_readers_get_the_right_elements(tmp_path: Path) -> None:
    """Sixteen threads read one file, through table and child alike."""
    path = tmp_path / "x.h5"
    data = np.arange(4000).reshape(40, 100)
    with h5py.File(path, "w") as out:
        out.create_dataset("x", data=data, chunks=(3, 30), compression="gzip")
        out.create_dataset("words", data=[str(i) for i in range(100)], chunks=(9,))
    failures: list[object] = []
    with opened(path) as source:

        def read() -> None:
            try:
                np.testing.assert_array_equal(values(array(source, "x")), data)
                assert values(array(source, "words")).tolist() == [str(i) for i in range(100)]
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=read) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
