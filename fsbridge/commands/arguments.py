"""Arguments that several commands share: SOURCE, how it is opened and shown, where it lies.

Not here: arguments of one command only (its own module), the types of single arguments (`argument_types.py`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from fsbridge.commands import argument_types as types
from fsbridge.config import Config, Remote, parse_place
from fsbridge.errors import SetupError, nearest

USAGE = 1
"""The exit code of mount(8) for wrong usage."""

SOURCE = "a store: a directory, an HDF5 or zip file, a directory of stores, or a URL such as s3://BUCKET/PATH"

PLACE = "a store, and a path in it as a mount would show it"

SOURCE_AND_PATH = f"{SOURCE}; SOURCE//PATH mounts only the group or array at PATH"


class _HelpOfLines(argparse.HelpFormatter):
    """Keeps the line breaks of a help text, and wraps each line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(super(_HelpOfLines, self)._fill_text(line, width, indent) for line in text.splitlines())


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line with exit code 1."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_HelpOfLines, **settings)
        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = args or ()
        return super().parse_known_args(args, namespace)

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return the group of options with that title. Make it if there is none yet."""
        groups = (group for group in self._action_groups if group.title == title)
        return next(groups, None) or self.add_argument_group(title)

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0] if message.startswith("unrecog") else ""
        for word in self._words if message.startswith("the following arguments are required") else ():
            option = word.partition("=")[0]
            if option.startswith("--") and len(option) > 2 and option not in self._option_string_actions:
                unknown, message = option, f"unrecognized arguments: {option}"  # misspelt, it may be the missing one
                break
        near = nearest(unknown, self._option_string_actions) if unknown.startswith("-") else ""
        raise SetupError(message, f"perhaps {near}? see: {self.prog} --help" if near else f"see: {self.prog} --help", USAGE)


SHOW, MEMORY, FRESHNESS, ACCESS, LOGGING = "what to show", "memory and disk", "freshness and checks", "access", "logging"
"""Titles of groups of options."""


def add_format(parser: Parser) -> None:
    """Add `--format`."""
    from fsbridge.formats.records import NAMES

    shown = f"format of SOURCE: {', '.join(NAMES)} (default: auto)"
    parser.group(SHOW).add_argument("--format", default="auto", metavar="NAME", help=shown)


def add_tree(parser: Parser) -> None:
    """Add the options that choose the files of the tree, and those about making them: memory, disk, and checks."""
    from fsbridge.layouts.files.filetypes import CHOICES

    add = parser.group(SHOW).add_argument
    add("--layout", metavar="NAME,...", help="which files the mount has: zarr3 (default), zarr2, n5, files")
    add(
        "--chunk-separator",
        default=".",
        choices=(".", "/"),
        metavar="SEP",
        help="separator in the chunk names of the layout zarr2: . (default) or /",
    )
    add("--consolidated", action="store_true", help="add .zmetadata to the layout zarr2")
    add(
        "--files",
        type=types.files,
        metavar="NAME,...",
        help=f"which files the layout files lists for each array: {', '.join(CHOICES)}, or all (default: html,npy)",
    )
    add = parser.group(MEMORY).add_argument
    add(
        "--cache-size",
        type=types.room,
        metavar="SIZE",
        help="memory for decoded chunks, such as 64M or 1GiB (default: 256M)",
    )
    add(
        "--spill-dir",
        type=types.path,
        metavar="DIR",
        help="directory for decoded chunks that do not fit into the cache (default: /var/tmp)",
    )
    add("--spill-size", type=types.size, metavar="SIZE", help="most bytes in --spill-dir (default: 4G)")
    add = parser.group(FRESHNESS).add_argument
    add("--immutable", action="store_true", help="the store never changes, so check nothing twice")
    # For tests: do not read ahead; log requests that keep the event loop busy for longer than so many milliseconds.
    add("--no-read-ahead", action="store_true", help=argparse.SUPPRESS)
    add("--loop-limit", type=types.milliseconds, default=0.0, metavar="MS", help=argparse.SUPPRESS)
    add("--no-verify", action="store_true", help="do not verify the digests of Hangar samples")


def add_selection(parser: Parser) -> None:
    """Add `--include` and `--exclude`."""
    add = parser.group(SHOW).add_argument
    every: dict[str, Any] = {"action": "append", "default": [], "type": types.pattern, "metavar": "GLOB"}
    shown = "show only groups and arrays whose path matches GLOB, and all below them; * matches / too (repeatable)"
    add("--include", dest="include_nodes", help=shown, **every)
    shown = "leave out groups and arrays whose path matches GLOB, and all below them (repeatable)"
    add("--exclude", dest="exclude_nodes", help=shown, **every)


def add_permissions(parser: Parser) -> None:
    """Add the options that name what may be opened besides SOURCE: `--hdf5-plugins` and `--allow-external`."""
    parser.group(ACCESS).add_argument(
        "--hdf5-plugins",
        action="append",
        type=types.path,
        metavar="DIR",
        help="permit HDF5 to load filter plug-ins from DIR (repeatable)",
    )
    parser.group(ACCESS).add_argument(
        "--allow-external",
        action="append",
        type=types.path,
        metavar="DIR",
        help="permit links and data outside the store, below DIR, a directory or URL (repeatable)",
    )


def add_remote(parser: Parser) -> None:
    """Add the options of remote stores; none takes a secret, which every user could read in the list of processes."""
    group = parser.add_argument_group(
        "stores in object storage and on web servers", "credentials come from the environment (AWS_ACCESS_KEY_ID, ...)"
    )
    add = group.add_argument
    add("--anonymous", action="store_true", help="do not sign requests (for public buckets)")
    add("--profile", default="", metavar="NAME", help="use the credentials of this profile in ~/.aws (needs boto3)")
    add("--region", default="", metavar="NAME", help="region of the bucket")
    add("--endpoint", default="", metavar="URL", help="server of the bucket, if it is not the provider's own")
    add("--allow-http", action="store_true", help="follow redirects to unencrypted connections")
    add("--absent-403", action="store_true", help="treat 403 Forbidden for an object as: the object does not exist")
    add("--block-cache", default="", metavar="DIR", help="keep fetched bytes in DIR, for all mounts and after restarts")
    add(
        "--block-cache-size",
        type=types.size,
        default=20 << 30,
        metavar="SIZE",
        help="most bytes in --block-cache (default: 20G)",
    )
    add(
        "--listing-ttl",
        type=types.seconds,
        default=60.0,
        metavar="SECONDS",
        help="how old a listing of the store may be (default: 60)",
    )


def make_remote(args: argparse.Namespace) -> Remote:
    """Return the Remote that the options of remote stores describe."""
    return Remote(
        anonymous=args.anonymous,
        profile=args.profile,
        region=args.region,
        endpoint=args.endpoint,
        allow_http=args.allow_http,
        absent_403=args.absent_403,
        block_cache=make_absolute(args.block_cache) if args.block_cache else "",
        block_cache_size=args.block_cache_size,
        listing_ttl=args.listing_ttl,
    )


def add_shared(parser: Parser) -> None:
    """Add all options of a command that reads the tree of a source as a mount shows it."""
    add_format(parser)
    add_tree(parser)
    add_permissions(parser)
    add_remote(parser)


FURTHER = "further options, of caches and of stores in object storage, are those of: fsbridge mount --help"
"""The last line of the help of commands that call `add_reading`."""

_READING = frozenset(("format", "layout", "files", "include_nodes", "exclude_nodes", "allow_external", "anonymous"))
"""The shared options that the help of such a command describes."""


def add_place(parser: Parser) -> None:
    """Add the argument `place`: a source, and a path in its tree."""
    parser.add_argument("place", type=types.path, metavar="SOURCE[//PATH]", help=PLACE)


def add_reading(parser: Parser) -> None:
    """Add all options of a command that only looks at the tree. Its help describes few of them."""
    own = set(parser._actions)
    add_shared(parser)
    add_selection(parser)
    for action in parser._actions:
        if action not in own and action.dest not in _READING:
            action.help = argparse.SUPPRESS
    for group in parser._action_groups:
        group.description = None
    parser.epilog = f"{FURTHER}\n{parser.epilog}"


def make_config(args: argparse.Namespace, given: str, mountpoint: str = "", **more: Any) -> Config:
    """Return the Config of a command that has all shared options, for the source `given`.

    `more`: other fields of the Config.
    """
    optional = {name: getattr(args, name) for name in ("cache_size", "files", "spill_size")}
    more |= {name: value for name, value in optional.items() if value is not None}
    if "include_nodes" in args:
        more |= {"include": tuple(args.include_nodes), "exclude": tuple(args.exclude_nodes)}
    if args.spill_dir is not None:
        more["spill_dir"] = make_absolute(args.spill_dir)
    return Config(
        source=resolve_source(given),
        mountpoint=mountpoint,
        layout=(args.layout or ("zarr3" if args.files is None else "files")).replace("+", ","),
        chunk_separator=args.chunk_separator,
        consolidated=args.consolidated,
        format=args.format,
        immutable=args.immutable,
        loop_limit=args.loop_limit,
        read_ahead=not args.no_read_ahead,
        verify=not args.no_verify,
        allow_external=resolve_folders(args.allow_external),
        hdf5_plugins=resolve_folders(args.hdf5_plugins),
        remote=make_remote(args),
        **more,
    )


def split_place(text: str) -> tuple[str, tuple[str, ...]]:
    """Split `SOURCE//PATH` into SOURCE and the names of PATH.

    A local `//` is only a doubled slash, and all of `text` is the source, if nothing lies at SOURCE, or if SOURCE is a
    plain directory without a store's documents and the whole path exists.
    """
    from fsbridge.tree import unescape

    source, path = parse_place(text)
    plain = os.path.isdir(source) and not looks_like_a_store(source)
    if path and "://" not in text and (os.path.lexists(text) if plain else not os.path.lexists(source)):
        return text, ()
    shown = [name for name in path.split("/") if name not in ("", ".")]
    names = [unescape(os.fsencode(name)) for name in shown]
    if None in names or ".." in shown:
        raise SetupError(f"{text}: {path} is not a path in a tree", f"look for it with: fsbridge info {source}", USAGE)
    return source, tuple(name for name in names if name is not None)


def join_place(source: str, place: str) -> str:
    """Replace NAME in `NAME//PATH` by `source`, for which NAME stands. `source` may have a //PATH of its own."""
    path = parse_place(place)[1]
    if not path:
        return source
    return f"{source.rstrip('/')}/{path}" if parse_place(source)[1] else f"{source}//{path}"


def looks_like_a_store(path: str) -> bool:
    """Return whether a path is a file, or a directory with a document as stores have."""
    names = ("zarr.json", ".zgroup", ".zarray", ".zmetadata", "attributes.json")
    return os.path.isfile(path) or any(os.path.isfile(os.path.join(path, name)) for name in names)


def resolve_source(text: str) -> str:
    """Return SOURCE as it is opened and shown: an absolute path, or a URL without any secret."""
    from fsbridge.store.remote.urls import is_url, local_path, parse_url

    if not is_url(text):
        return make_absolute(check_spelling(text))
    return local_path(text) or parse_url(text).text


def check_spelling(path: str) -> str:
    """Return `path`; SetupError if it does not exist and looks like a URL: `s3:/bucket/path`, `zip::s3://bucket/path`."""
    from fsbridge.store.remote.urls import KINDS

    scheme, separator, _ = path.rpartition("::")[2].replace("//", ":", 1).partition(":")
    if separator and (scheme in KINDS or "://" in path) and not os.path.lexists(path):
        raise SetupError(
            f"{path}: this is neither a path nor a URL that fsbridge knows", "write s3://BUCKET/PATH, or https://SERVER/PATH"
        )
    return path


def make_absolute(path: str) -> str:
    """Return `path` as an absolute one; SetupError if the working directory has been removed."""
    try:
        return os.path.abspath(path)
    except OSError:
        raise SetupError(
            f"{path}: the working directory no longer exists", "change to a directory that exists, or give the whole path"
        ) from None


def resolve_folders(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the directories, as absolute paths, and URLs that an option named."""
    from fsbridge.store.remote.urls import is_url

    return tuple(resolve_source(path) if is_url(path) else make_absolute(path) for path in given or ())
