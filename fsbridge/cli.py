"""The command line: arguments to a Config, errors to one line and an exit code.

Four ways in: `fsbridge mount|umount|info ...`; the bare `fsbridge SOURCE MOUNTPOINT -o ...`, which is what mount.fuse
runs for `mount -t fuse.fsbridge`; and a link named `mount.fsbridge` or `mount.fuse.fsbridge`, which mount(8) runs with its
own flags. Exit codes are mount(8)'s (`EPILOG`).

Nothing heavy is imported before it is needed: `fsbridge --help` must be instant. Not here: the `-o` language (`options.py`).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from fsbridge import __version__, options
from fsbridge.config import LEAST_CACHE, Config, Remote
from fsbridge.errors import SetupError

USAGE = 1
INTERRUPTED = 8

HELPERS = ("mount.fsbridge", "mount.fuse.fsbridge")

FILES = (
    *("npy", "raw", "nhdr", "nrrd", "mhd", "mha", "nii", "mrc"),
    *("tif", "ome.tif", "h5", "envi", "pgm", "png", "csv", "txt"),
)
"""Formats of whole arrays, in the order of a listing."""

FORMATS = ("auto", "zarr3", "zarr2", "n5", "hangar", "icechunk", "hdf5", "zip", "collection")
"""What `--format` takes, as `formats.opening.NAMES` has it."""

SOURCE = "a store: a directory (of several, too), an HDF5 or zip file, or a URL as s3://BUCKET/PATH"

LEVELS = ("debug", "info", "warning", "error", "critical")

EPILOG = """\
exit codes: 0 mounted (or unmounted); 1 wrong usage, no such store or no permission; 2 system error; 8 interrupted;
32 mount failure
"""


class _Parser(argparse.ArgumentParser):
    """Errors are one line and exit code 1."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0] if message.startswith("unrecog") else ""
        near = options.nearest(unknown, self._option_string_actions) if unknown.startswith("-") else ""
        raise SetupError(message, f"perhaps {near}? see: {self.prog} --help" if near else f"see: {self.prog} --help", USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `argv` (program name first) and return its exit code."""
    argv = list(sys.argv if argv is None else argv)
    program = os.path.basename(argv[0])
    try:
        if program in HELPERS:
            return _helper(program, argv[1:])
        if len(argv) > 1 and argv[1] in _COMMANDS:
            return _COMMANDS[argv[1]](f"fsbridge {argv[1]}", argv[2:])
        if len(argv) == 1 or argv[1] in ("-h", "--help", "-V", "--version"):
            _overview().parse_args(argv[1:] or ["--help"])
        if re.fullmatch("[a-z]+", argv[1]) and not os.path.lexists(argv[1]):
            raise SetupError(f"{argv[1]}: neither a command nor a store", "commands: mount, umount, info", USAGE)
        return _mount("fsbridge", argv[1:])
    except SetupError as error:
        print(f"fsbridge: {error}", file=sys.stderr)
        return error.exit_code
    except ImportError as error:
        from fsbridge.mount.preflight import unloadable

        told = unloadable(error)
        print(f"fsbridge: {told}", file=sys.stderr)
        return told.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _overview() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fsbridge",
        description="Mount an N5, Zarr or HDF5 store: metadata as JSON files, decompressed chunks as raw files.",
        usage="fsbridge COMMAND ...\n       fsbridge SOURCE MOUNTPOINT [-o OPTION,...]",
        epilog="fsbridge COMMAND --help describes each command.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"fsbridge {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    commands.add_parser("mount", help="mount SOURCE on MOUNTPOINT")
    commands.add_parser("umount", help="unmount MOUNTPOINT")
    commands.add_parser("info", help="show what SOURCE contains, without mounting it")
    return parser


def _mount_parser(program: str) -> tuple[argparse.ArgumentParser, dict[str, bool]]:
    """The parser of `mount`, and its long options as `-o` knows them: with underscores, and whether they take a value."""
    parser = _Parser(
        prog=program,
        description="Mount SOURCE read-only on MOUNTPOINT.",
        epilog="Every long option --a-b VALUE is also -o a_b=VALUE. " + EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("source", type=_path, metavar="SOURCE", help=SOURCE)
    parser.add_argument("mountpoint", type=_path, metavar="MOUNTPOINT", help="a directory, outside the store")
    add = parser.add_argument
    own = [
        add("-f", "--foreground", action="store_true", help="stay in the foreground, log to the terminal"),
        add("--layout", default="zarr3", metavar="NAME,...", help="which files: zarr3 (default), zarr2, n5, files"),
        add("--chunk-separator", default=".", choices=(".", "/"), metavar="SEP", help="in zarr2's chunk names: . or /"),
        add("--consolidated", action="store_true", help="layout zarr2 has a .zmetadata"),
        add("--format", default="auto", metavar="NAME", help=f"format of SOURCE: {', '.join(FORMATS)} (default: auto)"),
        add("--cache-size", type=_room, metavar="SIZE", help="memory for decoded chunks, as 64M or 1GiB (default: 256M)"),
        add(
            "--files",
            type=_files,
            metavar="NAME,...",
            help=f"what the layout files lists for each array: {', '.join(FILES)}, or all (default: npy)",
        ),
        add(
            "--spill-dir",
            type=_path,
            metavar="DIR",
            help="folder for decoded chunks that the cache cannot hold (default: /var/tmp)",
        ),
        add("--spill-size", type=_size, metavar="SIZE", help="most bytes in that folder (default: 4G)"),
        add("--immutable", action="store_true", help="the store never changes: check nothing twice"),
        add("--no-verify", action="store_true", help="do not verify checksums that readers may skip"),
        add("--xattrs", action="store_true", help="show source facts as extended attributes user.fsbridge.*"),
        add(
            "--hdf5-plugins",
            action="append",
            type=_path,
            metavar="DIR",
            help="HDF5 may load filter plug-ins from DIR (repeatable)",
        ),
        add(
            "--allow-external",
            action="append",
            type=_path,
            metavar="DIR",
            help="links of the store may lead into DIR, a directory or URL (repeatable)",
        ),
        add("--allow-other", action="store_true", help="let other users read what the store's own modes let them"),
        add("--uid", type=_number, metavar="N", help="owner of all files, instead of the stored objects'"),
        add("--gid", type=_number, metavar="N", help="group of all files, instead of the stored objects'"),
        add("--umask", type=_umask, metavar="OCTAL", help="mode of all files: 444 (directories 555) less OCTAL"),
        add("--metadata-ttl", type=_seconds, metavar="SECONDS", help="how old a stat may be (default: 1)"),
        add("--nonempty", action="store_true", help="mount even over another mount"),
        add("--force", action="store_true", help="clear a stale mount first"),
        add("--log-file", type=_path, metavar="FILE", help="log to FILE (default: syslog, in the foreground the terminal)"),
        add("--log-level", default="warning", choices=LEVELS, help="least severe level that is logged (default: warning)"),
    ]
    own += _add_remote(parser)
    add("-o", action="append", default=[], dest="options", metavar="OPTION,...", help="mount options, the kernel's or ours")
    names = {action.option_strings[-1][2:].replace("-", "_"): action.nargs != 0 for action in own}
    return parser, names


def _add_remote(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Options for stores that live elsewhere; none takes a secret, which everybody could read in the list of processes."""
    group = parser.add_argument_group(
        "stores in object storage and on web servers", "credentials come from the environment (AWS_ACCESS_KEY_ID, ...)"
    )
    add = group.add_argument
    return [
        add("--anonymous", action="store_true", help="sign no request: public buckets"),
        add("--profile", default="", metavar="NAME", help="credentials of this profile in ~/.aws (needs boto3)"),
        add("--region", default="", metavar="NAME", help="region of the bucket"),
        add("--endpoint", default="", metavar="URL", help="server of the bucket, if it is not the provider's own"),
        add("--allow-http", action="store_true", help="follow redirects to unencrypted connections"),
        add("--absent-403", action="store_true", help="what the server refuses is not there"),
        add("--block-cache", default="", metavar="DIR", help="keep what was fetched in DIR, for all mounts and restarts"),
        add("--block-cache-size", type=_size, default=20 << 30, metavar="SIZE", help="most that it holds (default: 20G)"),
        add("--listing-ttl", type=_seconds, default=60.0, metavar="SECONDS", help="how old a listing may be (default: 60)"),
    ]


def _remote(args: argparse.Namespace) -> Remote:
    return Remote(
        anonymous=args.anonymous,
        profile=args.profile,
        region=args.region,
        endpoint=args.endpoint,
        allow_http=args.allow_http,
        absent_403=args.absent_403,
        block_cache=_absolute(args.block_cache) if args.block_cache else "",
        block_cache_size=args.block_cache_size,
        listing_ttl=args.listing_ttl,
    )


def parse_mount(program: str, argv: Sequence[str], sloppy: bool = False) -> Config:
    """The Config that a mount command line asks for; SetupError for mistakes. `sloppy` ignores unknown mount options."""
    parser, names = _mount_parser(program)
    first = parser.parse_args(argv)
    given_options = [option for text in first.options for option in options.split(text)]
    ours, kernel = options.sort(given_options, names, sloppy)
    # Options given by -o are parsed by the same parser, so both spellings mean the same by construction.
    words = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args([*argv[:words], *ours, *argv[words:]]) if ours else first
    given: dict[str, object] = {
        name: getattr(args, name)
        for name in ("cache_size", "metadata_ttl", "files", "spill_size", "uid", "gid", "umask")
        if getattr(args, name) is not None
    }
    if args.spill_dir is not None:
        given["spill_dir"] = _absolute(args.spill_dir)
    return Config(
        source=_source(args.source),
        mountpoint=_absolute(args.mountpoint),
        layout=args.layout.replace("+", ","),
        chunk_separator=args.chunk_separator,
        consolidated=args.consolidated,
        format=args.format,
        immutable=args.immutable,
        verify=not args.no_verify,
        xattrs=args.xattrs,
        allow_external=_folders(args.allow_external),
        hdf5_plugins=_folders(args.hdf5_plugins),
        allow_other=args.allow_other,
        foreground=args.foreground,
        nonempty=args.nonempty,
        force=args.force,
        log_file=None if args.log_file is None else _absolute(args.log_file),
        log_level=args.log_level,
        kernel_options=tuple(kernel),
        remote=_remote(args),
        **given,  # type: ignore[arg-type]
    )


def _mount(program: str, argv: Sequence[str]) -> int:
    config = parse_mount(program, argv)
    from fsbridge.mount.lifecycle import mount

    return mount(config)


def _helper(program: str, argv: Sequence[str]) -> int:
    """What mount(8) runs as mount.TYPE: `SOURCE MOUNTPOINT [-sfnv] [-N namespace] [-t type] [-o options]`."""
    parser = _Parser(prog=program, add_help=False, allow_abbrev=False)
    parser.add_argument("source")
    parser.add_argument("mountpoint")
    parser.add_argument("-s", action="store_true")  # sloppy: tolerate unknown options
    parser.add_argument("-f", action="store_true")  # fake: do everything but mount
    parser.add_argument("-n", action="store_true")  # no mtab, which nobody has any more
    parser.add_argument("-v", action="store_true")
    parser.add_argument("-r", action="store_true")
    parser.add_argument("-w", action="store_true")
    parser.add_argument("-t")
    parser.add_argument("-o", action="append", default=[])
    args = parser.parse_args(argv)
    words = [args.source, args.mountpoint]
    for text in args.o:
        words += ["-o", text]
    config = parse_mount(program, words, sloppy=args.s)
    if args.f:
        return 0
    from fsbridge.mount.lifecycle import mount

    return mount(config)


def _umount(program: str, argv: Sequence[str]) -> int:
    parser = _Parser(prog=program, description="Unmount an fsbridge mount; its daemon ends.", epilog=EPILOG)
    parser.add_argument("mountpoint", type=_path, metavar="MOUNTPOINT")
    parser.add_argument("-l", "--lazy", action="store_true", help="detach it now, even while files are open")
    args = parser.parse_args(argv)
    from fsbridge.mount.preflight import unmount

    unmount(_absolute(args.mountpoint), args.lazy)
    return 0


def _info(program: str, argv: Sequence[str]) -> int:
    parser = _Parser(
        prog=program,
        description="Show the hierarchy of SOURCE as a table, without mounting it.",
        epilog="exit codes: 0 all can be read; 1 wrong usage, no such store, or something in it cannot be read",
    )
    parser.add_argument("source", type=_path, metavar="SOURCE", help=SOURCE)
    parser.add_argument("--format", default="auto", metavar="NAME", help=f"one of {', '.join(FORMATS)} (default: auto)")
    parser.add_argument("--layout", default="zarr3", metavar="NAME,...", help="say what these leave out, or files shows")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--hdf5-plugins", action="append", type=_path, metavar="DIR", help="as of mount: filter plug-ins for HDF5"
    )
    parser.add_argument(
        "--allow-external", action="append", type=_path, metavar="DIR", help="as of mount: links may lead into DIR"
    )
    _add_remote(parser)
    args = parser.parse_args(argv)
    from fsbridge.info import run
    from fsbridge.mount.logs import to_terminal

    to_terminal()
    source = _source(args.source) if "://" in args.source else _not_misspelt(args.source)
    external, plugins = _folders(args.allow_external), _folders(args.hdf5_plugins)
    return run(source, args.format, args.json, external, plugins, args.layout, _remote(args))


_COMMANDS: dict[str, Callable[[str, Sequence[str]], int]] = {"mount": _mount, "umount": _umount, "info": _info}


def _source(text: str) -> str:
    """SOURCE as it is opened and shown: an absolute path, or a URL without any secret."""
    from fsbridge.store.remote.urls import is_url, local_path, parse_url

    if not is_url(text):
        return _absolute(_not_misspelt(text))
    return local_path(text) or parse_url(text).text


def _not_misspelt(path: str) -> str:
    """`path`, unless it names nothing and looks like a URL: `s3:/bucket/path`, `zip::s3://bucket/path`."""
    from fsbridge.store.remote.urls import KINDS

    scheme, separator, _ = path.rpartition("::")[2].replace("//", ":", 1).partition(":")
    if separator and (scheme in KINDS or "://" in path) and not os.path.lexists(path):
        raise SetupError(
            f"{path}: no path, and no URL as fsbridge spells it", "write s3://BUCKET/PATH, or https://SERVER/PATH"
        )
    return path


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError:
        raise SetupError(
            f"{path}: the working directory is no longer there", "cd to one that is, or give the whole path"
        ) from None


def _folders(given: Sequence[str] | None) -> tuple[str, ...]:
    from fsbridge.store.remote.urls import is_url

    return tuple(_source(path) if is_url(path) else _absolute(path) for path in given or ())


def _path(text: str) -> str:
    """Not empty: that would be the working directory, which nobody means who gives a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("a path is needed, and an empty text is given")
    return text


def _size(text: str) -> int:
    try:
        return options.size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 64M or 1GiB") from None


def _room(text: str) -> int:
    value = _size(text)
    if value < LEAST_CACHE:
        raise argparse.ArgumentTypeError(f"{text} is too small to keep a chunk; give 1M or more (default: 256M)")
    return value


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) >= 2**32 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a user or group; `id` shows yours")
    return int(text)


def _umask(text: str) -> int:
    if re.fullmatch(r"0*[0-7]{1,3}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no mask of mode bits; write 027 or 077")
    return int(text, 8)


def _files(text: str) -> tuple[str, ...]:
    """Formats in `npy,nii`; `+` for the comma, which separates mount options."""
    names = tuple(text.replace("+", ",").split(","))
    if names == ("all",):
        return FILES
    for name in names:
        if name not in FILES:
            raise argparse.ArgumentTypeError(f"unknown format {name!r}; known formats: {', '.join(FILES)}, all")
    return names


def _seconds(text: str) -> float:
    if re.fullmatch(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(e-?[0-9]+)?", text) is None or float(text) > 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, or more than a day")
    return float(text)
