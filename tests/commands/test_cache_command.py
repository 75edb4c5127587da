"""`fsbridge ctl cache`: what a block cache holds, by store, and nothing once it is cleared."""

from __future__ import annotations

import json
from pathlib import Path

from mounting import fsbridge

from fsbridge.store import Key
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.client import Object


def filled(folder: Path, *urls: str) -> None:
    for url in urls:
        cache = BlockCache(str(folder), 1 << 30, url)
        for number in range(3):
            cache.put(Object(Key(str(number)), 5000, 10**18, f'"{number}"'), bytes(5000))
        cache.flush()


def test_it_is_shown_by_store_and_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    filled(folder, "s3://b/one", "s3://b/two")
    (folder / "mine").write_text("not a block")
    (folder / "00").mkdir(exist_ok=True)
    (folder / "00" / ("0" * 32)).write_text("damaged")
    rows = json.loads(fsbridge("ctl", "cache", folder, "--json").stdout)
    assert [(row["store"], row["blocks"], row["bytes"]) for row in rows] == [
        ("", 1, 4096),
        ("s3://b/one", 3, 24576),
        ("s3://b/two", 3, 24576),
    ]
    table = fsbridge("ctl", "cache", folder).stdout
    assert "24 KiB" in table
    assert "s3://b/two" in table
    assert fsbridge("ctl", "cache", "--clear", folder).stdout == "52 KiB in 7 blocks removed\n"
    assert fsbridge("ctl", "cache", folder).stdout == "empty\n"
    assert (folder / "mine").exists()


def test_what_is_no_cache_is_refused(tmp_path: Path) -> None:
    done = fsbridge("ctl", "cache", tmp_path / "none")
    assert (done.returncode, "no such directory" in done.stderr) == (1, True)
    assert not (tmp_path / "none").exists()
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    done = fsbridge("ctl", "cache", "--clear", tmp_path / "open")
    assert (done.returncode, "other users could change" in done.stderr) == (1, True)
