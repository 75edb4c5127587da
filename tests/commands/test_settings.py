"""Options from files and the environment: which wins, what is wrong with one is said with its place."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path

import forking
import pytest
from forked import in_fork, leave_root
from forking import environment
from mounting import fsbridge, mounted, without_log_notice
from small_stores import FORMATS

from fsbridge.commands import mount, settings
from fsbridge.config import Config
from fsbridge.errors import SetupError


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The machine's file and the user's, which are not there yet."""
    machine, user = tmp_path / "etc.toml", tmp_path / "config" / "fsbridge" / "config.toml"
    user.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in [name for name in os.environ if name.startswith("FSBRIDGE_")]:
        monkeypatch.delenv(name)
    return machine, user


Parse = Callable[..., Config]


@pytest.fixture
def parse(files: tuple[Path, Path]) -> Parse:
    """Parses a command line of `mount`, with the files of this test."""

    def parse(*words: str, source: str = "/store", file: str | None = None) -> Config:
        return mount.parse("fsbridge mount", [source, "/mnt", *words], file=file, machine_file=str(files[0]))

    return parse


def test_without_any_nothing_changes(parse: Parse) -> None:
    assert parse() == Config("/store", "/mnt")


def test_the_order_in_which_they_win(files: tuple[Path, Path], parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, user = files
    machine.write_text(
        '[mount]\ncache-size = "1M"\nspill_size = "1M"\nmetadata-ttl = 1.5\nallow-other = true\nxattrs = true\n'
    )
    assert parse() == Config(
        "/store", "/mnt", cache_size=1 << 20, spill_size=1 << 20, metadata_ttl=1.5, allow_other=True, xattrs=True
    )
    user.write_text(
        '[mount]\ncache-size = "2M"\nxattrs = false\n[sources.brain]\nsource = "/data/brain"\nspill-size = "3M"\n'
    )
    assert (parse().cache_size, parse().xattrs) == (2 << 20, False)
    brain = parse(source="brain")
    assert (brain.source, brain.spill_size, brain.cache_size) == ("/data/brain", 3 << 20, 2 << 20)
    monkeypatch.setenv("FSBRIDGE_SPILL_SIZE", "4M")
    monkeypatch.setenv("FSBRIDGE_ALLOW_OTHER", "no")
    assert (parse(source="brain").spill_size, parse().allow_other) == (4 << 20, False)
    assert parse("--spill-size", "5M", source="brain").spill_size == 5 << 20
    assert parse("-o", "spill_size=6M", source="brain").spill_size == 6 << 20


def test_variables_of_mount_options_are_settings_too(parse: Parse, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("FSBRIDGE_LAYOUT=n5\nFSBRIDGE_CACHE_SIZE=3M\n")
    config = parse("-o", f"env_file={tmp_path}/env,env.FSBRIDGE_LAYOUT=files")
    assert (config.layout, config.cache_size) == ("files", 3 << 20)
    assert parse("-o", "env.FSBRIDGE_LAYOUT=files,layout=zarr2").layout == "zarr2"
    with pytest.raises(SetupError, match=r"^FSBRIDGE_CACHE_SIZE: "):
        parse("-o", "env.FSBRIDGE_CACHE_SIZE=many")


def test_variables_tell_where_the_users_file_is_but_not_to_the_helper(
    parse: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, number in (("config/fsbridge", 1), ("home/.config/fsbridge", 2), ("own", 3)):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "config.toml").write_text(f'[mount]\ncache-size = "{number}M"\n')
    assert settings.find_own_file() == f"{pwd.getpwuid(os.geteuid()).pw_dir}/.config/fsbridge/config.toml"
    own = parse(file=settings.find_own_file()).cache_size >> 20
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    taken: list[int] = []

    def take(config: Config) -> int:
        taken.append(config.cache_size >> 20)
        return 0

    def size() -> int:
        mount.helper("mount.fsbridge", ["/store", "/mnt"], take)
        assert parse(file=str(tmp_path / "own/config.toml")).cache_size >> 20 == 3
        return parse().cache_size >> 20

    sizes = [size()]
    for name, value in (("XDG_CONFIG_HOME", "not/absolute"), ("HOME", "")):
        monkeypatch.setenv(name, value)
        sizes.append(size())
    assert (sizes, taken) == ([1, 2, own], [own, own, own])


def test_a_home_that_the_user_may_not_enter_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after runuser or setpriv, which leave HOME as it was."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings.find_user_file() == f"{tmp_path}/.config/fsbridge/config.toml"

    def look() -> None:
        os.chmod(tmp_path, 0o000)
        leave_root()
        assert settings.find_user_file() == settings.find_own_file()

    try:
        assert in_fork(look) == ""
    finally:
        os.chmod(tmp_path, 0o700)


def test_lists_are_options_with_several_values(
    files: tuple[Path, Path], parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    files[0].write_text('[mount]\nlayout = ["zarr3", "n5"]\nallow-external = ["/a", "/b"]\n')
    assert (parse().layout, parse().allow_external) == ("zarr3,n5", ("/a", "/b"))
    assert parse("--allow-external", "/c").allow_external == ("/a", "/b", "/c")
    monkeypatch.setenv("FSBRIDGE_ALLOW_EXTERNAL", "/d")
    assert parse().allow_external == ("/d",)


def test_a_path_is_not_a_name(
    files: tuple[Path, Path], parse: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files[0].write_text('[sources.brain]\nsource = "s3://bucket/brain"\nregion = "eu-west-1"\n')
    monkeypatch.chdir(tmp_path)
    assert parse(source="brain").source == "s3://bucket/brain"
    assert parse(source="brain").remote.region == "eu-west-1"
    assert parse(source="./brain").source == str(tmp_path / "brain")


def test_a_path_in_a_named_source_is_below_that_of_the_source(
    files: tuple[Path, Path], parse: Parse, tmp_path: Path
) -> None:
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "zarr.json").touch()
    files[0].write_text(
        f'[sources.all]\nsource = "s3://bucket/x"\n[sources.one]\nsource = "{tmp_path}/x.zarr//volumes/"\nlayout = "n5"\n'
    )
    assert (parse(source="all//a/b").source, parse(source="all//a/b").inside) == ("s3://bucket/x", ("a", "b"))
    one = parse(source="one//raw")
    assert (one.source, one.inside, one.layout) == (f"{tmp_path}/x.zarr", ("volumes", "raw"), "n5")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mount", "not valid TOML: "),
        ("\x00", "not valid TOML: "),
        ("a = 1", "unknown section or key 'a'"),
        ("mount = 3", "mount is not a section"),
        ("sources = 3", "sources is not a section"),
        ("[sources]\nbrain = 'x'", "sources.brain is not a section"),
        ("[mount]\ncash-size = '1M'", "[mount]: unknown option 'cash-size'\n  perhaps cache-size?"),
        ("[mount]\nforeground = true", "[mount]: unknown option 'foreground'"),
        (
            "[mount]\ncache-size = 'big'",
            "[mount]: argument --cache-size: 'big' is not a size; write for example 64M or 1GiB",
        ),
        ("[mount]\ncache-size = true", "[mount] cache-size takes a text or a number, not True"),
        ("[mount]\nxattrs = 'yes'", "[mount] xattrs is a switch: write true or false, not 'yes'"),
        ("[mount]\nlayout = [1]", "[mount] layout takes a text or a number, not [1]"),
        ("[sources.brain]\nregion = 'x'", '[sources.brain] has no source = "..."'),
        ("[sources.brain]\nsource = 's'\nregoin = 'x'", "[sources.brain]: unknown option 'regoin'\n  perhaps region?"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(files: tuple[Path, Path], parse: Parse, text: str, said: str) -> None:
    files[0].write_text(text)
    with pytest.raises(SetupError) as caught:
        parse(source="brain")
    assert str(caught.value).startswith(str(files[0]))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FSBRIDGE_CACHE_SIZE", "big", "FSBRIDGE_CACHE_SIZE: argument --cache-size: 'big' is not a size"),
        ("FSBRIDGE_XATTRS", "perhaps", "FSBRIDGE_XATTRS=perhaps: the option is a switch\n  write FSBRIDGE_XATTRS=1"),
    ],
)
def test_what_is_wrong_in_a_variable_is_said_with_its_name(
    parse: Parse, name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError) as caught:
        parse()
    assert str(caught.value).startswith(said)


def test_a_service_named_fsbridge_does_no_harm(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes gives every pod variables of that kind."""
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR", "MOUNT"):
        monkeypatch.setenv(f"FSBRIDGE_{name}", "10.0.0.1")
    assert parse() == Config("/store", "/mnt")


@pytest.mark.parametrize(
    ("name", "near"), [("LAYOT", "LAYOUT"), ("CACHESIZE", "CACHE_SIZE"), ("ALLOW_OTHERS", "ALLOW_OTHER")]
)
def test_a_mistyped_variable_is_refused(parse: Parse, monkeypatch: pytest.MonkeyPatch, name: str, near: str) -> None:
    monkeypatch.setenv(f"FSBRIDGE_{name}", "files")
    with pytest.raises(SetupError, match=f"FSBRIDGE_{name}: no option is called so\n  perhaps FSBRIDGE_{near}\\?"):
        parse()


def test_a_named_source_is_mounted_and_shown(tmp_path: Path) -> None:
    FORMATS["n5"][1](tmp_path / "store.n5")
    (tmp_path / "mnt").mkdir()
    (tmp_path / "fsbridge").mkdir()
    text = f'[mount]\nxattrs = true\n[sources.brain]\nsource = "{tmp_path}/store.n5"\nlayout = "zarr2"\n'
    (tmp_path / "fsbridge" / "config.toml").write_text(text)
    env = {**environment(), "XDG_CONFIG_HOME": str(tmp_path), "FSBRIDGE_CACHE_SIZE": "64M", "XDG_RUNTIME_DIR": str(tmp_path)}

    def run(*words: str) -> str:
        done = forking.run(*words, env=env)
        assert (done.returncode, without_log_notice(done.stderr)) == (0, "")
        return str(done.stdout)

    place = f"{tmp_path}/fsbridge/config.toml"
    assert run("ctl", "config", "brain").splitlines() == [
        f"source = {tmp_path}/store.n5    ({place} [sources.brain])",
        f"xattrs = true    ({place} [mount])",
        f"layout = zarr2    ({place} [sources.brain])",
        "cache-size = 64M    (FSBRIDGE_CACHE_SIZE)",
    ]
    assert {row["option"] for row in json.loads(run("ctl", "config", "--json"))} == {"xattrs", "cache-size"}
    run("mount", "brain", str(tmp_path / "mnt"))
    try:
        assert (tmp_path / "mnt" / "a" / ".zarray").exists()
        assert os.getxattr(tmp_path / "mnt", "user.fsbridge.format") == b"n5"
        (row,) = json.loads(run("status", str(tmp_path / "mnt"), "--json"))
        assert row["cache"]["size"] == 64 << 20
        assert run("run", "brain//a", "--", "ls", "-A", "{}") == run("ls", "brain//a")
    finally:
        subprocess.run(["umount", tmp_path / "mnt"], check=True)
    assert not mounted(tmp_path / "mnt")


def test_all_libraries_have_their_versions_printed() -> None:
    lines = fsbridge("--version", "--verbose").stdout.splitlines()
    assert lines[0] == fsbridge("--version").stdout.strip()
    assert {line.split()[0] for line in lines} >= {"fsbridge", "Python", "pyfuse3", "numpy", "h5py", "libfuse", "Linux"}
    assert "(not found)" not in "".join(lines)
