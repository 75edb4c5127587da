"""`fsbridge mount`, also as mount(8) calls it: arguments and `-o a=b,c` to a Config. Exit codes are mount(8)'s (`EPILOG`).

Options in `-o` are fsbridge's, the kernel's, or bookkeeping of mount(8) and systemd. Not here: options that other commands
have, too (`arguments.py`), mounting (`mount/lifecycle.py`).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import USAGE, Parser
from fsbridge.commands.settings import MACHINE, find_own_file, read_settings
from fsbridge.config import LEVELS, Config
from fsbridge.errors import SetupError, nearest

EPILOG = """\
exit codes: 0 mounted or unmounted; 1 wrong usage, no such store or no permission; 2 system error; 8 interrupted; \
32 mount failure
"""

KERNEL = frozenset(
    {"ro", "nosuid", "nodev", "noexec", "noatime", "sync", "dirsync"}
    | {"allow_root", "default_permissions", "auto_unmount", "fsname", "subtype", "context"}
)
"""Passed on to libfuse, with their values. Not max_read, which libfuse 3.14 takes from C programs only."""

IGNORED = frozenset(
    {"auto", "noauto", "user", "nouser", "users", "owner", "group", "defaults", "_netdev", "nofail"}
    | {"relatime", "strictatime", "lazytime", "dev", "suid", "rw", "async", "atime", "exec"}
)
"""Options of fstab and mount(8) only, and the kernel's defaults: ignored. A mount is always ro, nosuid and nodev."""

_IGNORED_PATTERN = re.compile(r"(x-|X-|comment=)")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_ENV_FILE_CHARACTERS = 1 << 20


def make_parser(program: str) -> Parser:
    """Return the parser of `mount`."""
    parser = Parser(
        prog=program,
        usage=f"{program} [OPTION]... SOURCE MOUNTPOINT",
        description="Mount SOURCE read-only on MOUNTPOINT.",
        epilog="Every long option --a-b VALUE can also be written -o a_b=VALUE.\n"
        "example: fsbridge mount brain.n5 /mnt/brain --layout files --cache-size 1G\n" + EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("source", type=types.path, metavar="SOURCE", help=arguments.SOURCE_AND_PATH)
    parser.add_argument(
        "mountpoint",
        type=types.path,
        metavar="MOUNTPOINT",
        help="a directory outside the store, or /dev/fd/N, a /dev/fuse that is open and mounted",
    )
    add = parser.add_argument
    add("-f", "--foreground", action="store_true", help="stay in the foreground and log to the terminal")
    add("-d", "--debug", action="store_true", help="stay in the foreground and log everything")
    arguments.add_format(parser)
    arguments.add_tree(parser)
    arguments.add_selection(parser)
    add = parser.group(arguments.SHOW).add_argument
    add("--xattrs", action="store_true", help="show facts about the source as extended attributes user.fsbridge.*")
    arguments.add_permissions(parser)
    add = parser.group(arguments.ACCESS).add_argument
    add("--allow-other", action="store_true", help="let other users read what everybody may read in the store")
    add("--uid", type=types.user, metavar="USER", help="owner of all files (default: the user who mounts)")
    add("--gid", type=types.group, metavar="GROUP", help="group of all files (default: that of the user who mounts)")
    add(
        "--umask",
        type=types.umask,
        metavar="OCTAL",
        help="permission bits to remove from the modes 444 (files) and 555 (directories)",
    )
    parser.group(arguments.FRESHNESS).add_argument(
        "--metadata-ttl", type=types.seconds, metavar="SECONDS", help="how old the answer of stat may be (default: 1)"
    )
    add = parser.add_argument
    add("--nonempty", action="store_true", help="mount over another mount, or over a directory that is not empty")
    add("--force", action="store_true", help="first unmount a stale mount, whose daemon has ended")
    add = parser.group(arguments.LOGGING).add_argument
    add(
        "--log-file",
        type=types.path,
        metavar="FILE",
        help="log to FILE (default: syslog, or the terminal in the foreground)",
    )
    add("--log-level", default="warning", choices=LEVELS, help="least severe level that is logged (default: warning)")
    add("-v", action="store_const", const="info", dest="log_level", help="log ordinary work too: --log-level info")
    add("--log-format", default="text", choices=("text", "json"), help="log lines of text or of JSON (default: text)")
    add(
        "--access-log",
        type=types.path,
        metavar="FILE",
        help="append a line of JSON to FILE for each open, and for each read not answered from memory",
    )
    arguments.add_remote(parser)
    parser.add_argument(
        "-o",
        action="append",
        default=[],
        dest="options",
        metavar="OPTION,...",
        help="mount options of fsbridge or of the kernel",
    )
    return parser


def list_option_names(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """Return the long options of `parser` as `-o` spells them, with underscores, and whether each takes a value."""
    return {
        long[2:].replace("-", "_"): action.nargs != 0
        for long, action in parser._option_string_actions.items()
        if long.startswith("--") and not isinstance(action, argparse._HelpAction)
    }


def _mount(config: Config) -> int:
    from fsbridge.mount.lifecycle import mount

    source, mountpoint = config.source, config.mountpoint
    if _is_empty(source) and arguments.looks_like_a_store(mountpoint):
        raise SetupError(
            f"{source} is an empty directory, but {mountpoint} is a store",
            f"exchange the two: fsbridge mount {shlex.quote(mountpoint)} {shlex.quote(source)}",
            USAGE,
        )
    return mount(config)


def _is_empty(path: str) -> bool:
    """True if a directory is empty. False if it may not be read: opening it then reports that."""
    try:
        return not os.listdir(path)
    except OSError:
        return False


def run(program: str, argv: Sequence[str]) -> int:
    """Mount the source that `argv` names."""
    return _mount(parse(program, argv))


def parse(
    program: str, argv: Sequence[str], sloppy: bool = False, file: str | None = None, machine_file: str = MACHINE
) -> Config:
    """Return the Config that a mount command line asks for; SetupError for mistakes.

    `sloppy`: ignore unknown mount options. `file`: the user's file of settings; None: where the variables say.
    `machine_file`: the file of settings for all users.
    """
    options = make_parser(program)
    first = options.parse_args(argv)
    given = [option for text in first.options for option in split_options(text)]
    given, environment = split_environment_options(given)
    ours, kernel = sort_options(given, list_option_names(options), sloppy)
    # Options given by -o are parsed by the same parser, so both spellings mean the same by construction.
    words = argv.index("--") if "--" in argv else len(argv)
    defaults = read_settings(options, first.source, file, environment, machine_file)
    args = options.parse_args([*defaults.words(), *argv[:words], *ours, *argv[words:]])
    if defaults.source is not None:
        args.source = arguments.join_place(str(defaults.source.value), first.source)
    source, inside = arguments.split_place(args.source)
    optional = {name: getattr(args, name) for name in ("metadata_ttl", "uid", "gid", "umask")}
    return arguments.make_config(
        args,
        source,
        arguments.make_absolute(args.mountpoint),
        inside=inside,
        xattrs=args.xattrs,
        allow_other=args.allow_other,
        foreground=args.foreground or args.debug,
        nonempty=args.nonempty,
        force=args.force,
        log_file=None if args.log_file is None else arguments.make_absolute(args.log_file),
        log_level="debug" if args.debug else args.log_level,
        log_format=args.log_format,
        access_log=None if args.access_log is None else arguments.make_absolute(args.access_log),
        environment=tuple(environment.items()),
        kernel_options=tuple(kernel),
        **{name: value for name, value in optional.items() if value is not None},
    )


def helper(program: str, argv: Sequence[str], mount: Callable[[Config], int] = _mount) -> int:
    """Do what mount(8) asks of mount.TYPE: `SOURCE MOUNTPOINT [-sfnv] [-N namespace] [-t type] [-o options]`."""
    parser = Parser(prog=program, add_help=False, allow_abbrev=False)
    parser.add_argument("source")
    parser.add_argument("mountpoint")
    parser.add_argument("-s", action="store_true")  # sloppy: tolerate unknown options
    parser.add_argument("-f", action="store_true")  # fake: do everything but mount
    parser.add_argument("-n", action="store_true")  # no mtab, which no system has any more
    parser.add_argument("-v", action="store_true")
    parser.add_argument("-r", action="store_true")
    parser.add_argument("-w", action="store_true")
    parser.add_argument("-N", metavar="namespace")  # a file such as /proc/PID/ns/mnt, which mount(8) has not entered
    parser.add_argument("-t")
    parser.add_argument("-o", action="append", default=[])
    args = parser.parse_args(argv)
    if args.N is not None:
        from fsbridge.mount.private import join_namespace

        try:
            join_namespace(args.N)
        except OSError as error:
            raise SetupError(f"cannot enter the mount namespace {args.N}: {error.strerror}") from None
    words = [args.source, args.mountpoint]
    for text in args.o:
        words += ["-o", text]
    config = parse(program, words, args.s, find_own_file())
    return 0 if args.f else mount(config)


class Sorted(NamedTuple):
    """Mount options, separated.

    `own`: fsbridge's, as command line words (`--cache-size=64M`); `kernel`: as libfuse takes them.
    """

    own: list[str]
    kernel: list[str]


def split_options(text: str) -> list[str]:
    """Split `a,b=c` into options. A comma in a value is kept after a backslash (libfuse's rule) or in quotes."""
    options, current, quoted, escaped = [], "", False, False
    for char in text:
        if escaped:
            current += char if char in ',\\"' else "\\" + char
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            options.append(current)
            current = ""
        else:
            current += char
    if quoted:
        raise SetupError(f"the mount options have a quote that is not closed: {text}")
    options.append(current + ("\\" if escaped else ""))
    return [option for option in options if option]


def sort_options(options: Iterable[str], own: Mapping[str, bool], sloppy: bool = False) -> Sorted:
    """Separate fsbridge's options from the kernel's; SetupError names an unknown one, unless `sloppy`.

    `own` maps our option names, spelled with underscores, to whether they take a value.
    """
    result, before = Sorted([], []), ""
    for option in options:
        name, equals, value = option.partition("=")
        if name in own:
            if own[name] and not equals:
                raise SetupError(f"mount option {name} needs a value: {name}=...", _advise_on_list(option, before))
            if not own[name] and equals:
                raise SetupError(f"mount option {name} takes no value")
            result.own.append(f"--{name.replace('_', '-')}{equals}{value}")
        elif name in KERNEL:
            result.kernel.append(option)
        elif option not in IGNORED and not _IGNORED_PATTERN.match(option) and not sloppy:
            near = nearest(name.replace("-", "_"), own)
            hint = f"perhaps {near}? " if near else ""
            advice = _advise_on_list(option, before) or f"{hint}fsbridge mount --help lists the options"
            raise SetupError(f"unknown mount option: {option}", advice)
        before = option
    return result


def split_environment_options(options: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Return all other options, and the variables that `env.NAME=VALUE` and `env_file=PATH` set.

    Of equal ones the last counts.
    """
    others, variables = [], dict[str, str]()
    for option in options:
        name, _, value = option.partition("=")
        if name == "env_file":
            variables |= _read_env_file(value)
        elif name.startswith("env."):
            if not _VARIABLE.fullmatch(name[4:]):
                raise SetupError(f"mount option {name}: {name[4:]!r} is not the name of a variable", "write env.NAME=VALUE")
            variables[name[4:]] = value
        else:
            others.append(option)
    return others, variables


def _read_env_file(path: str) -> dict[str, str]:
    """Return the variables in a file of lines `NAME=VALUE`, as systemd's EnvironmentFile has them."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_ENV_FILE_CHARACTERS + 1)
    except (OSError, UnicodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise SetupError(f"env_file {path!r}: {reason}", "write one line NAME=VALUE for each variable") from None
    if len(text) > _ENV_FILE_CHARACTERS:
        raise SetupError(f"env_file {path}: it has more than {_ENV_FILE_CHARACTERS} characters")
    variables = {}
    for number, line in enumerate(text.split("\n"), 1):  # other line separators of Unicode may be in a value
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        name, equals, value = line.removeprefix("export ").partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise SetupError(f"env_file {path}: line {number} is not NAME=VALUE")  # the line may be a secret
        value = value.strip()
        variables[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    return variables


def _advise_on_list(option: str, before: str) -> str:
    """Return advice if `option` seems to continue the list `before` behind a comma, because a comma ends a mount option."""
    goes_on = before.startswith(("layout=", "files=")) and "=" not in option
    return f"write + instead of the comma: {before}+{option}" if goes_on else ""
