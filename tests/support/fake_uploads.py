"""What the fake S3 server (`fake_s3.py`) does with PUT, POST and DELETE: objects whole or in parts. Not here: any test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape

Answer = tuple[int, dict[str, str], bytes]

LEAST_PART = 5 << 20
"""Bytes of every part but the last one, as Amazon has it."""

META = "x-amz-meta-"
"""How the headers of a user's own metadata begin."""


class Uploads:
    """Uploads in parts that have begun, and what becomes an object: `put(key, data, metadata)`."""

    def __init__(self, put: Callable[[str, bytes, Mapping[str, str]], None]) -> None:
        self.begun: dict[str, tuple[str, Mapping[str, str], dict[int, bytes]]] = {}
        """By their ids: key, metadata, parts."""
        self._put = put
        self._count = 0

    def answer(self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> Answer:
        """An answer of the server."""
        metadata = {name: value for name, value in headers.items() if name.startswith(META)}
        if method == "PUT" and "partNumber" in query:
            return self._part(query["uploadId"], int(query["partNumber"]), body)
        if method == "PUT":
            self._put(key, body, metadata)
            return 200, {"ETag": '"put"'}, b""
        if method == "POST" and "uploads" in query:
            self._count += 1
            self.begun[str(self._count)] = (key, metadata, {})
            return 200, {}, _xml("InitiateMultipartUploadResult", Key=key, UploadId=str(self._count))
        if method == "POST" and "uploadId" in query:
            return self._complete(query["uploadId"])
        if method == "DELETE" and "uploadId" in query:
            self.begun.pop(query["uploadId"], None)
            return 204, {}, b""
        return 405, {}, b""

    def _part(self, upload: str, number: int, body: bytes) -> Answer:
        if upload not in self.begun:
            return 404, {}, _xml("Error", Code="NoSuchUpload")
        self.begun[upload][2][number] = body
        return 200, {"ETag": f'"part-{number}"'}, b""

    def _complete(self, upload: str) -> Answer:
        key, metadata, parts = self.begun.pop(upload)
        ordered = [parts[number] for number in sorted(parts)]
        if any(len(part) < LEAST_PART for part in ordered[:-1]):
            return 400, {}, _xml("Error", Code="EntityTooSmall")
        self._put(key, b"".join(ordered), metadata)
        return 200, {}, _xml("CompleteMultipartUploadResult", Key=key, ETag='"whole"')


def _xml(root: str, **values: str) -> bytes:
    inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in values.items())
    return f'<?xml version="1.0"?><{root}>{inner}</{root}>'.encode()
