"""P8: whatever a tree raises, the handler answers an errno, nothing is lost, and the file system lives on."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pyfuse3
import pytest
import trio
from fake_tree import FakeDirectory, FakeFile, FakeLink
from handlers import CTX, DEFAULTS, pass_a_minute, with_filesystem
from shortages import no_memory_to_log
from waiting import Clock, eventually

from fsbridge import errors
from fsbridge.asking import before_waiting
from fsbridge.errors import FsbridgeError
from fsbridge.kernel import boundary
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.inodes import InodeTable
from fsbridge.tree import Attrs, Directory, Entry, File, Symlink


@pytest.fixture(autouse=True, params=["read-ahead", "no-read-ahead"])
def prediction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered alike with read-ahead and without."""
    monkeypatch.setitem(DEFAULTS, "read_ahead", request.param == "read-ahead")


class Exploding(Directory, File, Symlink):
    """A node of every kind; once armed, all of its methods raise `error`."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.listing_error: BaseException | None = None

    def fail(self) -> None:
        if isinstance(self.error, SystemExit):
            before_waiting()
        if self.error is not None:
            raise self.error

    def attrs(self) -> Attrs:
        self.fail()
        return Attrs("file", 10, 0)

    def xattrs(self) -> dict[str, bytes]:
        self.fail()
        return {}

    @property
    def target(self) -> bytes:
        self.fail()
        return b"target"

    def lookup(self, name: bytes) -> Any:
        self.fail()
        return self

    def refresh(self) -> Any:
        return self

    def entries(self) -> Iterator[list[Entry]]:
        self.fail()
        if self.listing_error is not None:
            raise self.listing_error
        yield [Entry(b"a", Attrs("file", 1, 0), lambda: self)]

    def open(self) -> Any:
        self.fail()
        return self

    size = 10
    window = 0

    def peek(self, offset: int, size: int) -> None:
        self.fail()

    def read(self, offset: int, size: int) -> bytes:
        self.fail()
        return bytes(size)

    def close(self) -> None:
        self.fail()


async def _open(filesystem: Filesystem, node: Exploding) -> int:
    inode = (await filesystem.lookup(1, b"node", CTX)).st_ino
    return (await filesystem.open(inode, 0, CTX)).fh


async def _read(filesystem: Filesystem, node: Exploding, error: BaseException) -> None:
    fh = await _open(filesystem, node)
    node.error = error
    await filesystem.read(fh, 0, 10)


async def _on_inode(handler: str, filesystem: Filesystem, node: Exploding, error: BaseException, *args: Any) -> None:
    inode = (await filesystem.lookup(1, b"node", CTX)).st_ino
    node.error = error
    await getattr(filesystem, handler)(inode, *args, CTX)


async def _lookup(filesystem: Filesystem, node: Exploding, error: BaseException) -> None:
    node.error = error
    await filesystem.lookup(1, b"node", CTX)


async def _opendir(filesystem: Filesystem, node: Exploding, error: BaseException) -> None:
    def opener() -> Any:
        raise error

    inode, _ = filesystem.inodes.count_listed(1, Entry(b"lazy", Attrs("directory", 0, 0), opener), None)
    await filesystem.opendir(inode, CTX)


async def _readdir(filesystem: Filesystem, node: Exploding, error: BaseException) -> None:
    inode = (await filesystem.lookup(1, b"node", CTX)).st_ino
    node.listing_error = error
    fh = await filesystem.opendir(inode, CTX)
    await filesystem.readdir(fh, 2, CTX)


HANDLERS: dict[str, Callable[[Filesystem, Exploding, Any], Awaitable[None]]] = {
    "lookup": _lookup,
    "getattr": lambda f, n, e: _on_inode("getattr", f, n, e),
    "readlink": lambda f, n, e: _on_inode("readlink", f, n, e),
    "access": lambda f, n, e: _on_inode("access", f, n, e, 4),
    "getxattr": lambda f, n, e: _on_inode("getxattr", f, n, e, b"user.a"),
    "listxattr": lambda f, n, e: _on_inode("listxattr", f, n, e),
    "open": lambda f, n, e: _on_inode("open", f, n, e, 0),
    "read": _read,
    "opendir": _opendir,
    "readdir": _readdir,
}

UNEXPECTED = [ValueError("bad"), RecursionError("deep"), KeyError("k"), AssertionError()]


class _Root(FakeDirectory):
    def __init__(self, node: Exploding) -> None:
        super().__init__({b"node": node})

    def lookup(self, name: bytes) -> Any:
        self.members[name].fail()
        return super().lookup(name)


def provoke(handler: str, error: BaseException, **config: Any) -> tuple[int, Filesystem]:
    """The errno that `handler` answers when the tree raises `error`; afterwards the same tree must work again."""
    codes: list[int] = []

    async def test(filesystem: Filesystem) -> None:
        with pytest.raises(pyfuse3.FUSEError) as caught:
            await HANDLERS[handler](filesystem, node, error)
        codes.append(caught.value.errno)
        node.error = None
        assert (await filesystem.lookup(1, b"node", CTX)).st_size == 10
        fh = await _open(filesystem, node)
        assert await filesystem.read(fh, 0, 100) == bytes(10)
        await filesystem.release(fh)

    node = Exploding()
    filesystem = with_filesystem(test, _Root(node), **config)
    assert filesystem.under_way == 0
    return codes[0], filesystem


def test_a_request_is_under_way_until_it_is_answered() -> None:
    class Watched(Exploding):
        def attrs(self) -> Attrs:
            seen.append(filesystems[0].under_way)
            return super().attrs()

    async def test(filesystem: Filesystem) -> None:
        filesystems.append(filesystem)
        await filesystem.lookup(1, b"node", CTX)
        assert filesystem.under_way == 0

    seen: list[int] = []
    filesystems: list[Filesystem] = []
    with_filesystem(test, _Root(Watched()))
    assert set(seen) == {1}


@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("handler", HANDLERS)
def test_p8_a_bug_is_eio_logged_and_counted(handler: str, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    code, filesystem = provoke(handler, error)
    assert code == errno.EIO
    assert filesystem.reporter.unexpected == 1
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert f"{type(error).__name__} in {handler} of /" in record.getMessage()


@pytest.mark.parametrize("handler", HANDLERS)
def test_p8_want_of_memory_is_enomem_and_no_bug(handler: str, caplog: pytest.LogCaptureFixture) -> None:
    code, filesystem = provoke(handler, MemoryError())
    assert (code, filesystem.reporter.unexpected) == (errno.ENOMEM, 0)
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "not enough memory" in record.getMessage()


@pytest.mark.parametrize("handler", HANDLERS)
def test_p8_a_module_that_has_gone_is_eio_with_what_to_do(handler: str, caplog: pytest.LogCaptureFixture) -> None:
    code, filesystem = provoke(handler, ModuleNotFoundError("No module named 'nibabel'"))
    assert (code, filesystem.reporter.unexpected) == (errno.EIO, 0)
    assert "No module named 'nibabel'; the package was removed or replaced under this mount" in caplog.text


@pytest.mark.parametrize("handler", HANDLERS)
def test_p8_an_oserror_is_its_errno_or_eio(handler: str, caplog: pytest.LogCaptureFixture) -> None:
    assert provoke(handler, OSError(None))[0] == errno.EIO
    code, filesystem = provoke(handler, OSError(errno.ESTALE, "stale"))
    assert code == errno.ESTALE
    assert provoke(handler, PermissionError(errno.EACCES, "no"))[0] == errno.EACCES
    assert filesystem.reporter.unexpected == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


@pytest.mark.parametrize("code", [errno.ENOSYS, 524, 2000, -2, "text"])
@pytest.mark.parametrize("handler", HANDLERS)
def test_p7_p8_an_errno_that_the_kernel_does_not_take_or_remembers_is_eio(handler: str, code: Any) -> None:
    assert provoke(handler, OSError(code, "of another file system"))[0] == errno.EIO


@pytest.mark.parametrize("handler", HANDLERS)
def test_p3_each_error_class_answers_its_errno(handler: str) -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, FsbridgeError)]
    for error_class in classes:
        if error_class is not errors.SetupError:
            assert provoke(handler, error_class("reason"))[0] == error_class.errno, error_class


def test_p8_sys_exit_in_a_worker_does_not_end_the_daemon() -> None:
    assert provoke("getattr", SystemExit(3))[0] == errno.EIO


def test_p3_damage_is_one_line_with_path_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    file = FakeFile(b"x" * 100, on_read=lambda: _raise(errors.CorruptData("key c/0/0: bad checksum")))

    async def test(filesystem: Filesystem) -> None:
        inode = (await filesystem.lookup(1, b"chunk", CTX)).st_ino
        for _ in range(50):
            fh = (await filesystem.open(inode, 0, CTX)).fh
            with pytest.raises(pyfuse3.FUSEError):
                await filesystem.read(fh, 0, 100)
            await filesystem.release(fh)

    with_filesystem(test, FakeDirectory({b"chunk": file}))
    assert [record.getMessage() for record in caplog.records] == ["/chunk: key c/0/0: bad checksum"]
    assert caplog.records[0].levelname == "WARNING"


def test_damage_is_logged_again_later_and_its_memory_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    reporter = boundary.Reporter()
    for path in ["/a", "/a", "/b"]:
        reporter.errno(errors.CorruptData("bad"), "read", partial(str, path))
    clock.passes(boundary.SILENCE_SECONDS + 1)
    reporter.errno(errors.CorruptData("bad"), "read", lambda: "/a")
    assert [record.getMessage() for record in caplog.records] == ["/a: bad", "/b: bad", "/a: bad"]
    for number in range(boundary.REMEMBERED_PATHS * 2):
        reporter.errno(errors.CorruptData("bad"), "read", partial(str, number))
    assert len(reporter._silent) == boundary.REMEMBERED_PATHS


class Forgetless(Filesystem):
    """A mount without memory to note that something is outdated."""

    def note_outdated(self, handler: str, subject: Any) -> None:
        raise MemoryError


def test_p8_errors_of_an_outdated_node_do_not_end_the_mount() -> None:
    code, _ = provoke("getattr", errors.Stale("changed"), kind=Forgetless)
    assert code == errno.ESTALE


class ScarceReporter(boundary.Reporter):
    """Has no memory to make an answer of an error."""

    def errno(self, error: Exception, what: str, path: Callable[[], str]) -> int:
        raise MemoryError


class Speechless(Filesystem):
    """A mount without memory to answer errors."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.reporter = ScarceReporter()


@pytest.mark.parametrize("handler", HANDLERS)
def test_p8_want_of_memory_for_an_answer_does_not_end_the_mount(handler: str) -> None:
    for _ in range(2):
        code, filesystem = provoke(handler, errors.CorruptData("damaged"), kind=Speechless)
        assert (code, filesystem.under_way) == (errno.ENOMEM, 0)


def test_ordinary_answers_leave_no_line(caplog: pytest.LogCaptureFixture) -> None:
    for error in (errors.NotFound("a"), errors.Stale("b"), FileNotFoundError(errno.ENOENT, "c")):
        provoke("lookup", error)
    assert not caplog.records


def test_a_failure_while_a_failure_is_logged_is_still_an_errno() -> None:
    with no_memory_to_log(boundary.log):
        assert provoke("read", errors.CorruptData("bad"))[0] == errno.EIO
        assert provoke("read", MemoryError())[0] == errno.ENOMEM

    def no_path() -> str:
        raise RecursionError

    assert boundary.Reporter().errno(ValueError(), "read", no_path) == errno.EIO


@pytest.mark.parametrize("error", [*UNEXPECTED, MemoryError(), OSError(None)], ids=lambda error: type(error).__name__)
def test_forget_and_release_never_raise(error: Exception) -> None:
    class Unforgettable(InodeTable):
        def forget(self, inode: int, lookups: int) -> bool:
            raise error

    async def test(filesystem: Filesystem) -> None:
        fh = await _open(filesystem, node)
        node.error = error
        await filesystem.release(fh)
        await filesystem.release(fh)
        await filesystem.releasedir(4711)
        filesystem.inodes = Unforgettable(_Root(node))
        await filesystem.forget([(2, 1)])
        assert len(filesystem.files) == 0

    node = Exploding()
    with_filesystem(test, _Root(node))


@pytest.mark.parametrize("wrong", [b"", b"short", bytes(11), memoryview(bytes(20))[::2]], ids=["0", "5", "11", "gaps"])
def test_p2_a_reply_of_the_wrong_length_is_eio(wrong: Any) -> None:
    class Wrong(Exploding):
        def read(self, offset: int, size: int) -> Any:
            return wrong

    async def test(filesystem: Filesystem) -> None:
        fh = await _open(filesystem, node)
        with pytest.raises(pyfuse3.FUSEError) as caught:
            await filesystem.read(fh, 0, 10)
        assert caught.value.errno == errno.EIO

    node = Wrong()
    with_filesystem(test, _Root(node))


def test_impossible_link_targets_are_eio() -> None:
    async def test(filesystem: Filesystem) -> None:
        for name in (b"empty", b"nul", b"long"):
            inode = (await filesystem.lookup(1, name, CTX)).st_ino
            with pytest.raises(pyfuse3.FUSEError) as caught:
                await filesystem.readlink(inode, CTX)
            assert caught.value.errno == errno.EIO

    links = {b"empty": FakeLink(b""), b"nul": FakeLink(b"a\0b"), b"long": FakeLink(b"x" * 4096)}
    with_filesystem(test, FakeDirectory(links))


def test_p7_an_open_without_an_answer_times_out_and_its_handle_is_closed_later() -> None:
    hung, clock = threading.Event(), trio.testing.MockClock()
    file = FakeFile(b"x", on_open=hung.wait)

    async def test(filesystem: Filesystem) -> None:
        inode = (await filesystem.lookup(1, b"slow", CTX)).st_ino
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_a_minute, clock, filesystem.jobs.metadata)
            with pytest.raises(pyfuse3.FUSEError) as caught:
                await filesystem.open(inode, 0, CTX)
        assert caught.value.errno == errno.ETIMEDOUT
        assert file.closes == 0
        hung.set()
        await eventually(lambda: file.closes)
        assert len(filesystem.files) == 0

    with_filesystem(test, FakeDirectory({b"slow": file}), clock)


def test_p1_every_mutation_is_erofs() -> None:
    names = ["setattr", "mknod", "mkdir", "unlink", "rmdir", "symlink", "rename", "link", "create", "write"]
    changes = [*names, "setxattr", "removexattr"]

    async def test(filesystem: Filesystem) -> None:
        for change in changes:
            with pytest.raises(pyfuse3.FUSEError) as caught:
                await getattr(filesystem, change)(1, b"name", 0, CTX)
            assert caught.value.errno == errno.EROFS, change

    with_filesystem(test, FakeDirectory())


def _raise(error: BaseException) -> None:
    raise error


def test_p7_a_request_that_computes_for_long_on_the_event_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def compute() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    async def test(filesystem: Filesystem) -> None:
        inode = (await filesystem.lookup(1, b"file", CTX)).st_ino
        await filesystem.release((await filesystem.open(inode, os.O_RDONLY, CTX)).fh)

    for at_once in (False, True):
        caplog.clear()
        with_filesystem(test, FakeDirectory({b"file": FakeFile(at_once=at_once, on_open=compute)}), loop_limit=0.04)
        logged = [record.getMessage() for record in caplog.records if "event loop" in record.getMessage()]
        assert len(logged) == at_once
        assert all(line.startswith("open kept the event loop for") for line in logged)
