"""What only some stores can do: a function each, with an answer for all others. Not here: what all can (`store.Store`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from fsbridge.store import Key, Stat, Store
from fsbridge.store.local.glimpse import Glimpse

Vouch: TypeAlias = Callable[[Key, Iterable[bytes]], tuple[bytes, Stat] | None]
"""Says which of some texts an object is, with its stat and without reading it."""

Look: TypeAlias = Callable[[Key], Glimpse | None]
"""Opens a directory for a look at its documents, see `local/glimpse.py`; None where that would not be in few calls."""


def shows(store: Store, key: Key) -> bool:
    """Whether an object is in a listing that is at hand, and may be old: asking for it may take a request."""
    found: Callable[[Key], bool] | None = getattr(store, "shows", None)
    return found is not None and found(key)


def lacks(store: Store, key: Key) -> bool:
    """Whether nothing of that name is in a listing that is at hand, and may be old."""
    found: Callable[[Key], bool] | None = getattr(store, "lacks", None)
    return found is not None and found(key)


def lacking(store: Store, key: Key, names: Iterable[str], most: int) -> set[str] | None:
    """Those of many names that nothing in a directory has, by one pass over it as it is now; none of its names, if it is not
    there. None where it has more than `most` members or changes meanwhile, and of stores where a pass is no better than to
    ask for each name.
    """
    found: Callable[[Key, Iterable[str], int], set[str] | None] | None = getattr(store, "lacking", None)
    return None if found is None else found(key, names, most)


def vouch(store: Store) -> Vouch | None:
    """Of stores that list ETags; None of others."""
    found: Vouch | None = getattr(store, "vouch", None)
    return found


def glimpse(store: Store) -> Look | None:
    """Of local stores; None of others."""
    found: Look | None = getattr(store, "glimpse", None)
    return found


def revisit(store: Store, key: Key) -> None:
    """An object that was there is about to be looked at again: one far away is asked for meanwhile. Does not block."""
    found: Callable[[Key], object] | None = getattr(store, "revisit", None)
    if found is not None:
        found(key)


def commit(store: Store, key: Key) -> Hashable:
    """What is another one whenever many objects below `key` have changed at once: by a commit, or because a whole tree has
    taken its place; None in stores where objects change one by one."""
    found: Callable[[Key], Hashable] | None = getattr(store, "commit", None)
    return None if found is None else found(key)
