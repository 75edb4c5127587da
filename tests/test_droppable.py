"""What is only kept goes all at once when memory is wanted, and what is in use does not."""

from __future__ import annotations

import gc
import weakref

from fsbridge import droppable
from fsbridge.droppable import drop_all
from fsbridge.formats.keyed.listedtimes import ListedTimes
from fsbridge.lru import LRU
from fsbridge.model import Batch


def test_all_that_is_kept_goes() -> None:
    kept: LRU[str, int] = LRU(10)
    kept.put("a", 1)
    listed = ListedTimes(60.0)
    assert list(listed.through("c", 1, 10, lambda: iter([Batch([(0, 5)], 0.0)]))) == [Batch([(0, 5)], 0.0)]
    under_way = listed.through("d", 1, 10, lambda: iter([Batch([(1, 6)], 0.0)]))
    next(under_way)
    drop_all()
    assert kept.get("a") is None
    assert list(under_way) == []
    assert list(listed._known) == ["d"], "the listing that was under way"


def test_p11_who_is_gone_is_not_held() -> None:
    kept: LRU[str, int] = LRU(10)
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is None
    assert all(found is not None for found in droppable._known)
