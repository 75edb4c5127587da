"""URLs of remote stores: what they name, and that they hold no secret. Not here: requests (`client.py`)."""

from __future__ import annotations

import os
import re
import urllib.parse
from hashlib import blake2b
from typing import Literal, NamedTuple

from fsbridge.errors import SetupError
from fsbridge.store import is_path

Kind = Literal["s3", "gs", "az", "http"]

KINDS: dict[str, Kind] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "http": "http",
    "https": "http",
}

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Variables in which Amazon's other programs look for a server that is not Amazon's, the first one first."""

_SERVERS: dict[Kind, tuple[str, ...]] = {
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR"),
}
"""Variables in which obstore looks for the server of a bucket, if its URL does not name it."""

_SIGNATURE = re.compile(r"[?&](X-Amz-|X-Goog-|Signature=|sig=)", re.IGNORECASE)
"""Matches the query of a signed URL."""

_SECRET = re.compile(r"sig|token|key|secret|private|pass|auth|credential|policy|expires|^x-|^s[a-z]$", re.IGNORECASE)
"""Matches parameters of a query that may be part of a signature or a password. Azure's have two letters (`sv`, `sp`)."""

_FOR_BROWSERS = frozenset(("download",))
"""Parameters of a query that only tell a browser to save the file: Zenodo's links end with `?download=1`."""

_NAME = re.compile(r"[A-Za-z0-9._~:$-]+")
"""Matches the name of a bucket, a container, a server or a region."""

_URL = re.compile(r"[^\x00-\x20\x7f-\U0010ffff\"<>\\^`{|}]+")
"""What a URL may consist of (RFC 3986), except what we spell ourselves."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class Location(NamedTuple):
    """A place in an object store or on a web server. `text` is the URL as it may be shown: it never holds a secret.

    `root`: bucket, container, or the server's URL; `path`: below it, without slashes at its ends, for a web server in the
    URL's own spelling. `account`: Azure's, if the URL names it.
    """

    kind: Kind
    text: str
    root: str
    path: str
    account: str = ""

    @property
    def name(self) -> str:
        """The last component of the path, as a key."""
        name = self.path.rpartition("/")[2]
        return urllib.parse.unquote(name) if self.kind == "http" else name

    @property
    def parent(self) -> Location:
        """The place above."""
        path = self.path.rpartition("/")[0]
        return self._replace(path=path, text=self.text[: len(self.text) - len(self.path) + len(path)].rstrip("/"))


def is_url(text: str) -> bool:
    """Tell whether `text` is spelled as a URL of any scheme."""
    return _SCHEME.fullmatch(text) is not None


def local_path(text: str) -> str | None:
    """Return the path that a `file:` URL names, or None for any other text."""
    if not text.lower().startswith("file://"):
        return None
    host, slash, path = text[len("file://") :].partition("/")
    if host not in ("", "localhost"):
        raise SetupError(f"{text}: a file URL of another machine", "write file:///path, or the path alone")
    name = urllib.parse.unquote(slash + path, errors="surrogateescape") or "/"
    if not is_path(name):
        raise SetupError(f"{text}: names no file", "write file:///path, or the path alone")
    return name


def parse_url(text: str) -> Location:
    """Return the location of a URL. Raises SetupError for an unknown scheme, a missing bucket, or a secret in the URL."""
    match = _SCHEME.fullmatch(text)
    scheme = match[1].lower() if match is not None else ""
    if match is None or scheme not in KINDS:
        raise SetupError(
            f"{scheme or text}: no kind of store that fsbridge knows", "s3:// gs:// az:// http:// https:// file://"
        )
    kind = KINDS[scheme]
    if _holds_password(match[2]):
        raise _secret(f"{scheme}://...@{match[2].rpartition('@')[2]}")
    if kind == "http":
        return _web(scheme, match[2])
    if _SIGNATURE.search(match[2]):
        raise _secret(f"{scheme}://...?...")
    root, _, path = match[2].partition("/")
    path = path.strip("/")
    account = ""
    if kind == "az" and "@" in root:
        root, _, host = root.partition("@")
        account = host.partition(".")[0]
    elif "@" in root:
        raise _secret(f"{scheme}://...")
    if not root:
        raise SetupError(f"{text}: names no bucket", f"write {scheme}://BUCKET/PATH")
    if not all(map(_NAME.fullmatch, [root, host] if account else [root])):
        raise SetupError(f"{text}: not the name of a bucket", f"write {scheme}://BUCKET/PATH")
    if any(part in ("", ".", "..") for part in path.split("/")) and path:
        raise SetupError(f"{text}: a path with empty components, '.' or '..'")
    where = f"{root}@{host}" if account else root
    return Location(kind, "/".join(filter(None, [f"{scheme}://{where}", path])), root, path, account)


def _holds_password(rest: str) -> bool:
    """Tell whether a URL has a name and a password after its scheme. The password may contain a slash."""
    before, at, _ = rest.rpartition("@")
    name, colon, word = before.partition("/")[0].rpartition(":")
    return bool(at and colon and name and not name.startswith(("[", "arn:")) and not word.isdecimal())


def endpoint_of(location: Location, given: str) -> str:
    """Return the URL of the server that the user names, for S3 also by the environment; empty: the provider's own.

    Raises SetupError for anything else, and for a secret in it.
    """
    named = (os.environ.get(name, "") for name in _ENDPOINTS) if location.kind == "s3" else ()
    text = given or next(filter(None, named), "")
    if not text:
        return ""
    if "@" in text:
        raise _secret(f"endpoint ...@{text.rpartition('@')[2]}")
    try:
        parts = urllib.parse.urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and _URL.fullmatch(text):
            return text
    except ValueError:  # no such port
        pass
    raise SetupError(f"endpoint {text}: not the URL of a server", "write https://SERVER, or http://SERVER:PORT")


def identity(location: Location, endpoint: str) -> str:
    """Return what identifies a store: its URL, and what stands for the server if the URL does not name it.

    `endpoint`: as returned by `endpoint_of`.
    """
    named = (os.environ.get(name, "") for name in _SERVERS.get(location.kind, ()))
    server = "\n".join(filter(None, [endpoint, *named]))
    return f"{location.text} {blake2b(server.encode(), digest_size=8).hexdigest()}" if server else location.text


def region_of(given: str) -> str:
    """Return the region that the user or the environment names, or "". Raises SetupError for what cannot be a region."""
    for name in (given, *(os.environ.get(variable, "") for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"))):
        if name and _NAME.fullmatch(name) is None:
            raise SetupError(f"region {name!r}: not the name of a region", "write --region eu-west-1")
    return given


def _web(scheme: str, rest: str) -> Location:
    before, _, query = rest.partition("?")
    host, _, path = before.partition("/")
    if "@" in host:
        raise _secret(f"{scheme}://...@{host.rpartition('@')[2]}")
    _check_query(f"{scheme}://{before.partition('#')[0]}", "#" in rest, query)
    if not host:
        raise SetupError(f"{scheme}://{rest}: names no server", f"write {scheme}://SERVER/PATH")
    path = path.strip("/")
    root = f"{scheme}://{host}"
    return Location("http", f"{root}/{path}" if path else root, root, path)


def _check_query(shown: str, has_fragment: bool, query: str) -> None:
    """Raise SetupError unless a URL of a web server means the same without its query, which is never sent."""
    names = [name for word in re.split("[&;]", query) if (name := word.partition("=")[0])]
    if any(map(_SECRET.search, names)):
        raise _secret(f"{shown}?...")
    wanted = [f"?{name[:80]}=..." for name in names if name.lower() not in _FOR_BROWSERS] + ["#..."] * has_fragment
    if wanted:
        hint = "give the URL without it; in a file's name, write %3F for '?' and %23 for '#'"
        raise SetupError(f"{shown}: fsbridge sends no {wanted[0]} to a server", hint)


def _secret(shown: str) -> SetupError:
    return SetupError(
        f"{shown}: the URL holds a password or a signature, which everybody could read in the list of processes",
        "give credentials by environment variables; a signature is good for one object only",
    )
