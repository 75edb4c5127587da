"""Read-ahead: what programs will want next is made before they ask. See `policy.py`; the other modules are parts of it."""

from __future__ import annotations

from fsbridge.kernel.readahead.policy import NoReadAhead, ReadAhead, read_ahead

__all__ = ["NoReadAhead", "ReadAhead", "read_ahead"]
