"""The command line: every spelling of an option, errors in one line, nothing heavy imported for help."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fsbridge
from fsbridge import cli
from fsbridge.commands import COMMANDS, Command, argument_types, mount
from fsbridge.commands.arguments import Parser
from fsbridge.config import Config, Remote
from fsbridge.errors import SetupError
from fsbridge.formats.records import COLLECTION, NAMES
from fsbridge.formats.registry import FORMATS
from fsbridge.mount import preflight


def parse(*words: str) -> Config:
    return mount.parse("fsbridge", ["/store", "/mnt", *words])


def test_defaults_are_those_of_the_config() -> None:
    assert parse() == Config("/store", "/mnt")


def test_a_path_behind_two_slashes_is_one_in_the_source(tmp_path: Path) -> None:
    (tmp_path / "plain" / "dir").mkdir(parents=True)
    (tmp_path / "a.n5").mkdir()
    (tmp_path / "a.n5" / "attributes.json").touch()
    (tmp_path / "a.n5" / "dir").mkdir()
    for text, expected in {
        f"{tmp_path}/a.n5//dir": (f"{tmp_path}/a.n5", ("dir",)),
        f"{tmp_path}/a.n5//dir/x%2Fy/": (f"{tmp_path}/a.n5", ("dir", "x/y")),
        f"{tmp_path}/plain//dir": (f"{tmp_path}/plain/dir", ()),
        f"{tmp_path}/plain//not/there": (f"{tmp_path}/plain", ("not", "there")),
        "s3://bucket/a.zarr//dir": ("s3://bucket/a.zarr", ("dir",)),
    }.items():
        found = mount.parse("fsbridge mount", [text, "/mnt"])
        assert (found.source, found.inside) == expected
        if expected[1]:
            assert found.place == text.rstrip("/")
    with pytest.raises(SetupError, match="not a path in a tree"):
        mount.parse("fsbridge mount", [f"{tmp_path}/a.n5//../x", "/mnt"])


OPTIONS: list[tuple[list[str], str, dict[str, Any]]] = [
    (["--foreground"], "foreground", {"foreground": True}),
    (["--debug"], "debug", {"foreground": True, "log_level": "debug"}),
    (["--layout", "files"], "layout=files", {"layout": "files"}),
    (["--layout", "zarr3,n5"], "layout=zarr3+n5", {"layout": "zarr3,n5"}),
    (["--chunk-separator", "/"], "chunk_separator=/", {"chunk_separator": "/"}),
    (["--include", "a/*"], "include=a/*", {"include": ("a/*",)}),
    (["--exclude", "b"], "exclude=b", {"exclude": ("b",)}),
    (["--consolidated"], "consolidated", {"consolidated": True}),
    (["--files", "npy,nii"], "files=npy+nii", {"files": ("npy", "nii"), "layout": "files"}),
    (["--spill-dir", "/a"], "spill_dir=/a", {"spill_dir": "/a"}),
    (["--spill-size", "1G"], "spill_size=1G", {"spill_size": 1 << 30}),
    (["--format", "n5"], "format=n5", {"format": "n5"}),
    (["--cache-size", "64M"], "cache_size=64M", {"cache_size": 64 << 20}),
    (["--immutable"], "immutable", {"immutable": True}),
    (["--loop-limit", "50"], "loop_limit=50", {"loop_limit": 0.05}),
    (["--no-read-ahead"], "no_read_ahead", {"read_ahead": False}),
    (["--no-verify"], "no_verify", {"verify": False}),
    (["--xattrs"], "xattrs", {"xattrs": True}),
    (["--allow-external", "/a"], "allow_external=/a", {"allow_external": ("/a",)}),
    (["--hdf5-plugins", "/a"], "hdf5_plugins=/a", {"hdf5_plugins": ("/a",)}),
    (["--allow-other"], "allow_other", {"allow_other": True}),
    (["--uid", "1000"], "uid=1000", {"uid": 1000}),
    (["--uid", "root"], "uid=root", {"uid": 0}),
    (["--gid", "100"], "gid=100", {"gid": 100}),
    (["--umask", "027"], "umask=027", {"umask": 0o027}),
    (["--metadata-ttl", "2.5"], "metadata_ttl=2.5", {"metadata_ttl": 2.5}),
    (["--nonempty"], "nonempty", {"nonempty": True}),
    (["--force"], "force", {"force": True}),
    (["--log-file", "/log"], "log_file=/log", {"log_file": "/log"}),
    (["--log-level", "debug"], "log_level=debug", {"log_level": "debug"}),
    (["--log-format", "json"], "log_format=json", {"log_format": "json"}),
    (["--access-log", "/log"], "access_log=/log", {"access_log": "/log"}),
    (["--anonymous"], "anonymous", {"remote": Remote(anonymous=True)}),
    (["--profile", "me"], "profile=me", {"remote": Remote(profile="me")}),
    (["--region", "eu-west-1"], "region=eu-west-1", {"remote": Remote(region="eu-west-1")}),
    (["--endpoint", "http://h:1"], "endpoint=http://h:1", {"remote": Remote(endpoint="http://h:1")}),
    (["--allow-http"], "allow_http", {"remote": Remote(allow_http=True)}),
    (["--absent-403"], "absent_403", {"remote": Remote(absent_403=True)}),
    (["--block-cache", "/b"], "block_cache=/b", {"remote": Remote(block_cache="/b")}),
    (["--block-cache-size", "1G"], "block_cache_size=1G", {"remote": Remote(block_cache_size=1 << 30)}),
    (["--listing-ttl", "5"], "listing_ttl=5", {"remote": Remote(listing_ttl=5.0)}),
]


@pytest.mark.parametrize(("words", "mount_option", "changes"), OPTIONS, ids=[option[1] for option in OPTIONS])
def test_each_long_option_is_also_a_mount_option(words: list[str], mount_option: str, changes: dict[str, Any]) -> None:
    expected = Config("/store", "/mnt", **changes)
    assert parse(*words) == expected
    assert parse("-o", mount_option) == expected
    assert parse("-o", f"ro,{mount_option},nofail", "-o", "_netdev") == parse("-o", "ro", *words)


def test_every_option_is_in_the_table_above() -> None:
    names = mount.list_option_names(mount.make_parser("fsbridge"))
    assert set(names) == {option.partition("=")[0] for _, option, _ in OPTIONS}


def test_options_may_stand_before_between_and_after() -> None:
    expected = Config("/store", "/mnt", xattrs=True, kernel_options=("noatime",))
    for words in (
        ["-o", "noatime", "--xattrs", "/store", "/mnt"],
        ["/store", "-o", "noatime,xattrs", "/mnt"],
        ["/store", "/mnt", "--xattrs", "-o", "noatime"],
        ["-onoatime,xattrs", "--", "/store", "/mnt"],
    ):
        assert mount.parse("fsbridge", words) == expected


def test_paths_may_begin_with_a_hyphen_behind_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = mount.parse("fsbridge", ["-o", "xattrs", "--", "-store", "-mnt"])
    assert config == Config(f"{tmp_path}/-store", f"{tmp_path}/-mnt", xattrs=True)


def test_repeated_external_directories_add_up() -> None:
    assert parse("--allow-external", "/a", "-o", "allow_external=/b").allow_external == ("/a", "/b")


def test_relative_paths_are_made_absolute_and_urls_are_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = mount.parse("fsbridge", ["a.n5", "mnt", "--log-file", "log", "--allow-external", "x"])
    assert (config.source, config.mountpoint) == (str(tmp_path / "a.n5"), str(tmp_path / "mnt"))
    assert (config.log_file, config.allow_external) == (str(tmp_path / "log"), (str(tmp_path / "x"),))
    assert mount.parse("fsbridge", ["s3://bucket/key", "/dev/fd/3"]).source == "s3://bucket/key"


def test_bookkeeping_options_of_mount_are_ignored() -> None:
    line = "rw,dev,suid,auto,noauto,user,nouser,users,owner,group,defaults,_netdev,nofail,relatime,strictatime,lazytime"
    assert parse("-o", f"{line},x-systemd.automount,x-gvfs-show,X-mount.mkdir=0755,comment=a=b") == parse()


def test_kernel_options_are_passed_on() -> None:
    line = ["ro", "noatime", "noexec", "nosuid", "nodev", "fsname=x", "default_permissions"]
    assert parse("-o", ",".join(line)).kernel_options == tuple(line)


@pytest.mark.parametrize("option", ["bla", "bla=1", "quota=1000", "cache-size=1", "option", "help", "source=/x", "xcomment"])
def test_an_unknown_option_is_named(option: str) -> None:
    with pytest.raises(SetupError, match=f"unknown mount option: {option}") as caught:
        parse("-o", f"ro,{option}")
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "cache_size"], "cache_size needs a value"),
        (["-o", "xattrs=yes"], "xattrs takes no value"),
        (["-o", 'a="b'], "a quote that is not closed"),
        (["--cache-size", "many"], "'many' is not a size; write for example 64M or 1GiB"),
        (["--cache-size", "0"], "0 is too small for a chunk; give 1M or more"),
        (["-o", "cache_size=4096"], "4096 is too small for a chunk"),
        (["-o", "cache_size=many"], "'many' is not a size; write for example 64M or 1GiB"),
        (["--cache-size", "9" * 400 + ".5"], "is not a size; write for example 64M or 1GiB"),
        (["--metadata-ttl", "-1"], "not a number of seconds"),
        (["--metadata-ttl", "nan"], "not a number of seconds"),
        (["--listing-ttl", "1_0"], "not a number of seconds"),
        (["--listing-ttl", "86401"], "up to a day"),
        (["--umask", "0o27"], "not a mask of permission bits"),
        (["--umask", "2_7"], "not a mask of permission bits"),
        (["--umask", "1000"], "not a mask of permission bits"),
        (["--uid", "\u0661"], "not the number of a user or group"),
        (["--uid", "\u00b2"], "this machine has no user"),
        (["--gid", "no-such-group"], "this machine has no group 'no-such-group'"),
        (["--uid", str(2**32 - 1)], "not the number of a user or group"),
        (["--layout", "files", "--files", "npy,xyz"], "unknown file type 'xyz'; known file types: npy, .*, all"),
        (["--log-level", "loud"], "invalid choice: 'loud'"),
        (["--xattr"], r"unrecognized arguments: --xattr\n  perhaps --xattrs\? see: fsbridge --help"),
        (["--verbose"], r"unrecognized arguments: --verbose\n  see: fsbridge --help"),
        (["-o", "cache-size=1G"], r"unknown mount option: cache-size=1G\n  perhaps cache_size\?"),
        (["-o", "cache_sise=1G"], r"unknown mount option: cache_sise=1G\n  perhaps cache_size\?"),
        (["-o", "layout=zarr3,files"], r"files needs a value: .*\n  write \+ instead of the comma: layout=zarr3\+files"),
        (["-o", "files=npy,tif"], r"unknown mount option: tif\n  write \+ instead of the comma: files=npy\+tif"),
        (["third"], "unrecognized arguments: third"),
        *(
            ([option, ""], f"argument {option}: a path is needed")
            for option in ("--allow-external", "--hdf5-plugins", "--spill-dir", "--log-file")
        ),
        (["-o", "allow_external="], "argument --allow-external: a path is needed"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], message: str) -> None:
    with pytest.raises(SetupError, match=message) as caught:
        parse(*words)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "words",
    [
        ["", "/not/there"],
        ["/store", ""],
        ["umount", ""],
        ["info", ""],
        ["info", "file:///a%00b"],
        ["file:///%00", "/not/there"],
    ],
)
def test_what_names_nothing_is_not_the_working_directory(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A variable that is not set gives an empty text, which would be the working directory."""
    assert cli.main(["fsbridge", *words]) == 1
    assert capsys.readouterr().err.startswith("fsbridge: ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["mout", "a", "b"], "perhaps fsbridge mount?"),
        (["xyzzy", "brain.n5"], f"commands: {', '.join(name for name in COMMANDS if ' ' not in name)}"),
    ],
)
def test_a_command_that_is_none_is_named(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fsbridge", *words]) == 1
    said = capsys.readouterr().err
    assert said == f"fsbridge: {words[0]}: neither a command nor a store\n  {hint}\n"


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["help"], "usage: fsbridge COMMAND"),
        (["help", "mount"], "usage: fsbridge mount"),
        (["version"], "fsbridge "),
        (["mount", "--version"], "fsbridge "),
    ],
)
def test_what_people_type_first_is_answered(words: list[str], begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["fsbridge", *words])
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out.startswith(begins)


def test_a_mistyped_option_is_answered_by_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fsbridge", "--hlep"]) == 1
    assert "perhaps --help?" in capsys.readouterr().err


def test_several_mounts_are_unmounted_each_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fsbridge", "unmount", str(tmp_path / "a"), str(tmp_path / "b")]) == 32
    said = capsys.readouterr().err
    assert all(f"{tmp_path}/{name} is not mounted" in said for name in "ab")


@pytest.mark.parametrize("command", [["mount"], ["info"]])
@pytest.mark.parametrize("source", ["s3:/b/x", "s3:b/x", "s3//b/x", "https:/h/x", "zip::s3://b/x.zip"])
def test_a_url_that_is_misspelt_is_no_path(command: list[str], source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fsbridge", *command, source, *(["/mnt"] if command == ["mount"] else [])]) == 1
    assert capsys.readouterr().err.startswith(f"fsbridge: {source}: this is neither a path nor a URL that fsbridge knows\n")


def test_a_path_may_look_like_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:").mkdir()
    assert mount.parse("fsbridge", ["s3:", "/mnt"]).source == f"{tmp_path}/s3:"


def test_missing_arguments_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fsbridge", "mount", "/store"]) == 1
    assert capsys.readouterr().err == (
        "fsbridge: the following arguments are required: MOUNTPOINT\n  see: fsbridge mount --help\n"
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a,b=c", ["a", "b=c"]),
        (",a,,b,", ["a", "b"]),
        (r"a=1\,2,b", ["a=1,2", "b"]),
        ('a="1,2",b', ["a=1,2", "b"]),
        (r"a=\\,b", ["a=\\", "b"]),
        (r"a=\d,b", [r"a=\d", "b"]),
        (r"a=\"x", ['a="x']),
        ("a=\\", ["a=\\"]),
    ],
)
def test_commas_in_values_are_escaped_or_quoted(text: str, parts: list[str]) -> None:
    assert mount.split_options(text) == parts


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        *[("0", 0), ("4096", 4096), ("64M", 64 << 20), ("64MiB", 64 << 20), ("64MB", 64 << 20), ("1g", 1 << 30)],
        *[("1GiB", 1 << 30), ("1.5k", 1536), ("512 K", 512 << 10), ("2T", 2 << 40), ("7b", 7)],
    ],
)
def test_sizes_of_every_unit_are_powers_of_1024(text: str, bytes_: int) -> None:
    assert argument_types.size(text) == bytes_


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "1e9", "0x10", "1_000", "\u0661", "1.M", "inf"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size"):
        argument_types.size(text)


class Mounting:
    """The command `mount`, except that it only notes what would be mounted."""

    def __init__(self) -> None:
        self.mounted: list[Config] = []

    def make_parser(self, program: str) -> Parser:
        return mount.make_parser(program)

    def run(self, program: str, argv: Sequence[str]) -> int:
        return self.mount(mount.parse(program, argv))

    def mount(self, config: Config) -> int:
        self.mounted.append(config)
        return 0


def test_the_bare_form_is_what_mount_fuse_runs() -> None:
    mounting = Mounting()
    commands: dict[str, Command] = {"mount": mounting}
    find = commands.__getitem__
    assert cli.main(["/usr/bin/fsbridge", "/store", "/mnt", "-o", "rw,dev,suid"], find) == 0
    assert cli.main(["/usr/bin/fsbridge", "/store", "/mnt", "-o", "ro,noatime,cache_size=64M,dev,suid"], find) == 0
    assert cli.main(["/usr/bin/fsbridge", "/store", "/dev/fd/3", "-o", "ro"], find) == 0
    assert mounting.mounted == [
        Config("/store", "/mnt"),
        Config("/store", "/mnt", cache_size=64 << 20, kernel_options=("ro", "noatime")),
        Config("/store", "/dev/fd/3", kernel_options=("ro",)),
    ]


@pytest.mark.parametrize("program", ["/sbin/mount.fsbridge", "/sbin/mount.fuse.fsbridge"])
def test_the_helper_takes_mounts_own_flags(program: str) -> None:
    mounting = Mounting()
    for words in (["-o", "ro,user,_netdev,nofail"], ["-s", "-n", "-v", "-o", "ro", "-t", "fuse.fsbridge"]):
        assert mount.helper(program, ["/store", "/mnt", *words], mounting.mount) == 0
    assert mounting.mounted == [Config("/store", "/mnt", kernel_options=("ro",))] * 2
    for words in (["-f", "-o", "ro"], ["-sfnv", "-o", "ro"]):
        assert mount.helper(program, ["/store", "/mnt", *words], mounting.mount) == 0
        assert cli.main([program, "/store", "/mnt", *words]) == 0
    assert len(mounting.mounted) == 2, "-f is fake: nothing is mounted"


def test_sloppy_ignores_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mount.fsbridge", "/store", "/mnt", "-o", "bla"]) == 1
    assert "unknown mount option: bla" in capsys.readouterr().err
    mounting = Mounting()
    assert mount.helper("mount.fsbridge", ["/store", "/mnt", "-s", "-o", "bla,xattrs"], mounting.mount) == 0
    assert mounting.mounted == [Config("/store", "/mnt", xattrs=True)]


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["fsbridge", "--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"fsbridge {fsbridge.__version__}\n"


@pytest.mark.parametrize("words", [["--help"], [], ["mount", "--help"], ["umount", "--help"], ["info", "-h"], ["--version"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    program = """
import sys
from fsbridge.cli import main
code = 0
try:
    main(["fsbridge", *sys.argv[1:]])
except SystemExit as end:
    code = end.code
heavy = {"numpy", "trio", "pyfuse3", "numcodecs", "h5py", "asyncio", "logging", "ctypes", "subprocess", "socket"}
print(code, sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_opening_a_store_imports_the_decoders_that_it_names(tmp_path: Path) -> None:
    """All of them together took a tenth of a mount's start."""
    (tmp_path / ".zarray").write_text(
        '{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "order": "C", "fill_value": 0,'
        ' "filters": null, "compressor": {"id": "zstd", "level": 1}}'
    )
    program = """
import sys
from fsbridge.config import Config, Remote
from fsbridge.mount.lifecycle import open_tree
open_tree(Config(sys.argv[1], "/mnt"))
decoders = "blosc checksums filters hdf5 lz4 numeric objects streams zarr3".split()
heavy = {"numcodecs", "h5py", "lmdb", "fsbridge.formats.n5", "fsbridge.formats.hdmf.unpickle"}
print(sorted((heavy | {f"fsbridge.codecs.{name}" for name in decoders}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "['fsbridge.codecs.streams']\n"


def test_help_names_the_exit_codes_and_every_option() -> None:
    text = mount.make_parser("fsbridge mount").format_help()
    assert "exit codes: 0 mounted" in " ".join(text.split())
    for words, _, _ in OPTIONS:
        assert (words[0] in text) == (words[0] not in ("--loop-limit", "--no-read-ahead")), "these two are for tests"
    assert ("auto", *FORMATS, COLLECTION.name) == NAMES


def test_umount_of_what_is_no_mount_says_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["fsbridge", "umount", str(tmp_path)]) == 32
    said = capsys.readouterr().err
    assert said.startswith(f"fsbridge: {tmp_path} is not mounted\n  fsbridge list shows all mounts")
    with monkeypatch.context() as patch:
        patch.setattr(preflight, "list_mounts", list)
        assert cli.main(["fsbridge", "umount", str(tmp_path)]) == 32
    assert capsys.readouterr().err.endswith("\n  fsbridge list shows all mounts; there are none\n")
    assert cli.main(["fsbridge", "umount", "/proc"]) == 32
    assert (
        capsys.readouterr().err == "fsbridge: /proc is not a mount of fsbridge (it is proc, type proc)\n"
    )  # no advice to unmount it


def test_the_module_runs_as_a_program() -> None:
    root = Path(fsbridge.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "fsbridge", "/store", "/mnt", "-o", "bla"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root)},
        cwd=os.sep,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "fsbridge: unknown mount option: bla\n  fsbridge mount --help lists the options\n"
