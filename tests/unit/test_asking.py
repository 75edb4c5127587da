"""What the event loop asks of a local store itself; how old answers may be; which thread waits for a key's lock."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asked import at_once
from waiting import Clock, until

from fsbridge import asking
from fsbridge.asking import Locks, SlowListing, WouldWait, anew, as_listed, as_of, carried, context, from_now, oldest, used
from fsbridge.config import AT_ONCE_BYTES, Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, NotFound, Stale
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.model import Source
from fsbridge.store import ROOT, Key
from fsbridge.store.local import LocalStore
from fsbridge.threads.parallel import each


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStore]:
    """A store with all names and bytes in the kernel's memory."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/chunk").write_bytes(b"chunk")
    os.utime(tmp_path / "d/chunk", ns=(10**18, 10**18))  # what is written to it from now on has another time
    Clock(monkeypatch).settles()  # its stat stays as it is
    opened = LocalStore(str(tmp_path))
    opened.read(Key("d/chunk"), 10)
    yield opened
    opened.close()


def would_wait(ask: Callable[[], Any]) -> bool:
    """Tell if a question is left to a caller that may wait."""
    try:
        with asking.without_waiting():
            ask()
    except WouldWait:
        return True
    return False


def test_what_is_in_memory_is_answered(store: LocalStore) -> None:
    wanted = store.read(Key("d/chunk"), 10), store.stat(Key("d/chunk")), store.read_range(Key("d/chunk"), 1, 2)
    with asking.without_waiting():
        assert (store.read(Key("d/chunk"), 10), store.stat(Key("d/chunk")), store.read_range(Key("d/chunk"), 1, 2)) == wanted


def test_a_known_absence_is_an_answer(store: LocalStore) -> None:
    with pytest.raises(NotFound):
        store.stat(Key("d/nothing"))
    with asking.without_waiting(), pytest.raises(NotFound):
        store.stat(Key("d/nothing"))


def test_p3_a_link_to_nothing_is_never_absent(tmp_path: Path, store: LocalStore) -> None:
    """The content of a chunk was never fetched (git-annex): the kernel says ENOENT of its target, not of the chunk."""
    (tmp_path / "d/annexed").symlink_to("nowhere")
    for _ in range(2):
        with pytest.raises(CorruptData):
            store.stat(Key("d/annexed"))
        assert would_wait(lambda: store.stat(Key("d/annexed")))


def test_p9_a_file_opened_at_once_that_changes_while_it_is_read_is_stale(store: LocalStore, tmp_path: Path) -> None:
    with asking.without_waiting():
        found = store.open_object(Key("d/chunk"))
    assert found.stat == store.stat(Key("d/chunk"))
    assert found.read(10) == b"chunk"
    with open(tmp_path / "d/chunk", "r+b") as file:
        file.write(b"CHUNK!")
    with pytest.raises(Stale):
        found.read(10)
    found.close()


def test_listings_and_large_objects_are_left_to_a_worker(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "d/large").write_bytes(bytes(AT_ONCE_BYTES + 1))
    assert store.stat(Key("d/large")).size == AT_ONCE_BYTES + 1
    assert would_wait(lambda: store.read(Key("d/large"), 1 << 20))
    assert would_wait(lambda: list(store.list(ROOT)))
    assert would_wait(lambda: list(store.names(Key("d"))))
    assert would_wait(lambda: store.mtimes(Key("d"), ["chunk"]))


def test_a_file_system_that_is_not_known_to_be_local_is_left_to_a_worker() -> None:
    """A network file system is one, and so is /proc."""
    store = LocalStore("/proc/sys")
    assert store.stat(ROOT).is_dir
    assert would_wait(lambda: store.stat(ROOT))
    store.close()


def test_p3_a_store_that_was_replaced_is_left_to_a_worker(store: LocalStore, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("old"))
    assert would_wait(lambda: store.stat(Key("d/chunk")))
    tmp_path.with_name("old").rename(tmp_path)


def test_p3_a_name_is_absent_from_an_immutable_store_only_while_that_is_there(tmp_path: Path) -> None:
    """Answers found without waiting need no look at the root; a missing member may be another store's by now."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s/chunk").write_bytes(b"chunk")
    store = LocalStore(str(tmp_path / "s"), immutable=True)
    store.read(Key("chunk"), 10)
    for name in ("nothing", "chunk"):
        with suppress(NotFound):
            store.stat(Key(name))
    with asking.without_waiting():
        with pytest.raises(NotFound):
            store.stat(Key("nothing"))
        assert store.read(Key("chunk"), 10)[0] == b"chunk"
    (tmp_path / "s").rename(tmp_path / "t")
    assert would_wait(lambda: store.stat(Key("nothing")))
    with pytest.raises(Stale):
        store.stat(Key("nothing"))
    store.close()
    assert would_wait(lambda: store.stat(Key("chunk")))


def test_p4_links_out_of_the_store_are_left_to_a_worker(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc/hostname")
    assert would_wait(lambda: store.stat(Key("out")))


def test_other_threads_may_wait_meanwhile(store: LocalStore) -> None:
    found: list[int] = []
    with asking.without_waiting():
        thread = threading.Thread(target=lambda: found.append(len(list(store.list(ROOT)))))
        thread.start()
        thread.join()
    assert found == [1]
    assert len(list(store.list(ROOT))) == 1, "and this one again"


def test_p7_the_end_of_an_inner_context_does_not_permit_the_outer_one_to_wait(store: LocalStore) -> None:
    with asking.without_waiting():
        assert would_wait(lambda: list(store.list(ROOT)))
        with pytest.raises(WouldWait):
            list(store.list(ROOT))
    assert len(list(store.list(ROOT))) == 1


@pytest.fixture
def array(tmp_path: Path) -> Iterator[tuple[Path, Any, Source]]:
    """A Zarr v2 array, the directory of its chunk files in the layout, its source."""
    path = tmp_path / "x.zarr"
    (path / "0").mkdir(parents=True)
    metadata = {"zarr_format": 2, "shape": [2, 4], "chunks": [1, 4], "dtype": "|u1", "fill_value": 0, "order": "C"}
    document = {**metadata, "compressor": None, "filters": None, "dimension_separator": "/"}
    (path / ".zarray").write_text(json.dumps(document))
    (path / "0/0").write_bytes(b"abcd")
    config = Config(str(path), "/mnt")
    source = open_source(config.source, config)
    root: Any = root_directory(source, config, ChunkCache(config.cache_size))
    yield path, root, source
    source.close()


def test_p9_a_chunk_is_opened_at_once_and_is_the_present_one(array: tuple[Path, Any, Source]) -> None:
    path, root, _ = array
    file = root.lookup(b"c").lookup(b"0").lookup(b"0")
    for content in (b"abcd", b"efgh"):
        (path / "new").write_bytes(content)
        (path / "new").rename(path / "0/0")
        handle = at_once(file.open)
        assert bytes(handle.read(0, 4)) == content
    (path / "0/0").unlink()
    assert at_once(file.open) is None


def test_p9_nothing_is_opened_at_once_when_the_metadata_changed(array: tuple[Path, Any, Source]) -> None:
    path, root, _ = array
    file, document = root.lookup(b"c").lookup(b"0").lookup(b"0"), root.lookup(b"zarr.json")
    assert at_once(document.open).content == document.open().content
    (path / ".zarray").write_text((path / ".zarray").read_text().replace("[2, 4]", "[3, 4]"))
    assert at_once(file.open) is None
    assert at_once(document.open) is None


def test_a_look_up_at_once_finds_what_the_look_up_finds(array: tuple[Path, Any, Source]) -> None:
    path, root, _ = array
    directory = root.lookup(b"c").lookup(b"0")
    node = at_once(lambda: directory.lookup(b"0"))
    assert (node.slot, node.attrs()) == (directory.lookup(b"0").slot, directory.lookup(b"0").attrs())
    for absent in (b"1", b"00", b"x", b"9"):
        assert at_once(partial(directory.lookup, absent)) is None
    (path / "0/0").unlink()
    assert at_once(lambda: directory.lookup(b"0")) is None


def test_p3_a_broken_chunk_opens_and_its_reader_gets_an_error(array: tuple[Path, Any, Source]) -> None:
    path, root, _ = array
    (path / "0/0").write_bytes(b"abc")
    file = root.lookup(b"c").lookup(b"0").lookup(b"0")
    with pytest.raises(CorruptData, match="3"):
        file.open().read(0, 4)


def test_outside_of_a_question_nothing_remembered_will_do() -> None:
    assert (context.as_of, context.listed) == (math.inf, math.inf)
    listing = SlowListing[str]()
    listing.made = "made"
    assert not listing.will_do()


def test_contexts_nest_and_pass_the_oldest_answer_outwards() -> None:
    with as_of(5.0, 3.0) as outer:
        used(8.0)
        with as_of(1.0) as inner:
            assert (context.as_of, context.listed) == (1.0, 1.0)
            used(2.0)
        assert (context.as_of, context.listed, inner.oldest, oldest()) == (5.0, 3.0, 2.0, 2.0)
        with as_of(1.0) as other:
            pass
        assert other.oldest > 2.0
    assert outer.oldest == 2.0
    assert (context.as_of, context.listed) == (math.inf, math.inf)


def test_without_any_remembered_answer_the_oldest_is_the_beginning() -> None:
    before = time.monotonic()
    with as_of(0.0):
        assert before <= oldest() <= time.monotonic()


def test_a_slow_listing_will_do_as_long_as_listings_may_be_old() -> None:
    with as_of(5.0):
        used(4.0)
        listing = SlowListing[str]()
        assert not listing.will_do()
        listing.made = "made"
    with as_of(10.0, 4.0) as answers:
        assert listing.will_do()
    assert answers.oldest == 4.0
    with as_of(4.0, 4.5) as answers:
        assert not listing.will_do()
    assert answers.oldest > 4.5


def test_a_question_takes_answers_as_old_as_listings_or_none_remembered() -> None:
    with as_of(5.0, 3.0):
        with as_listed():
            assert (context.as_of, context.listed) == (3.0, 3.0)
        with anew():
            assert (context.as_of, context.listed) == (math.inf, math.inf)
    with as_listed():
        assert (context.as_of, context.listed) == (math.inf, math.inf)


def test_parallel_calls_have_their_caller_s_context_and_tell_it_the_oldest_age() -> None:
    def look(number: int) -> float:
        used(10.0 + number)
        return context.as_of

    with as_of(5.0) as answers:
        assert each(look, range(4), 2) == [5.0] * 4
        assert answers.oldest == math.inf
    assert answers.oldest == 10.0
    assert each(look, range(4), 2) == [math.inf] * 4


def test_another_thread_is_asked_as_its_caller_is() -> None:
    found: list[tuple[float, float]] = []

    def look() -> None:
        found.append((context.as_of, context.listed))

    with as_of(5.0, 3.0):
        calls: list[Callable[[], None]] = [carried(look), look]
    calls.append(carried(look))
    for call in calls:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert found == [(5.0, 3.0), (math.inf, math.inf), (math.inf, math.inf)]


def test_a_question_made_of_many_has_one_age_limit() -> None:
    with from_now():
        moment = context.as_of
        assert moment == context.listed <= time.monotonic()
        with from_now():
            assert context.as_of == moment
    with as_of(5.0, 3.0), from_now():
        assert (context.as_of, context.listed) == (5.0, 3.0)


def test_an_answer_used_where_no_age_is_asked_for_ages_nothing_later() -> None:
    used(2.0)
    assert oldest() > 2.0


def test_one_thread_at_a_time_also_if_one_comes_between_two_others() -> None:
    """The second one's lock is the third one's, too, though the first has let it go."""
    locks = Locks[str]()
    inside: list[str] = []
    order: list[str] = []
    leave = {name: threading.Event() for name in "abc"}

    def caller(name: str) -> None:
        with locks.of("key"):
            inside.append(name)
            order.append(name)
            assert leave[name].wait(30)
            assert inside == [name]
            inside.remove(name)

    threads = {name: threading.Thread(target=caller, args=name) for name in "abc"}

    def begins_to_wait(name: str) -> None:
        threads[name].start()
        until(lambda: locks._held["key"].callers == 2)

    def is_inside(name: str) -> None:
        until(lambda: inside == [name])

    threads["a"].start()
    is_inside("a")
    begins_to_wait("b")
    leave["a"].set()
    is_inside("b")
    begins_to_wait("c")
    for event in leave.values():
        event.set()
    for thread in threads.values():
        thread.join()
    assert order == ["a", "b", "c"]
    assert not locks._held


def test_others_do_not_wait_and_errors_let_go() -> None:
    locks = Locks[int]()
    with pytest.raises(ZeroDivisionError), locks.of(1), locks.of(2):
        raise ZeroDivisionError
    with locks.of(1), locks.of(2):
        assert sorted(locks._held) == [1, 2]
    assert not locks._held
