"""The block cache: right bytes or none, whatever is done to its files; within its size, and without other users' files."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest
from descriptors import list_descriptors
from fake_s3 import BUCKET, CHUNK, FakeS3
from remote_stores import LARGE, A, open_store
from waiting import Clock

from fsbridge.config import Config, Remote
from fsbridge.errors import SetupError
from fsbridge.store import WHOLE
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.client import Object
from fsbridge.store.remote.store import ObjectStore, object_store
from fsbridge.store.remote.urls import identity, parse_url

FOUND = Object("a/c/0", 10, 10**18, "etag")
DATA = b"0123456789"


@pytest.fixture
def cache(tmp_path: Path) -> BlockCache:
    return BlockCache(str(tmp_path / "cache"), 1 << 20, "s3://bucket/z")


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_block_is_there_after_a_restart_and_only_in_its_version(cache: BlockCache, tmp_path: Path) -> None:
    cache.put(FOUND, DATA)
    cache.put(FOUND, DATA[2:5], (2, 3))
    cache.flush()
    for again in (cache, BlockCache(str(tmp_path / "cache"), 1 << 20, "s3://bucket/z")):
        assert again.find("a/c/0") == (FOUND, b"0123456789")
        assert again.get("a/c/0", "etag", 10) == DATA
        assert again.get("a/c/0", "etag", 10, (2, 3)) == b"234"
        for key, etag, span in (("a/c/0", "other", WHOLE), ("a/c/1", "etag", WHOLE), ("a/c/0", "etag", (2, 4))):
            assert again.get(key, etag, 10, span) is None
    assert BlockCache(str(tmp_path / "cache"), 1 << 20, "s3://other/z").find("a/c/0") is None
    assert {path.stat().st_mode & 0o777 for path in files(tmp_path)} == {0o600}


def test_p9_what_the_same_etag_may_still_come_to_mean_is_not_kept(cache: BlockCache, tmp_path: Path) -> None:
    """nginx makes its ETags of the second of the last change and the size: of an object that was changed just now."""
    now = time.time()
    cache.keep(Object("a/c/0", 10, int(now * 1e9), f"{int(now):x}-a"), DATA)
    cache.flush()
    assert files(tmp_path) == []
    cache.keep(Object("a/c/0", 10, int(now - 3600) * 10**9, f"{int(now - 3600):x}-a"), DATA)
    cache.flush()
    assert len(files(tmp_path)) == 1


def test_a_part_of_an_object_is_kept_in_blocks_at_their_places(cache: BlockCache) -> None:
    large = Object("a/c/0", 100, 10**18, "etag")
    cache.keep(large, DATA, 40, 4)
    cache.flush()
    kept = {span: cache.get("a/c/0", "etag", 100, span) for span in ((40, 4), (44, 4), (48, 2), (0, 4), (40, 10), (48, 4))}
    assert kept == {(40, 4): b"0123", (44, 4): b"4567", (48, 2): b"89", (0, 4): None, (40, 10): None, (48, 4): None}


def test_p2_a_damaged_block_is_none(cache: BlockCache, tmp_path: Path) -> None:
    cache.put(FOUND, DATA)
    cache.flush()
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert cache.get("a/c/0", "etag", 10) is None
        path.write_bytes(whole[:position])
        assert cache.get("a/c/0", "etag", 10) is None
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(whole)
    assert cache.get("a/c/0", "etag", 10) is None


def test_p7_a_fifo_in_the_place_of_a_block_is_not_waited_for(cache: BlockCache, tmp_path: Path) -> None:
    cache.put(FOUND, DATA)
    cache.flush()
    (path,) = files(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert cache.get("a/c/0", "etag", 10) is None


def test_p3_a_block_that_cannot_be_read_is_none(cache: BlockCache, tmp_path: Path) -> None:
    """The cache's own disk fails, or is gone: that is no matter of the store. A directory refuses reading, too."""
    cache.put(FOUND, DATA)
    cache.flush()
    (path,) = files(tmp_path)
    path.unlink()
    path.mkdir()
    for _ in range(3):
        assert cache.get("a/c/0", "etag", 10) is None
        assert cache.find("a/c/0") is None
    assert list_descriptors(path) == []


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = BlockCache(str(tmp_path / "cache"), 100_000, "u")
    for number in range(12):
        cache.put(Object(f"{number}", 10_000, 0, "e"), bytes(10_000))
        cache.flush()
        if number == 0:
            old = files(tmp_path)[0]
        os.utime(old, (time.time() + number, time.time() + number))  # in use
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 100_000
    assert cache.get("0", "e", 10_000) is not None
    assert cache.get("11", "e", 10_000) is not None
    assert cache.get("1", "e", 10_000) is None
    cache.put(Object("large", 90_000, 0, "e"), bytes(90_000))  # would take nearly all of it
    cache.flush()
    assert cache.get("large", "e", 90_000) is None


def test_p2_a_block_of_an_object_of_another_size_is_none_whatever_its_etag_says(cache: BlockCache) -> None:
    cache.put(FOUND, DATA)
    cache.put(FOUND, DATA[2:5], (2, 3))
    cache.flush()
    assert cache.get("a/c/0", "etag", 11) is None
    assert cache.get("a/c/0", "etag", 11, (2, 3)) is None


def test_p2_bytes_of_two_versions_with_one_etag_are_not_mixed(server: FakeS3, tmp_path: Path) -> None:
    blocks = BlockCache(str(tmp_path / "cache"), 1 << 26, "u")
    for data in (CHUNK, CHUNK[:-5], CHUNK[:100]):
        server.put(f"z/{A}", data, 1e9, etag="0123456789abcdef0123456789abcdef")
        store = ObjectStore(open_store(server).client, Answers(60.0, 60.0), blocks)
        assert len(list(store.list(A.parent))) == 3
        found, stat = store.read(A, 1 << 20)
        assert (bytes(found), stat.size) == (data, len(data))
        blocks.flush()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    """`--block-cache ~/.cache`: the folder `uv` there has two letters as well."""
    others = ["uv/file", "ab/file", "ab/.lock", f"ab/{'c' * 38}", f"ab/{'c' * 32}", "db/" + "0" * 32, "b"]
    for name in others:
        path = tmp_path / "cache" / name
        path.parent.mkdir(exist_ok=True, parents=True, mode=0o700)
        path.write_bytes(bytes(10_000))
    os.chmod(tmp_path / "cache", 0o700)
    cache = BlockCache(str(tmp_path / "cache"), 50_000, "u")
    for number in range(12):
        cache.put(Object(f"{number}", 10_000, 0, "e"), bytes(10_000))
        cache.flush()
    assert all((tmp_path / "cache" / name).exists() for name in others)
    assert cache.get("11", "e", 10_000) is not None


def test_what_killed_writers_left_goes_like_any_block(tmp_path: Path) -> None:
    cache = BlockCache(str(tmp_path / "cache"), 100_000, "u")
    left = tmp_path / "cache/ab/.0123456789abcdef"
    left.parent.mkdir(mode=0o700)
    left.write_bytes(bytes(60_000))
    os.utime(left, (1e9, 1e9))
    for number in range(6):
        cache.put(Object(f"{number}", 10_000, 0, "e"), bytes(10_000))
        cache.flush()
    assert not left.exists()


def test_p11_several_mounts_and_tiny_blocks_stay_within_the_size_on_disk(tmp_path: Path) -> None:
    caches = [BlockCache(str(tmp_path / "cache"), 1 << 18, f"u{number}") for number in range(4)]
    for number in range(40):
        for cache in caches:
            cache.put(Object(f"{number}", 100, 0, "e"), bytes(100))
            cache.flush()
    assert sum(512 * path.stat().st_blocks for path in files(tmp_path)) <= (1 << 18) * 5 // 4
    assert all(cache.get("39", "e", 100) is not None for cache in caches)


@pytest.mark.parametrize("size", [1 << 20, 1 << 30])
@pytest.mark.parametrize("short", ["bytes", "files"])
def test_p11_a_disk_that_others_have_filled_is_left_alone(tmp_path: Path, size: int, short: str) -> None:
    """A cache that may be larger than the floor took what was left."""
    free_blocks, free_files = (10, 900) if short == "bytes" else (900, 10)
    disk = os.statvfs_result((4096, 4096, 1000, free_blocks, free_blocks, 1000, free_files, free_files, 0, 255))
    cache = BlockCache(str(tmp_path / "cache"), size, "u", statvfs=lambda fd: disk)
    cache.put(FOUND, DATA)
    cache.flush()
    assert files(tmp_path) == []


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "file").touch()
    for name in ("open", "link", "file"):
        with pytest.raises(SetupError, match="block cache"):
            BlockCache(str(tmp_path / name), 1 << 20, "u")


@pytest.mark.parametrize("immutable", [False, True])
def test_after_a_restart_a_chunk_costs_one_request_without_a_body_or_none(
    server: FakeS3,
    tmp_path: Path,
    immutable: bool,
) -> None:
    ttl = float("inf") if immutable else 60.0
    blocks = BlockCache(str(tmp_path / "cache"), 1 << 26, "u")
    for restart in range(2):
        store = open_store(server)
        store = ObjectStore(store.client, Answers(ttl, 60.0), blocks)
        with server.counted() as requests:
            version = store.stat(A, WHOLE).version
            data, stat = store.read(A, 1 << 20)
            store.stat(LARGE, (-64, 64))
            store.read_range(LARGE, 100, 1000)
        assert (data, stat.version) == (CHUNK, version)
        blocks.flush()
        of_chunk = [request for request in requests if request.key == f"z/{A}"]
        assert len(of_chunk) == (0 if restart and immutable else 1)
        assert not restart or all("if-none-match" in request.headers for request in of_chunk)
        assert len(requests) - len(of_chunk) == (2 - restart * (2 if immutable else 1))
    server.put(f"z/{A}", CHUNK[::-1], 1e9)
    if not immutable:
        store = ObjectStore(open_store(server).client, Answers(ttl, 60.0), blocks)
        assert store.stat(A, WHOLE).version != version
        assert store.read(A, 1 << 20)[0] == CHUNK[::-1]


def test_p11_one_mount_stays_within_the_size_and_removes_no_more_than_it_must(tmp_path: Path) -> None:
    """Bytes written since the last count are included: a sixteenth of the size fits into what one clearing has made free."""
    size, block = 1 << 20, 4096
    cache = BlockCache(str(tmp_path / "cache"), size, "u")
    taken = []
    for number in range(330):
        cache.put(Object(f"{number}", block // 2, 0, "e"), bytes(block // 2))
        cache.flush()
        if number > 250:
            taken.append(sum(512 * path.stat().st_blocks for path in files(tmp_path)))
    assert size * 9 // 10 <= min(taken) < max(taken) <= size
    assert cache.get("329", "e", block // 2) is not None


def test_the_queue_of_writes_is_bounded_and_empties(tmp_path: Path) -> None:
    writable = threading.Event()

    def wait_for_disk(fd: int) -> os.statvfs_result:
        assert writable.wait(20)
        return os.fstatvfs(fd)

    cache = BlockCache(str(tmp_path / "cache"), 1 << 20, "u", 25_000, wait_for_disk)
    for name in "abc":
        cache.put(Object(name, 10_000, 0, "e"), bytes(10_000))
    writable.set()
    cache.flush()
    assert [cache.get(name, "e", 10_000) is not None for name in "abc"] == [True, True, False]
    for name in "defg":
        cache.put(Object(name, 10_000, 0, "e"), bytes(10_000))
        cache.flush()
    assert len(files(tmp_path)) == 6


def test_a_block_that_was_read_lately_is_in_use(cache: BlockCache, tmp_path: Path) -> None:
    cache.put(FOUND, DATA)
    cache.flush()
    (path,) = files(tmp_path)
    for age, touched in ((3600, True), (30, False)):
        before = time.time() - age
        os.utime(path, (before, before))
        assert cache.get("a/c/0", "etag", 10) == DATA
        assert (path.stat().st_mtime > before + age - 5) == touched


def test_blocks_of_other_mounts_are_counted_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    ours, other = (BlockCache(str(tmp_path / "cache"), 1 << 20, url) for url in "uv")
    for cache, count in ((ours, 1), (other, 250), (ours, 10)):
        for number in range(count):
            cache.put(Object(f"{number}", 2000, 0, "e"), bytes(2000))
            cache.flush()
    clock.passes(61.0)
    ours.put(FOUND, DATA)
    ours.flush()
    assert sum(512 * path.stat().st_blocks for path in files(tmp_path)) <= 1 << 20


def test_p9_buckets_of_one_name_on_two_servers_share_no_blocks(server: FakeS3, tmp_path: Path) -> None:
    """With --immutable there is no request for the version of what is in the cache."""
    other = FakeS3()
    try:
        for number, one in enumerate((server, other)):
            one.put("z/a/c/0", bytes([number]) * 1000, 1e9)
        for number, one in enumerate((server, other)):
            remote = Remote(anonymous=True, region="us-east-1", endpoint=one.endpoint, block_cache=str(tmp_path / "cache"))
            config = Config(f"s3://{BUCKET}/z", "", remote=remote, immutable=True)
            store = object_store(parse_url(config.source), config)
            assert store.read(A, 1 << 20)[0] == bytes([number]) * 1000
            assert store.blocks is not None
            store.blocks.flush()
    finally:
        other.stop()


def test_accounts_and_servers_in_the_environment_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, variable in (
        ("az://container/z", "AZURE_STORAGE_ACCOUNT_NAME"),
        ("az://container/z", "AZURE_STORAGE_ENDPOINT"),
        ("gs://bucket/z", "GOOGLE_BASE_URL"),
    ):
        found = set()
        for value in ("", "https://one.example", "https://two.example"):
            monkeypatch.setenv(variable, value)
            found.add(identity(parse_url(url), ""))
        assert len(found) == 3
        assert not any("example" in name for name in found)
        monkeypatch.delenv(variable)
    assert identity(parse_url("s3://bucket/z"), "") == "s3://bucket/z"  # as blocks of earlier versions are called


def test_a_folder_that_is_gone_is_said_once(cache: BlockCache, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").rmdir()
    for number in range(3):
        cache.put(FOUND._replace(key=str(number)), DATA)
    cache.flush()
    said = f"block cache {tmp_path}/cache: nothing can be kept there now: No such file or directory"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said]
    assert cache.find("0") is None


def test_a_disk_that_fails_again_after_it_has_worked_is_said_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fails = [True, True, False, True, True]

    def fail_at_times(fd: int) -> os.statvfs_result:
        if fails[number]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.fstatvfs(fd)

    cache = BlockCache(str(tmp_path / "cache"), 1 << 20, "u", statvfs=fail_at_times)
    for number in range(len(fails)):
        caplog.clear()
        cache.put(FOUND, DATA)
        cache.flush()
        said_before = number > 0 and fails[number - 1]
        assert [record.levelname for record in caplog.records] == ["WARNING"] * (fails[number] and not said_before)
