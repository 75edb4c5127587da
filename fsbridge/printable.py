"""Text from stores made fit for people: nothing that a terminal would obey or that forges a line. Not here: file names."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return `text` with unprintable characters as `\n`, `\x1b`, `\u202e`, and bytes that are no text as `\xff`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode's spelling of an undecodable byte
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
