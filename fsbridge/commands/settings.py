"""Options of `mount` from files and the environment, and sources that have a name; the command line wins.

Precedence, the highest first: the command line, `FSBRIDGE_<OPTION>`, the named source, `[mount]` of the user's file, of
`/etc/fsbridge.toml`. Not here: what an option means (`mount.py`), which ones other commands take (`sources.py`), what
is printed (`config.py`).
"""

from __future__ import annotations

import argparse
import errno
import os
import pwd
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fsbridge.config import parse_place
from fsbridge.errors import SetupError, nearest

MACHINE = "/etc/fsbridge.toml"

VARIABLES = "FSBRIDGE_"
"""How the names of variables begin."""

FILE_BYTES = 1 << 20
"""Most bytes of a file of settings."""

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False, "": False}


class Setting(NamedTuple):
    """The value of an option, and where it was set."""

    option: str
    """With hyphens: `cache-size`."""
    value: bool | str | list[str]
    origin: str


class Settings(NamedTuple):
    """The settings in force besides the command line, by option.

    `source`: what a named source stands for; None without a name.
    """

    options: dict[str, Setting]
    source: Setting | None

    def words(self) -> list[str]:
        """Return the options as the command line spells them."""
        return [word for setting in self.options.values() for word in spell(setting)]


def find_user_file() -> str:
    """Return the path of the user's settings file: in $XDG_CONFIG_HOME, else in $HOME/.config.

    A $HOME that the user may not enter belongs to another user: runuser, setpriv and `docker run --user` leave it unchanged.
    """
    given, home = (os.environ.get(name, "") for name in ("XDG_CONFIG_HOME", "HOME"))
    if given.startswith("/"):
        return f"{given}/fsbridge/config.toml"
    return f"{home}/.config/fsbridge/config.toml" if home.startswith("/") and _may_enter(home) else find_own_file()


def _may_enter(folder: str) -> bool:
    try:
        os.stat(f"{folder}/.")
    except OSError as error:
        return error.errno != errno.EACCES
    return True


def find_own_file() -> str:
    """Return the path of the settings file in the home directory that the user database gives.

    The helper of mount(8) needs it, because the variables may be another user's there, or unset.
    """
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = "/"
    return f"{home}/.config/fsbridge/config.toml"


def read_settings(
    parser: argparse.ArgumentParser,
    source: str | None,
    file: str | None = None,
    more: Mapping[str, str] | None = None,
    machine_file: str = MACHINE,
) -> Settings:
    """Return the settings for `source`, a name or SOURCE//PATH. SetupError for a mistake, with its file and key.

    `parser`: of `mount`; `file`: the user's file; `more`: variables besides those of the environment; `machine_file`: the
    file for all users.
    """
    source = None if source is None else parse_place(source)[0]
    known = list_options(parser)
    defaults, named = dict[str, Setting](), dict[str, tuple[str, Mapping[str, Any]]]()
    for path in (machine_file, file or find_user_file()):
        document = _read_document(path)
        defaults |= _read_section(parser, known, path, "mount", document.pop("mount", {}))
        for name, table in _table(path, "sources", document.pop("sources", {})).items():
            named[name] = path, _table(path, f"sources.{name}", table)
        for key in document:
            hint = "sections: [mount] for all sources, [sources.NAME] for one"
            raise SetupError(f"{path}: unknown section or key {key!r}", hint)
    place = None
    if source in named:
        path, table = named[source]
        options = dict(table)
        text = options.pop("source", None)
        if not isinstance(text, str) or not text:
            raise SetupError(f'{path}: [sources.{source}] has no source = "..."', "name the directory, file or URL")
        place = Setting("source", text, f"{path} [sources.{source}]")
        defaults |= _read_section(parser, known, path, f"sources.{source}", options)
    variables = {**os.environ, **(more or {})}
    return Settings(defaults | {setting.option: setting for setting in _read_environment(parser, known, variables)}, place)


def list_options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the long options that settings may have, by name."""
    left_out = {"help", "foreground", "debug"}
    return {
        option[2:]: action
        for option, action in parser._option_string_actions.items()
        if option.startswith("--") and option[2:] not in left_out
    }


def spell(setting: Setting) -> list[str]:
    """Return a setting as words of the command line."""
    if isinstance(setting.value, bool):
        return [f"--{setting.option}"] if setting.value else []
    values = setting.value if isinstance(setting.value, list) else [setting.value]
    return [f"--{setting.option}={value}" for value in values]


def has_settings() -> bool:
    """True if there is a file of settings or a variable. Otherwise `read_settings` need not be called."""
    return any(map(os.path.lexists, (MACHINE, find_user_file()))) or any(name.startswith(VARIABLES) for name in os.environ)


def _read_document(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read(FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}", "this file has settings of fsbridge; make it readable") from None
    if len(text) > FILE_BYTES:
        raise SetupError(f"{path}: it has more than {FILE_BYTES} bytes")
    import tomllib  # not at the top: most users have no such file

    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SetupError(f"{path}: it is not valid TOML: {error}") from None


def _table(path: str, name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SetupError(f"{path}: {name} is not a section", f"write [{name}]")
    return value


def _read_section(
    parser: argparse.ArgumentParser, known: Mapping[str, argparse.Action], path: str, name: str, table: object
) -> dict[str, Setting]:
    section = {}
    for key, value in _table(path, name, table).items():
        option, origin = key.replace("_", "-"), f"{path} [{name}]"
        if option not in known:
            near = nearest(option, known)
            hint = f"perhaps {near}?" if near else "fsbridge mount --help lists the options"
            raise SetupError(f"{origin}: unknown option {key!r}", hint)
        setting = Setting(option, _read_value(value, known[option], f"{origin} {key}"), origin)
        section[option] = _check(parser, setting)
    return section


def _read_value(value: object, action: argparse.Action, where: str) -> bool | str | list[str]:
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise SetupError(f"{where} is a switch: write true or false, not {value!r}")
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value if isinstance(action, argparse._AppendAction) else ",".join(value)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return [str(value)] if isinstance(action, argparse._AppendAction) else str(value)
    raise SetupError(f"{where} takes a text or a number, not {value!r}")


def _read_environment(
    parser: argparse.ArgumentParser, known: Mapping[str, argparse.Action], variables: Mapping[str, str]
) -> Iterator[Setting]:
    names = {option: f"{VARIABLES}{option.replace('-', '_').upper()}" for option in known}
    others = [name for name in variables if name.startswith(VARIABLES) and name not in names.values()]
    for name in sorted(others):  # what is like no option is not fsbridge's: Kubernetes names variables after a service
        near = nearest(name.removeprefix(VARIABLES), [of.removeprefix(VARIABLES) for of in names.values()])
        if near:
            raise SetupError(f"{name}: no option is called so", f"perhaps {VARIABLES}{near}?")
    for option, action in known.items():
        name = names[option]
        text = variables.get(name)
        if text is None:
            continue
        value: bool | str | list[str] = [text] if isinstance(action, argparse._AppendAction) else text
        if action.nargs == 0:
            if text.lower() not in _WORDS:
                raise SetupError(f"{name}={text}: the option is a switch", f"write {name}=1 or {name}=0")
            value = _WORDS[text.lower()]
        yield _check(parser, Setting(option, value, name))


def _check(parser: argparse.ArgumentParser, setting: Setting) -> Setting:
    """Return the setting if the parser accepts it. SetupError says where it was set."""
    try:
        parser.parse_args(["x", "x", *spell(setting)])
    except SetupError as error:
        words, _, hint = str(error).partition("\n  ")
        raise SetupError(f"{setting.origin}: {words}", "" if "--help" in hint else hint) from None
    return setting
