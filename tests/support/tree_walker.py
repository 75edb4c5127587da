"""Walk a tree without FUSE, as the kernel would: every listed entry is looked up, every file read to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsbridge.errors import FsbridgeError
from fsbridge.tree import AnyNode, Directory, Symlink


def walk(directory: Directory, path: bytes = b"") -> dict[bytes, bytes | FsbridgeError]:
    """Content by path: files' bytes, links' targets as `-> target`, and the error of whatever cannot be opened."""
    found: dict[bytes, bytes | FsbridgeError] = {}
    seen: set[bytes] = set()
    for batch in directory.entries():
        for entry in batch:
            assert entry.name not in seen, "listed twice"
            assert 0 < len(entry.name) <= 255
            assert not {b"/", b"\0"} & {entry.name[i : i + 1] for i in range(len(entry.name))}
            seen.add(entry.name)
            place = path + b"/" + entry.name
            try:
                node = directory.lookup(entry.name)
                attrs = node.attrs()
                assert attrs.kind == entry.attrs.kind
                assert entry.attrs.size in (None, attrs.size)
                if node.slot is not None:
                    space, position = node.slot
                    assert entry.node == position
                    assert space is directory.space or directory.space is None or path == b""
                found.update(walk(node, place) if isinstance(node, Directory) else {place: content(node)})
            except FsbridgeError as error:
                found[place] = error
    return found


def written(directory: Directory, folder: Path) -> Path:
    """Write the tree as real files, for an independent reader."""
    for path, data in walk(directory).items():
        assert isinstance(data, bytes), data
        file = folder / path.decode().lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


def content(node: AnyNode, step: int = 1000) -> bytes:
    """A file's bytes read in pieces of `step`, or a link's target."""
    if isinstance(node, Symlink):
        return b"-> " + node.target
    assert not isinstance(node, Directory)
    size = node.measure().size
    assert size is not None
    handle = node.open()
    data = b""
    while len(data) < size:
        wanted = min(step, size - len(data))
        part = handle.peek(len(data), step)
        if part is None:
            part = handle.read(len(data), step)
        assert len(part) == wanted
        data += bytes(part)
    assert bytes(handle.read(size, 10)) == b""
    handle.close()
    return data


def find_node(directory: AnyNode, path: str) -> Any:
    """The node at a path below a directory."""
    node: Any = directory
    for name in filter(None, path.split("/")):
        node = node.lookup(name.encode("utf-8", "surrogateescape"))
    return node


def read_file(directory: AnyNode, path: str) -> bytes:
    """All bytes of a file, read at once; its size is told before any of them is read (P2)."""
    file = find_node(directory, path)
    size, handle = file.measure().size, file.open()
    try:
        assert size == handle.size
        found = bytes(handle.read(0, handle.size))
        assert len(found) == size
        return found
    finally:
        handle.close()
