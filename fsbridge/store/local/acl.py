"""Access control lists: a mode shows the list's mask as the group's bits, which may be wider than what the group has.

Whom a list lets read beyond the mode's classes (a named user or group) is not shown: nothing here widens a mode. Not here:
lists of NFS 4 and SMB, whose servers say in the mode what they permit.
"""

from __future__ import annotations

import errno
import os
import struct

from fsbridge.owner import Owner
from fsbridge.store import Stat

_NAME = "system.posix_acl_access"
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_VERSION = 2
_USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 2, 4, 8, 16, 32
_NONE = frozenset((errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS))


def within_list(found: int | str, owner: Owner, follow: bool = True) -> Owner:
    """The owner of the open file, or of what is at the path, with a mode no wider than its access control list.

    It takes no waiting where the inode is in memory: the kernel keeps a list with it.
    """
    if not owner.mode & 0o77:
        return owner
    try:
        data = os.getxattr(found, _NAME, follow_symlinks=follow)
    except OSError as error:
        return owner if error.errno in _NONE else _own(owner)
    return narrowed(owner, data)


def stat_within_list(found: int | str, stat: Stat) -> Stat:
    """The stat of the open file, or of what is at the path, with whom its access control list lets read it."""
    return stat if stat.owner is None else stat._replace(owner=within_list(found, stat.owner))


def narrowed(owner: Owner, data: bytes) -> Owner:
    """The same, given the list as Linux stores it. Who is named in it may have less than the class that he is in."""
    if len(data) < _HEAD.size or (len(data) - _HEAD.size) % _ENTRY.size or _HEAD.unpack_from(data)[0] != _VERSION:
        return _own(owner)
    entries = [(tag, permits) for tag, permits, _ in _ENTRY.iter_unpack(data[_HEAD.size :])]

    def all_of(*tags: int) -> int:
        common = 0o7
        for tag, permits in entries:
            common &= permits if tag in tags else 0o7
        return common

    group, others = all_of(_GROUP_OBJ, _USER, _MASK), all_of(_OTHER, _USER, _GROUP)
    if any(tag in (_USER, _GROUP) for tag, _ in entries):
        others &= all_of(_MASK)
    return owner._replace(mode=owner.mode & (0o700 | group << 3 | others))


def _own(owner: Owner) -> Owner:
    return owner._replace(mode=owner.mode & 0o700)
