"""Listings of buckets with keys that no path can be: `a//b`, `a/./b`, or a control character. Only those are left out.

obstore refuses a whole page with such a key, so boto3 asks for these listings, if it is installed. Only for Amazon's S3
and servers like it. Not here: all other listings (`client.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from fsbridge import confinement
from fsbridge.config import Remote
from fsbridge.errors import CorruptData, Unreachable
from fsbridge.store.remote.urls import Location

log = logging.getLogger(__name__)


class OddKey(CorruptData):
    """A listing has a key that no path can be."""


class OddKeys:
    """Listings by boto3 of the store at `location`. Its client is made at the first one."""

    def __init__(self, location: Location, remote: Remote) -> None:
        self._location = location
        self._remote = remote
        self._client: Any = None
        self._said: set[str] = set()

    def pages(self, prefix: str, after: str | None, one_level: bool) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
        """Yield the prefixes and the objects of each page, as obstore gives them: with keys below the location.

        `after`: only keys behind this one. `one_level`: deeper keys are given as prefixes. Raises CorruptData if boto3 is
        not installed, and Unreachable if the server does not answer boto3.
        """
        root = f"{self._location.path}/" if self._location.path else ""
        asked = {"Bucket": self._location.root, "Prefix": f"{root}{prefix}/" if prefix else root}
        if after is not None:
            asked["StartAfter"] = root + after
        if one_level:
            asked["Delimiter"] = "/"
        pages = iter(self._boto3().get_paginator("list_objects_v2").paginate(**asked))
        while (page := self._next(pages)) is not None:
            prefixes = [item["Prefix"][len(root) : -1] for item in page.get("CommonPrefixes", ())]
            found = [
                {
                    "path": item["Key"][len(root) :].removesuffix("/"),
                    "size": item["Size"],
                    "last_modified": item["LastModified"],
                }
                | {"e_tag": item.get("ETag")}
                for item in page.get("Contents", ())
                if item["Key"] != asked["Prefix"]
            ]
            yield [name for name in prefixes if self._fits(name)], [item for item in found if self._fits(item["path"])]

    def _next(self, pages: Iterator[Any]) -> Any:
        try:
            return next(pages, None)
        except Exception as error:
            raise Unreachable(f"{self._location.text}: cannot be listed by boto3 ({type(error).__name__})") from None

    def _fits(self, key: str) -> bool:
        """Return whether a path can have this name; the first hundred that cannot are logged."""
        if all(part not in ("", ".", "..") for part in key.split("/")) and all(c >= " " and c != "\x7f" for c in key):
            return True
        if key not in self._said and len(self._said) < 100:
            self._said.add(key)
            log.warning("%s: the key %r is left out: no path can have this name", self._location.text, key)
        return False

    def _boto3(self) -> Any:
        if self._client is None:
            self._client = confinement.outside(self._made)
        return self._client

    def _made(self) -> Any:
        try:
            import boto3
            from botocore import UNSIGNED
            from botocore.config import Config
        except ImportError:
            raise CorruptData(
                f"{self._location.text}: cannot be listed: a key in it has an empty part, '.', '..' or a control character, "
                "which needs boto3: pip install '.[aws]' in fsbridge's checkout"
            ) from None
        settings: Any = {"connect_timeout": 2, "read_timeout": 3.5, "retries": {"total_max_attempts": 2}}
        if self._remote.anonymous:
            settings["signature_version"] = UNSIGNED
        if self._remote.endpoint:
            settings["s3"] = {"addressing_style": "path"}
        return boto3.Session(profile_name=self._remote.profile or None).client(
            "s3",
            region_name=self._remote.region or None,
            endpoint_url=self._remote.endpoint or None,
            config=Config(**settings),
        )
