"""What is opened by its path, such as the files in a collection: beneath SOURCE, however links are switched (P4)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fsbridge.config import Config
from fsbridge.errors import AccessDenied
from fsbridge.formats.hdf5.versions import LocalDataFile
from fsbridge.store import ROOT
from fsbridge.store.blobs import LocalFile
from fsbridge.store.local import LocalStore
from fsbridge.store.local.descriptors import OpenPath, open_beneath
from fsbridge.store.local.files import path_opener


@pytest.fixture
def member(tmp_path: Path) -> Path:
    """A file in a collection; `secret` is beside the collection."""
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection/member").write_bytes(b"member")
    (tmp_path / "secret").write_bytes(b"secret")
    return tmp_path / "collection/member"


def switch(member: Path, target: Path) -> None:
    (member.parent / "new").symlink_to(target)
    (member.parent / "new").rename(member)


def opener(member: Path, *allowed: Path) -> OpenPath:
    return path_opener(Config(str(member.parent), "/nowhere", allow_external=tuple(map(str, allowed))))


def open_blob(member: Path, open_path: OpenPath) -> Callable[[], bytes]:
    file = LocalFile(str(member), open_path=open_path)
    file.look()
    return lambda: file.open().pread(0, 6)


def open_data_file(member: Path, open_path: OpenPath) -> Callable[[], bytes]:
    file = LocalDataFile(str(member), open_path=open_path)
    seen = file.look()
    return lambda: bytes(file.open(seen).read(0, 6))


OPENERS = pytest.mark.parametrize("look_at", [open_blob, open_data_file])


@OPENERS
def test_p4_a_file_that_becomes_a_link_out_of_the_collection_is_not_opened(
    member: Path, look_at: Callable[[Path, OpenPath], Callable[[], bytes]]
) -> None:
    """Between the look at a member and its open, the author of the collection put a link in its place."""
    read = look_at(member, opener(member))
    assert read() == b"member"
    switch(member, member.parent.parent / "secret")
    with pytest.raises(AccessDenied, match="a link out of the store"):
        read()


@OPENERS
def test_links_within_the_collection_and_into_allowed_directories_are_followed(
    member: Path, look_at: Callable[[Path, OpenPath], Callable[[], bytes]]
) -> None:
    (member.parent / "other").write_bytes(b"others")
    read = look_at(member, opener(member, member.parent.parent))
    for target, content in (
        (Path("other"), b"others"),
        (member.parent / "other", b"others"),
        (Path("../secret"), b"secret"),
    ):
        switch(member, Path(target))
        assert read() == content


def test_p4_a_link_is_not_followed_that_is_switched_while_the_file_is_opened(member: Path) -> None:
    def switch_and_open(root: int, path: str, flags: int) -> int:
        switch(member, member.parent.parent / "secret")
        return open_beneath(root, path, flags)

    open_path = path_opener(Config(str(member.parent), "/nowhere"), switch_and_open)
    with pytest.raises(AccessDenied, match="a link out of the store"):
        open_path(str(member), os.O_RDONLY)


def test_the_mounted_file_itself_may_be_a_link(member: Path) -> None:
    link = member.parent.parent / "link"
    link.symlink_to(member)
    fd = path_opener(Config(str(link), "/nowhere"))(str(link), os.O_RDONLY)
    try:
        assert os.read(fd, 6) == b"member"
    finally:
        os.close(fd)


def test_p4_a_repository_that_becomes_a_link_out_of_its_collection_stays_shut(tmp_path: Path) -> None:
    repository = tmp_path / "collection/repository"
    repository.mkdir(parents=True)
    (repository / "file").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").touch()
    store = LocalStore(str(repository), open_path=opener(repository))
    assert [name for names in store.names(ROOT) for name in names] == ["file"]
    repository.rename(tmp_path / "old")
    repository.symlink_to(tmp_path / "outside")
    with pytest.raises(AccessDenied, match="a link out of the store"):
        list(store.names(ROOT))
    store.close()
