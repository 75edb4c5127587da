"""Commands besides `mount` take options from files and the environment, and know sources that have a name.

The oracle is the same command with the path and the options in its own words. Not here: which file wins, what is wrong with
one, mounts (`test_settings.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import fsbridge
from small_stores import FORMATS

Write = Callable[[str], object]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the user's file of settings; the working directory is that of two stores, `n.n5` and `z.zarr`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("FSBRIDGE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "fsbridge").mkdir()
    FORMATS["n5"][1](tmp_path / "n.n5")
    FORMATS["zarr3"][1](tmp_path / "z.zarr")
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "fsbridge" / "config.toml").write_text


def said(*words: str | os.PathLike[str]) -> str:
    done = fsbridge(*words)
    assert (done.returncode, done.stderr) == (0, ""), words
    return done.stdout


def test_a_name_stands_for_a_source_and_its_options(write: Write, tmp_path: Path) -> None:
    write(f'[sources.brain]\nsource = "{tmp_path}/n.n5"\nlayout = "zarr2"\n')
    path, options = f"{tmp_path}/n.n5", ("--layout", "zarr2")
    assert "a/.zarray" in said("ls", "-R", "brain").splitlines()
    assert said("ls", "-lR", "brain") == said("ls", "-lR", path, *options)
    assert said("ls", "brain//a") == said("ls", f"{path}//a", *options)
    assert said("tree", "brain").splitlines()[1:] == said("tree", path, *options).splitlines()[1:]
    assert said("cat", "brain//a/.zarray") == said("cat", f"{path}//a/.zarray", *options)
    assert said("info", "brain") == said("info", path, *options)
    assert said("info", "--json", "brain") == said("info", "--json", path, *options)
    assert said("info", "brain//a") == said("info", f"{path}//a", *options)
    assert said("digest", "-q", "brain", "brain//a") == said("digest", "-q", path, f"{path}//a")
    assert said("verify", "-q", "--missing", "brain") == said("verify", "-q", "--missing", path)
    assert said("diff", "-q", "brain", path) == ""
    said("export", "-q", "brain//a", "out")
    assert {".zarray", ".zattrs", "0.0"} <= {found.name for found in Path("out").iterdir()}


def test_the_later_place_wins(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[mount]\nlayout = "zarr2"\n[sources.brain]\nsource = "n.n5"\nlayout = "n5"\n')
    assert ".zgroup" in said("ls", "n.n5").splitlines()
    assert "attributes.json" in said("ls", "brain").splitlines()
    monkeypatch.setenv("FSBRIDGE_LAYOUT", "zarr3")
    assert "zarr.json" in said("ls", "brain").splitlines()
    assert "index.html" in said("ls", "brain", "--layout", "files").splitlines()
    monkeypatch.setenv("FSBRIDGE_LAYOUT", "zarr2+files")  # as mount options have lists
    assert said("ls", "brain").split() == ["zarr2", "files"]
    assert said("info", "brain") == said("info", "n.n5")


def test_each_source_of_a_command_has_its_own(write: Write) -> None:
    write(
        '[sources.one]\nsource = "n.n5"\nlayout = "zarr2"\nformat = "n5"\n'
        '[sources.two]\nsource = "z.zarr"\nlayout = "n5"\nformat = "zarr3"\n'
        '[sources.three]\nsource = "n.n5"\nlayout = "zarr3"\n'
    )
    places = (
        ("one//a/.zarray", "n.n5//a/.zarray", "zarr2"),
        ("two//a/attributes.json", "z.zarr//a/attributes.json", "n5"),
        ("three//a/zarr.json", "n.n5//a/zarr.json", "zarr3"),
    )
    alone = [said("cat", place, "--layout", layout) for _, place, layout in places]
    assert said("cat", *(name for name, _, _ in places)) == "".join(alone)
    assert fsbridge("diff", "one", "two").stdout == fsbridge("diff", "n.n5", "z.zarr").stdout
    assert said("digest", "-q", "one", "two//a") == said("digest", "-q", "n.n5", "z.zarr//a")


def test_a_name_may_stand_for_a_group_or_an_array(write: Write) -> None:
    write('[mount]\nlayout = "zarr2,n5"\n[sources.sub]\nsource = "n.n5//a"\nlayout = "zarr2"\n')
    shown = said("ls", "n.n5//a", "--layout", "zarr2")
    assert (said("ls", "sub"), said("cat", "sub//0.0")) == (shown, said("cat", "n.n5//a/0.0", "--layout", "zarr2"))
    assert "1 array," in fsbridge("verify", "sub").stderr
    assert said("info", "sub").splitlines()[1:]
    assert said("ls", "-l", "sub//0.0").endswith(" 0.0\n")


def test_a_path_is_no_name(write: Write) -> None:
    write('[sources."n.n5"]\nsource = "z.zarr"\n')
    assert said("digest", "-q", "n.n5") == said("digest", "-q", "./z.zarr")
    assert said("info", "./n.n5").startswith("./n.n5: n5\n")


def test_options_that_a_command_has_not_are_left_out(write: Write) -> None:
    write('[mount]\nallow-other = true\nmetadata-ttl = 0\ninclude = ["nothing"]\ncache-size = "1M"\n')
    assert "--include nothing: no group or array in " in fsbridge("ls", "n.n5//", "--exclude", "x").stderr
    assert len(said("digest", "-q", "n.n5").splitlines()) == 1
    said("export", "-q", "n.n5", "out")  # its --include is about files
    assert Path("out/a/zarr.json").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("ls x", 1),
        ("cat x//a", 1),
        ("info x", 1),
        ("export x out", 1),
        ("verify x", 1),
        ("diff n.n5 x", 2),
        ("run x -- true", 1),
    ],
)
def test_a_wrong_setting_is_said_with_its_place(write: Write, tmp_path: Path, words: str, code: int) -> None:
    write('[sources.x]\nsource = "n.n5"\ncash-size = "1M"\n')
    done = fsbridge(*words.split())
    message = f"fsbridge: {tmp_path}/fsbridge/config.toml [sources.x]: unknown option 'cash-size'\n  perhaps cache-size?\n"
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_a_named_source_that_is_gone(write: Write, tmp_path: Path) -> None:
    write(f'[sources.x]\nsource = "{tmp_path}/gone.n5"\n')
    for words in ("ls x//a", "info x", "info x//a", "digest x", "doctor x"):
        done = fsbridge(*words.split())
        assert done.returncode == 1
        assert f"{tmp_path}/gone.n5" in done.stdout + done.stderr, words
