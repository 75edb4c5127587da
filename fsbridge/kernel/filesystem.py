"""The FUSE requests: what each of the kernel's questions asks of the tree, and the reply.

Every handler is behind the errno boundary, has a deadline, and blocks nothing: it answers from memory or hands one job to
a worker lane. Statements between two `await`s run alone, which the inode and handle tables rely on. Not here: what the
tree contains (`layouts/`), reads on workers (`jobs.py`), errnos (`errors.py`), mounting (`mount/`).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext, StatvfsData

from fsbridge.asking import WouldWait, oldest, without_waiting
from fsbridge.config import Config
from fsbridge.errors import CorruptData, NameTooLong, NotFound, ReadOnly, Stale, TimedOut
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.boundary import Counters, Reporter, guarded, silent
from fsbridge.kernel.directories import Directories
from fsbridge.kernel.handles import HandleTable, Listing, OpenFile, open_file, open_listing
from fsbridge.kernel.inodes import ROOT, InodeTable
from fsbridge.kernel.jobs import Jobs, Loads
from fsbridge.kernel.lanes import Subject
from fsbridge.kernel.limits import USUAL, KernelLimits
from fsbridge.kernel.pages import PageVersions, StaleOpens
from fsbridge.kernel.readahead import NoReadAhead, ReadAhead
from fsbridge.kernel.records import HELD, Record, open_node
from fsbridge.kernel.replies import DOT_ENTRIES, MAX_XATTR, Replies, Reply, check_target
from fsbridge.threads.deadlines import Stopwatch
from fsbridge.tree import MAX_NAME, AnyNode, Attrs, Buffer, Directory, File, Handle, Space, Symlink, Unsettled

T = TypeVar("T")


class Filesystem(pyfuse3.Operations):
    """The handlers of one mount. `jobs` must have been started before the first request."""

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(
        self,
        root: Directory,
        config: Config,
        jobs: Jobs,
        limits: KernelLimits = USUAL,
        reply: Reply = pyfuse3.readdir_reply,
    ) -> None:
        """Make the handlers of a mount that shows `root`. `reply` adds an entry to the reply to `readdir`."""
        super().__init__()
        self._limits = limits
        self.config = config
        self.begun = threading.Event()
        self.jobs = jobs
        self.counters = Counters()
        self.tell_access: Callable[[str, int, int, int, float], object] | None = None
        """Called for each open, and each read not answered from memory, with: what, inode, offset, size, seconds.

        It must not block.
        """
        self.reporter = Reporter(self.counters)
        self.under_way = 0
        self.stale = StaleOpens()
        self.inodes = InodeTable(root, self._unread, limits)
        self.files: HandleTable[OpenFile] = HandleTable()
        self.listings: HandleTable[Listing] = HandleTable()
        self.pages = PageVersions()
        self.ages = Ages(config)
        self.directories = Directories(self.inodes, self.ages, limits)
        self.ahead = NoReadAhead()
        if config.read_ahead:
            self.ahead = ReadAhead(config, self.inodes, self.directories, jobs, self.ages, self._failed_ahead, limits)
        self.loads = Loads(jobs, config, self.ages)
        self.replies = Replies(self.inodes, self.ages, config, reply)

    def init(self) -> None:
        """Note that the kernel has begun to send requests."""
        self.begun.set()

    def path_of(self, handler: str, subject: Any) -> str:
        """Return the path of the node that a handler's first argument stands for, for the log."""
        inode = self._inode_of(handler, subject)
        return "?" if inode is None else self.inodes.path(inode)

    def note_outdated(self, handler: str, subject: Any) -> None:
        """Forget what is remembered of the path. The kernel looks it up again and must not get the outdated answer again."""
        self.ages.doubt()
        self.directories.doubt(self._inode_of(handler, subject))
        if handler in ("open", "getattr"):
            holder = self.inodes.find(subject)
            self.stale.note((holder.parent, holder.name) if isinstance(holder, Record) else subject)

    def _inode_of(self, handler: str, subject: Any) -> int | None:
        """Return the inode that a handler's first argument stands for; None for a closed handle."""
        if handler == "statfs":
            return ROOT
        if handler not in ("read", "readdir"):
            return cast(int, subject)
        handle = self.files.get(subject) if handler == "read" else self.listings.get(subject)
        return None if handle is None else handle.inode

    # Names and attributes

    @guarded
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Find a name; in an immutable store the kernel also remembers its absence."""
        if len(name) > MAX_NAME:
            raise NameTooLong(f"the name has {len(name)} bytes, the limit is {MAX_NAME}")
        seen = self.directories.look_up(parent_inode, name)
        if seen is not None:
            self.inodes.count_again(seen[0])
            return self.replies.make_attributes(*seen)

        def find(directory: AnyNode) -> tuple[AnyNode, Attrs, float]:
            node = cast(Directory, directory).lookup(name)
            return node, node.attrs(), oldest()

        try:
            node, attrs, asked = await self._ask(parent_inode, find, name)
        except NotFound:
            if not self.config.immutable:
                raise
            return self.replies.make_absence()
        attrs = await self._sized(node, attrs, Subject(parent_inode, name))
        apart = self._apart(node, attrs)
        inode = self.inodes.count_looked_up(parent_inode, name, apart, attrs.kind)
        if node.slot is not None:
            self.stale.note_look_up(inode, parent_inode, name, self.inodes.number(*node.slot))
        reply = self.replies.make_attributes(inode, attrs, self.ages.left(asked))
        if apart is not node or isinstance(apart.version, Unsettled):
            reply.entry_timeout = 0  # the kernel looks up again before an open; after a failed one it does that only once
        return reply

    def _apart(self, node: AnyNode, attrs: Attrs) -> AnyNode:
        """Return `node`, or its present version as a separate node with its own inode if the page cache must not be shared.

        It must not be shared while an outdated version is open, or just after a change, when two opens may see different
        bytes.
        """
        if node.slot is None or attrs.kind != "file" or self.config.immutable:
            return node
        pinned, inode = cast(File, node).pinned, self.inodes.number(*node.slot)
        if pinned is None:
            return node
        if isinstance(pinned.version, Unsettled) or (inode is not None and self.pages.is_outdated(inode, pinned.version)):
            return pinned
        return node

    @silent
    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Subtract the lookups that the kernel gives up from the counts of its inodes."""
        for inode, lookups in inode_list:
            self.pages.forget(inode)
            if self.inodes.forget(inode, lookups):
                self.directories.forget(inode)

    @guarded
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        """Return the attributes of an inode."""
        node, attrs, asked = await self._ask(inode, lambda node: (node, node.attrs(), oldest()))
        attrs = await self._sized(node, attrs, self._subject(inode))
        return self.replies.make_attributes(inode, attrs, self.ages.left(asked))

    @guarded
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        """Return a symlink's target."""
        return check_target(await self._ask(inode, lambda node: bytes(cast(Symlink, node).target)))

    @guarded
    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        """True if reading or searching is permitted. The kernel asks only without the option `default_permissions`."""
        if mode & os.W_OK:
            raise ReadOnly("the mount is read-only")
        attrs = await self._ask(inode, lambda node: node.attrs())
        return not mode & os.X_OK or attrs.kind == "directory"

    @guarded
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        """Return one extended attribute. Without `--xattrs` the answer is ENOSYS, which makes the kernel stop asking."""
        if not self.config.xattrs:
            raise FUSEError(errno.ENOSYS)
        if not name.startswith(b"user."):  # the kernel's own questions (security.*, system.*) cost no job
            raise FUSEError(errno.ENODATA)
        xattrs = await self._ask(inode, lambda node: node.xattrs())
        value = xattrs.get(name.decode("utf-8", "surrogateescape"))
        if value is None:
            raise FUSEError(errno.ENODATA)
        return bytes(value)

    @guarded
    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        """Return the names of the extended attributes that can be read.

        Others are left out, because a program that copies attributes fails if it cannot read one that is listed.
        """
        if not self.config.xattrs:
            raise FUSEError(errno.ENOSYS)
        xattrs = await self._ask(inode, lambda node: node.xattrs())
        return [name.encode("utf-8", "surrogateescape") for name, value in xattrs.items() if len(value) <= MAX_XATTR]

    @guarded
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        """Describe a full disk of unknown size, because nothing can be written."""
        reply = StatvfsData()
        reply.f_bsize = reply.f_frsize = 4096
        reply.f_blocks = reply.f_bfree = reply.f_bavail = reply.f_files = reply.f_ffree = reply.f_favail = 0
        reply.f_namemax = 255
        return reply

    # Files

    @guarded
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        """Open a file for reading. ESTALE for an outdated node makes the kernel look its path up again."""
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise ReadOnly("the mount is read-only")
        begun, holder = Stopwatch(), self.inodes.find(inode)
        node = holder.node if isinstance(holder, HELD) else holder
        if node is not None:
            self.ahead.note_opening(node, self.pages.was_open(inode))
        again = self.stale.until(inode) is not None
        above = self.inodes.find(holder.parent) if isinstance(holder, Record) and again else None
        try:
            with without_waiting(), self.ages.begin_open():
                handle, direct = open_file(holder, above)
        except WouldWait:
            deadline, subject = self._deadline(self.config.metadata_deadline), self._subject(inode)

            def open_now() -> tuple[Handle, bool]:
                with self.ages.begin_open():
                    return open_file(holder, above)

            handle, direct = await self.jobs.metadata.run(
                open_now, deadline, lambda late: self._discard(late and late[0]), subject
            )
        try:
            file = OpenFile(inode, handle, holder)
            reply = self._admit(file, flags, again, direct)
        except BaseException:
            self._discard(handle)
            raise
        if (tell := self.tell_access) is not None:
            tell("open", inode, 0, file.size, begun.seconds)
        return reply

    def _admit(self, file: OpenFile, flags: int, again: bool, direct: bool) -> FileInfo:
        """Count an open, and decide how it may use the page cache.

        `again`: this is the second try after a Stale one, so the kernel does not look the name up once more. `direct`: the
        opened version is another one than that of the inode.
        """
        reply = FileInfo(keep_cache=True, direct_io=direct)
        caching = self.pages.count_open(file.inode, file.version) if file.unversioned else None
        try:
            if caching is not None and not self.config.immutable:
                if caching.direct and file.slot is not None and not again:
                    raise Stale("an outdated version is open; the next look-up gives the present one another inode")
                reply.keep_cache, reply.direct_io = caching
            file.watch(reply.direct_io or bool(flags & os.O_DIRECT))
            self.ahead.note_open(file)
            reply.fh = self.files.add(file)
        except BaseException:
            if caching is not None:
                self.pages.count_close(file.inode, file.version)
            raise
        return reply

    @guarded
    async def read(self, fh: int, off: int, size: int) -> Buffer:  # type: ignore[override]  # any buffer will do
        """Return exactly the bytes asked for, up to the file's end: from memory, or by a job that several requests share."""
        file = self.files[fh]
        if file.unversioned:
            self.pages.note_used(file.inode, file.version)
        want = min(size, file.size - off)
        if want <= 0:
            return b""
        if file.scattered is not None and file.scattered.declines(off, off + want):
            # no program sees the error: the kernel asks again, for only the page that is needed
            raise FUSEError(errno.EAGAIN)
        data = file.handle.peek(off, want)
        if data is None:
            begun = Stopwatch()
            data = await self.loads.read(file, off, want, self._subject(file.inode))
            if (tell := self.tell_access) is not None:
                tell("read", file.inode, off, want, begun.seconds)
        if memoryview(data).nbytes != want or not memoryview(data).c_contiguous:
            raise CorruptData(f"a read of {want} bytes at {off} gave {len(data)}; the file has {file.size}")
        self.ahead.note_read(file, off, off + want)
        self.counters.bytes_read += want
        return data

    @silent
    async def release(self, fh: int) -> None:
        """Close a file."""
        file = self.files.pop(fh)
        if file.unversioned:
            self.pages.count_close(file.inode, file.version)
        file.handle.close()

    def _unread(self, base: int, space: Space | None) -> None:
        """Drop the read-ahead state of a space that the kernel has forgotten or that was parked."""
        self.ahead.forget_space(base, space)

    def _failed_ahead(self, error: Exception) -> None:
        """Log and count a bug in read-ahead, for which no request waits. Called on the threads of the read-ahead."""
        self.jobs.on_loop(lambda: self.reporter.errno(error, "read-ahead", lambda: "-"))

    def _discard(self, handle: Handle | None) -> None:
        """Close a handle that was opened too late: its request has been given up."""
        if handle is not None:
            try:
                handle.close()
            except Exception as error:  # part of the boundary: runs on the event loop, outside any handler
                self.reporter.errno(error, "close", lambda: "-")

    # Directories

    @guarded
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        """Open a directory; no entry is read yet.

        A directory that has changed since it was looked up must raise Stale here: the kernel looks it up again after a
        failed open, but not after a failed listing.
        """
        reading = self.directories.find_young(inode)
        await self.ahead.note_entering(inode, reading is not None)
        reading = reading or self.directories.find_young(inode)
        if reading is not None:
            listing = Listing(inode, reading.node, reading, self._limits)
        else:
            listing = await self._ask(inode, partial(open_listing, inode, self.ages, self._limits))
            if listing.reading is not None:
                self.directories.remember(inode, listing.reading)
        self.ahead.note_listing(listing)
        return self.listings.add(listing)

    @guarded
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        """Reply with entries of one batch, and their attributes, from position `start_id` on: as many as fit."""
        listing = self.listings[fh]
        if start_id < DOT_ENTRIES and not self.replies.add_dots(listing.inode, start_id, token):
            return
        position = max(0, start_id - DOT_ENTRIES)
        rewind = start_id == 0 and not listing.begins(self.ages)
        while rewind or not listing.at(position):  # each step of a long first listing has its own deadline
            try:
                await self.loads.list(listing, position, rewind)
                rewind = False
            except TimedOut:  # the abandoned job still works on this listing
                self.listings.replace(fh, Listing(listing.inode, listing.directory, limits=self._limits))
                raise
            if (whole := listing.whole()) is not None:
                self.directories.remember(listing.inode, whole)
        self.replies.add_entries(listing, position, token)
        if position:  # a program that has asked for more than the beginning will ask for the rest
            self.ahead.note_progress(listing)

    @silent
    async def releasedir(self, fh: int) -> None:
        """Close a directory."""
        listing = self.listings.pop(fh)
        if listing.holds:
            await self.jobs.metadata.run(listing.close, self._deadline(self.config.metadata_deadline))

    # Everything that would change the store

    @guarded
    async def _refuse(self, *args: object) -> NoReturn:
        """Refuse a change with EROFS (P1). Such a request arrives only if the mount was remounted rw."""
        raise ReadOnly("the mount is read-only")

    setattr = mknod = mkdir = unlink = rmdir = symlink = rename = link = _refuse  # type: ignore[assignment]
    create = write = setxattr = removexattr = _refuse  # type: ignore[assignment]

    # Helpers

    @staticmethod
    def _deadline(seconds: float) -> float:
        return trio.current_time() + seconds

    def _subject(self, inode: int, name: bytes | None = None) -> Subject:
        """Return the subject of a job for `inode` or its member `name`. In a chunk directory no member is told apart."""
        if name is not None and isinstance(self.inodes.find(inode), Record):
            return Subject(inode, name)
        return Subject(self.inodes.parent(inode), inode)

    async def _ask(self, inode: int, question: Callable[[AnyNode], T], name: bytes | None = None) -> T:
        """Return `question(node)` for the node behind `inode`; `name`: the member that the question is about, if it is one.

        The question runs on the event loop. If it would have to wait, it runs again on a worker of the metadata lane. If
        remembered answers lead to an error, the question is asked again without them (see `Ages.ask`).
        """
        holder = self.inodes.find(inode)

        def ask() -> T:
            return self.ages.ask(lambda: question(open_node(holder)))

        try:
            with without_waiting():
                return ask()
        except WouldWait:
            pass
        deadline = self._deadline(self.config.metadata_deadline)
        return await self.jobs.metadata.run(ask, deadline, subject=self._subject(inode, name))

    async def _sized(self, node: AnyNode, attrs: Attrs, subject: Subject) -> Attrs:
        """Return `attrs` with the size. If only decoding tells the size, a thread of the lane for sizes decodes."""
        if attrs.size is not None:
            return attrs
        file = cast(File, node)
        deadline = self._deadline(min(self.config.read_deadline, file.size_seconds))
        return await self.jobs.sizes.run(file.measure, deadline, subject=subject)
