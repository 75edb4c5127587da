"""About fifty checks of what POSIX promises of a read-only file system, for any mount: `check(file, directory)`.

Not a test by itself: tests of each format call it on a file of theirs (some bytes long) and on a directory that is not
empty. Everything goes through system calls of this process, so a mount must be served by another one.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path


def check(path_of_file: str | os.PathLike[str], path_of_directory: str | os.PathLike[str]) -> int:
    """Run all checks; AssertionError lists every one that fails. Returns how many were run."""
    file, directory = Path(path_of_file), Path(path_of_directory)
    problems, count = [], 0
    for name, test in _checks(file, directory):
        count += 1
        try:
            test()
        except (AssertionError, OSError) as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
    assert not problems, "\n".join(problems)
    return count


Check = tuple[str, Callable[[], None]]


def _checks(file: Path, directory: Path) -> Iterator[Check]:
    yield from _reading(file)
    yield from _stat(file, directory)
    yield from _directories(file, directory)
    yield from _errors(file, directory)
    yield from _mutations(file, directory)


def _reading(file: Path) -> Iterator[Check]:
    content = file.read_bytes()
    size = len(content)

    def opened(test: Callable[[int], None], flags: int = 0) -> Callable[[], None]:
        def run() -> None:
            fd = os.open(file, os.O_RDONLY | flags)
            try:
                test(fd)
            finally:
                os.close(fd)

        return run

    def equal(found: object, expected: object) -> None:
        assert found == expected, f"{found!r:.80} is not {expected!r:.80}"

    def lseek(fd: int) -> None:
        equal(os.lseek(fd, 0, os.SEEK_END), size)
        equal(os.read(fd, 10), b"")
        equal(os.lseek(fd, -1, os.SEEK_END), size - 1)
        equal(os.read(fd, 10), content[-1:])
        equal(os.lseek(fd, 10**6, os.SEEK_CUR), size + 10**6)
        equal(os.read(fd, 10), b"")
        equal(os.lseek(fd, 0, os.SEEK_SET), 0)
        equal(os.read(fd, 5), content[:5])

    def negative_seek(fd: int) -> None:
        _fails(errno.EINVAL, lambda: os.lseek(fd, -1, os.SEEK_SET))

    def dup(fd: int) -> None:
        other = os.dup(fd)
        os.read(fd, 2)
        equal(os.lseek(other, 0, os.SEEK_CUR), min(2, size))
        os.close(other)
        equal(os.pread(fd, 1, 0), content[:1])

    def two_opens(fd: int) -> None:
        other = os.open(file, os.O_RDONLY)
        os.read(fd, 3)
        equal(os.lseek(other, 0, os.SEEK_CUR), 0)
        os.close(other)

    def mapped(fd: int) -> None:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            equal(len(view), size)
            equal(view[:], content)

    def private(fd: int) -> None:
        with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as view:
            view[0] ^= 0xFF
        equal(os.pread(fd, 1, 0), content[:1])

    def shared_writable(fd: int) -> None:
        _fails(errno.EACCES, lambda: mmap.mmap(fd, 0, prot=mmap.PROT_READ | mmap.PROT_WRITE))

    def sendfile(fd: int) -> None:
        memory = os.memfd_create("copy")
        sent = 0
        while sent < size:
            more = os.sendfile(memory, fd, sent, size - sent)
            assert more, "sendfile ended early"
            sent += more
        equal(os.pread(memory, size + 1, 0), content)
        os.close(memory)

    def preadv(fd: int) -> None:
        buffers = [bytearray(3), bytearray(5)]
        read = os.preadv(fd, buffers, 1)
        equal(b"".join(buffers)[:read], content[1 : 1 + read])
        equal(read, max(0, min(8, size - 1)))

    assert size > 0, f"{file} is empty: the checks need some bytes"
    yield "read all", opened(lambda fd: equal(os.read(fd, size + 100), content))
    yield "pread at 0", opened(lambda fd: equal(os.pread(fd, 7, 0), content[:7]))
    yield "pread in the middle", opened(lambda fd: equal(os.pread(fd, 7, size // 2), content[size // 2 :][:7]))
    yield "pread of the last byte", opened(lambda fd: equal(os.pread(fd, 1, size - 1), content[-1:]))
    yield "pread over the end", opened(lambda fd: equal(os.pread(fd, 100, size - 1), content[-1:]))
    yield "pread at the end", opened(lambda fd: equal(os.pread(fd, 100, size), b""))
    yield "pread beyond the end", opened(lambda fd: equal(os.pread(fd, 100, size + 10**9), b""))
    yield "pread far beyond the end", opened(lambda fd: equal(os.pread(fd, 1, 2**62), b""))
    yield "pread of nothing", opened(lambda fd: equal(os.pread(fd, 0, 0), b""))
    yield "pread with a negative offset", opened(lambda fd: _fails(errno.EINVAL, lambda: os.pread(fd, 1, -1)))
    yield "preadv", opened(preadv)
    yield "lseek", opened(lseek)
    yield "lseek before the beginning", opened(negative_seek)
    yield "dup shares the offset", opened(dup)
    yield "two opens have two offsets", opened(two_opens)
    yield "mmap", opened(mapped)
    yield "private mmap does not change the file", opened(private)
    yield "shared writable mmap is refused", opened(shared_writable)
    yield "sendfile", opened(sendfile)
    yield "posix_fadvise", opened(lambda fd: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED))
    yield "fsync", opened(os.fsync)
    for name, flag in (
        ("O_NONBLOCK", os.O_NONBLOCK),
        ("O_NOFOLLOW", os.O_NOFOLLOW),
        ("O_CLOEXEC", os.O_CLOEXEC),
        ("O_SYNC", os.O_SYNC),
    ):
        yield f"open with {name}", opened(lambda fd: equal(os.pread(fd, 3, 0), content[:3]), flag)
    yield "open existing with O_CREAT", opened(lambda fd: equal(os.pread(fd, 3, 0), content[:3]), os.O_CREAT)


def _stat(file: Path, directory: Path) -> Iterator[Check]:
    def same_everywhere() -> None:
        fd = os.open(file, os.O_RDONLY)
        by_fd, by_path = os.fstat(fd), os.stat(file)
        os.close(fd)
        assert by_fd == by_path, (by_fd, by_path)
        assert os.lstat(file) == by_path

    def size_is_content() -> None:
        assert os.stat(file).st_size == len(file.read_bytes())

    def blocks() -> None:
        status = os.stat(file)
        assert status.st_blocks == -(-status.st_size // 512)
        assert status.st_blksize >= 512

    def kinds() -> None:
        assert stat.S_ISREG(os.stat(file).st_mode)
        assert stat.S_ISDIR(os.stat(directory).st_mode)

    def modes() -> None:
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o444
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o555

    def owner() -> None:
        assert (os.stat(file).st_uid, os.stat(directory).st_uid) == (os.getuid(), os.getuid())

    def times() -> None:
        status = os.stat(file)
        assert status.st_mtime_ns == status.st_ctime_ns == status.st_atime_ns
        file.read_bytes()
        assert os.stat(file).st_atime_ns == status.st_atime_ns

    def links() -> None:
        assert os.stat(file).st_nlink == 1
        assert os.stat(directory).st_nlink == 1

    def numbers() -> None:
        assert os.stat(file).st_ino != os.stat(directory).st_ino
        assert os.stat(file).st_dev == os.stat(directory).st_dev

    def access() -> None:
        assert os.access(file, os.R_OK)
        assert os.access(directory, os.R_OK | os.X_OK)
        assert not os.access(file, os.W_OK)
        assert not os.access(directory, os.W_OK)
        assert not os.access(file, os.X_OK)

    def file_system() -> None:
        status = os.statvfs(file)
        assert status.f_flag & os.ST_RDONLY
        assert status.f_namemax == 255
        assert status.f_bavail == 0

    yield "stat, lstat and fstat agree", same_everywhere
    yield "st_size is what can be read", size_is_content
    yield "st_blocks", blocks
    yield "kinds", kinds
    yield "modes", modes
    yield "owner", owner
    yield "times", times
    yield "st_nlink", links
    yield "st_ino and st_dev", numbers
    yield "access", access
    yield "statvfs", file_system


def _directories(file: Path, directory: Path) -> Iterator[Check]:
    def entries() -> list[os.DirEntry[str]]:
        with os.scandir(directory) as found:
            return list(found)

    def types() -> None:
        for entry in entries():
            mode = os.lstat(entry.path).st_mode
            assert entry.is_dir(follow_symlinks=False) == stat.S_ISDIR(mode), entry.name
            assert entry.is_file(follow_symlinks=False) == stat.S_ISREG(mode), entry.name
            assert entry.is_symlink() == stat.S_ISLNK(mode), entry.name

    def inodes() -> None:
        found = entries()
        for entry in found:
            assert entry.inode() == os.lstat(entry.path).st_ino, entry.name
        assert len({entry.inode() for entry in found}) == len(found), "two names share an inode"

    def names() -> None:
        listed = os.listdir(directory)
        assert listed, "the directory is empty: the checks need a member"
        assert len(set(listed)) == len(listed)
        assert os.listdir(directory) == listed, "the order changed"

    def by_descriptor() -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        assert sorted(os.listdir(fd)) == sorted(os.listdir(directory))
        inside = os.open(os.listdir(directory)[0], os.O_RDONLY | os.O_NOFOLLOW | os.O_PATH, dir_fd=fd)
        os.close(inside)
        _fails(errno.EISDIR, lambda: os.read(fd, 1))
        os.close(fd)

    def dots() -> None:
        assert os.stat(os.path.join(directory, ".")).st_ino == os.stat(directory).st_ino

    yield "scandir types", types
    yield "scandir inodes", inodes
    yield "listdir", names
    yield "directory descriptors", by_descriptor
    yield "dot", dots
    if any(entry.is_dir() for entry in entries()):
        first = next(entry.name for entry in entries() if entry.is_dir())
        yield "dot dot", lambda: _same(os.path.join(directory, first, ".."), directory)
    yield "trailing slash after a directory", lambda: _same(f"{directory}/", directory)


def _errors(file: Path, directory: Path) -> Iterator[Check]:
    def failing(name: str, code: int, test: Callable[[], object]) -> Check:
        return name, lambda: _fails(code, test)

    absent = directory / "there is no such name"
    yield failing("stat of an absent name", errno.ENOENT, lambda: os.stat(absent))
    yield failing("open of an absent name", errno.ENOENT, lambda: os.open(absent, os.O_RDONLY))
    yield failing("trailing slash after a file", errno.ENOTDIR, lambda: os.stat(f"{file}/"))
    yield failing("a name below a file", errno.ENOTDIR, lambda: os.stat(file / "x"))
    yield failing("O_DIRECTORY on a file", errno.ENOTDIR, lambda: os.open(file, os.O_RDONLY | os.O_DIRECTORY))
    yield failing("listdir of a file", errno.ENOTDIR, lambda: os.listdir(file))
    yield failing("readlink of a file", errno.EINVAL, lambda: os.readlink(file))
    yield failing("a name of 256 bytes", errno.ENAMETOOLONG, lambda: os.stat(directory / ("x" * 256)))
    yield failing("executing a file", errno.EACCES, lambda: os.execv(file, [str(file)]))


def _mutations(file: Path, directory: Path) -> Iterator[Check]:
    new = directory / "new"
    changes: dict[str, Callable[[], object]] = {
        "open for writing": lambda: os.open(file, os.O_WRONLY),
        "open for reading and writing": lambda: os.open(file, os.O_RDWR),
        "open with O_TRUNC": lambda: os.open(file, os.O_WRONLY | os.O_TRUNC),
        "open with O_APPEND": lambda: os.open(file, os.O_WRONLY | os.O_APPEND),
        "create": lambda: os.open(new, os.O_WRONLY | os.O_CREAT),
        "create exclusively": lambda: os.open(new, os.O_RDONLY | os.O_CREAT | os.O_EXCL),
        "O_TMPFILE": lambda: os.open(directory, os.O_TMPFILE | os.O_RDWR),
        "truncate": lambda: os.truncate(file, 0),
        "chmod": lambda: os.chmod(file, 0o777),
        "chmod of a directory": lambda: os.chmod(directory, 0o777),
        "chown to another": lambda: os.chown(file, 1, 1),
        "chown": lambda: os.chown(file, os.getuid(), os.getgid()),
        "utime": lambda: os.utime(file, (1, 1)),
        "utime of a directory": lambda: os.utime(directory, (1, 1)),
        "unlink": lambda: os.unlink(file),
        "rmdir": lambda: os.rmdir(directory),
        "mkdir": lambda: os.mkdir(new),
        "mkfifo": lambda: os.mkfifo(new),
        "mknod": lambda: os.mknod(new),
        "rename": lambda: os.rename(file, new),
        "link": lambda: os.link(file, new),
        "symlink": lambda: os.symlink("target", new),
        "setxattr": lambda: os.setxattr(file, "user.new", b"1"),
        "removexattr": lambda: os.removexattr(file, "user.new"),
    }
    if os.path.ismount(directory):
        del changes["rmdir"]  # EBUSY, whatever is mounted
    for name, change in changes.items():
        yield name, partial(_fails, errno.EROFS, change)


def _fails(code: int, test: Callable[[], object]) -> None:
    found = 0
    try:
        test()
    except OSError as error:
        found = error.errno or 0
    assert found == code, f"{errno.errorcode.get(found, 'no error')} instead of {errno.errorcode[code]}"


def _same(path: str | os.PathLike[str], other: str | os.PathLike[str]) -> None:
    assert os.path.samestat(os.stat(path), os.stat(other)), f"{path} is not {other}"
