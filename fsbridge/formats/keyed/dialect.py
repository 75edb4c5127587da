"""What a convention on top of N5 or Zarr may add: its own groups, and objects in arrays. Not here: any convention.

The code that opens a hierarchy gives it a dialect, and the hierarchy asks the dialect wherever the convention may matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fsbridge.codecs import Decoder
from fsbridge.formats.keyed.hierarchy import Hierarchy, KeyedGroup
from fsbridge.metadata import JSON, DataType
from fsbridge.model import Group
from fsbridge.store import Key


class Dialect:
    """The plain dialect, which adds nothing; base class of the others."""

    def group(self, hierarchy: Hierarchy, key: Key) -> Group:
        """Return the group at `key`."""
        return KeyedGroup(hierarchy, key)

    def objects(
        self, stored: np.dtype[Any], codec: JSON, items: int, native: str, attributes: Mapping[str, JSON]
    ) -> tuple[DataType, Decoder] | None:
        """Return the type and the decoder of elements that are Python objects, or None for the ordinary handling.

        `codec`: the configuration of what encoded them; `items`: elements of a chunk; `native`: the type as the source
        spells it; `attributes`: the array's.
        """
        return None


PLAIN = Dialect()
