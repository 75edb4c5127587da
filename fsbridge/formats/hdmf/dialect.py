"""hdmf-zarr's conventions as a dialect of Zarr: which groups have links, which arrays hold references. Not here: either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fsbridge.codecs import Decoder, table
from fsbridge.errors import PASSING, SHORTAGES, FsbridgeError
from fsbridge.formats.format import Opener
from fsbridge.formats.hdmf.groups import ATTRIBUTES, ROOT_MARK, HdmfGroup
from fsbridge.formats.keyed.dialect import Dialect
from fsbridge.formats.keyed.hierarchy import Hierarchy
from fsbridge.metadata import JSON, DataType
from fsbridge.model import Group
from fsbridge.store import Key


class HdmfDialect(Dialect):
    """Stores tell by their attributes that they are hdmf's. `opener`: for links to other files."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    def group(self, hierarchy: Hierarchy, key: Key) -> Group:
        """A group with links, or the root of a file, which makes those below it groups of the same file."""
        try:
            attributes = hierarchy.group_attributes(key)
        except PASSING:
            raise  # nobody may take its links for absent
        except (FsbridgeError, OSError) as error:  # whoever reads them is told
            if isinstance(error, OSError) and error.errno in SHORTAGES:
                raise
            attributes = {}
        if not any(name in attributes for name in (*ATTRIBUTES, ROOT_MARK)):
            return super().group(hierarchy, key)
        return HdmfGroup(hierarchy, key, self._opener)

    def objects(
        self, stored: np.dtype[Any], codec: JSON, items: int, native: str, attributes: Mapping[str, JSON]
    ) -> tuple[DataType, Decoder] | None:
        """Pickles, which are read by hdmf-zarr's rules and nobody else's, and references in JSON.

        hdmf-zarr marks an array of references by `zarr_dtype`; text is `str` or `scalar` there.
        """
        name = codec.get("id") if isinstance(codec, dict) else None
        if name != "pickle" and not (name == "json2" and attributes.get("zarr_dtype") == "object"):
            return None
        from fsbridge.formats.hdmf import references

        if name == "pickle":
            return references.pickled(stored, items, native)
        return references.json_references(native, table.object_decoder(codec, items)[0])
