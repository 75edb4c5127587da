"""Child processes. Here: the messages between the daemon and them: a length, a JSON object, attachments.

    u32 LE   bytes of JSON (at most MAX_JSON_BYTES)
    JSON     an object; "attachments" lists the length of each attachment
    bytes    the attachments, one after the other

Neither side unpickles anything, and neither believes a length that it did not limit itself. Not here: how children start
(`starting.py`, `server.py`), one of them as the daemon sees it (`client.py`), what they parse (`formats/`).
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

from fsbridge.threads.deadlines import Deadline

MAX_JSON_BYTES = 64 << 20
"""Most bytes of JSON. The attributes of one object have at most a quarter of it, and names come in pages."""
MAX_ATTACHMENTS = 8

_LENGTH = struct.Struct("<I")
_PIECE_BYTES = 1 << 20


class ProtocolError(Exception):
    """The other side sent something that is not a message."""


class Closed(ProtocolError):
    """The other side is gone."""


def send(sock: socket.socket, message: dict[str, Any], attachments: Sequence[bytes | bytearray | memoryview] = ()) -> None:
    """Send one message. `attachments` are sent as they are."""
    message = {**message, "attachments": [len(part) for part in attachments]}
    text = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_JSON_BYTES:
        raise ProtocolError(f"the message has {len(text)} bytes, the limit is {MAX_JSON_BYTES}")
    sock.sendall(_LENGTH.pack(len(text)) + text)
    for part in attachments:
        sock.sendall(part)


def receive(sock: socket.socket, limit: int, deadline: Deadline | None = None) -> tuple[dict[str, Any], list[bytearray]]:
    """Receive one message with at most `limit` bytes of attachments.

    Raises TimeoutError at `deadline`.
    """
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size, deadline))
    if length > MAX_JSON_BYTES:
        raise ProtocolError(f"the message has {length} bytes, the limit is {MAX_JSON_BYTES}")
    try:
        message = json.loads(bytes(_exactly(sock, length, deadline)))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise ProtocolError("the message is not a JSON object")
    lengths = message.pop("attachments", None)
    if not isinstance(lengths, list) or len(lengths) > MAX_ATTACHMENTS:
        raise ProtocolError("the message does not list its attachments")
    if any(type(size) is not int or size < 0 for size in lengths) or sum(lengths) > limit:
        raise ProtocolError(f"the attachments have {lengths} bytes, the limit is {limit} in all")
    return message, [_exactly(sock, size, deadline) for size in lengths]


def _exactly(sock: socket.socket, size: int, deadline: Deadline | None) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if deadline is not None:
            if deadline.passed:
                raise TimeoutError
            sock.settimeout(max(deadline.left, 1e-3))  # 0 would mean not to wait at all
        got = sock.recv_into(view[:_PIECE_BYTES])
        if not got:
            raise Closed("the other side closed the connection")
        view = view[got:]
    return data
