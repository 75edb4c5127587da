"""The libraries that speak to servers, set up from the user's options and environment: obstore, and boto3 if need be.

- `backend` makes obstore's stores with our own timeouts.
- `Profile` gives credentials of profiles in `~/.aws`, read again while mounted, so renewed ones are used. Plain keys are
  read here; a profile with a role, single sign-on or a program needs boto3. Other credentials are found by obstore itself.
- `OddKeys` lists buckets with keys that no path can be: `a//b`, `a/./b`, or a control character. Only those are left out.
  obstore refuses a whole page with such a key, so boto3 asks for these listings.

Not here: requests by obstore (`client.py`).
"""

from __future__ import annotations

import configparser
import contextlib
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fsbridge import __version__, confinement
from fsbridge.config import Remote
from fsbridge.errors import CorruptData, FsbridgeError, SetupError, Unreachable
from fsbridge.store.remote.library import stores
from fsbridge.store.remote.urls import Location, region_of

if TYPE_CHECKING:
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import ObjectStore as Backend
    from obstore.store import S3Credential

log = logging.getLogger(__name__)

LINGER_SECONDS = 10
"""Seconds that an unused connection stays open, and at most twice that, because obstore looks only that often."""


def backend(location: Location, remote: Remote, patience: dict[str, float], connections: int) -> Backend:
    """Return an obstore store with these timeouts and at most so many unused connections. Asks nothing of the server."""
    plain = remote.allow_http or location.root.startswith("http://") or remote.endpoint.startswith("http://")
    client: Any = {
        "timeout": timedelta(seconds=patience["timeout"]),
        "connect_timeout": timedelta(seconds=2),
        "pool_idle_timeout": timedelta(seconds=LINGER_SECONDS),
        "pool_max_idle_per_host": str(connections),
        "user_agent": f"fsbridge/{__version__}",
        **({"allow_http": True} if plain else {}),
        **({"root_certificate": bundle} if (bundle := _bundle(location)) else {}),
    }
    retry: Any = {
        "max_retries": int(patience["max_retries"]),
        "retry_timeout": timedelta(seconds=patience["retry_timeout"]),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=patience["max_backoff"]),
            "base": 2,
        },
    }
    shared: Any = {"client_options": client, "retry_config": retry}
    made: Backend
    try:
        if location.kind == "http":
            made = stores().HTTPStore(location.text, **shared)
            return made
        if location.path:
            shared["prefix"] = location.path
        if remote.anonymous:
            shared["skip_signature"] = True
        if location.kind == "s3":
            return _s3(location, remote, shared)
        if location.kind == "gs":
            options: Any = {"config": {"base_url": remote.endpoint}} if remote.endpoint else {}
            made = stores().GCSStore(location.root, **options, **shared)
            return made
        more: Any = {"account_name": location.account} if location.account else {}
        if remote.endpoint:
            more["endpoint"] = remote.endpoint
        made = stores().AzureStore(location.root, **more, **shared)
        return made
    except FsbridgeError:
        raise
    except Exception as error:
        raise SetupError(f"{location.text}: {_configuration(error, location)}") from None


def _bundle(location: Location) -> bytes:
    """Return the certificates in the file that AWS_CA_BUNDLE names, which Amazon's own programs trust, too.

    Empty if it is unset or the store is not S3. Raises SetupError if they cannot be read.
    """
    path = os.environ.get("AWS_CA_BUNDLE", "") if location.kind == "s3" else ""
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SetupError(f"AWS_CA_BUNDLE {path}: {(error.strerror or str(error)).lower()}") from None


def _configuration(error: Exception, location: Location) -> str:
    """Return why a store cannot be made. The error is not quoted, because it may contain a secret."""
    if "No CA certificates" in str(error):
        return "this machine has no certificates to trust servers by; install ca-certificates, or set SSL_CERT_FILE"
    if location.kind == "gs":
        return "its credentials cannot be used; check GOOGLE_APPLICATION_CREDENTIALS, or use --anonymous"
    if location.kind == "az" and "account" in str(error).lower():
        return "names no account; write az://CONTAINER@ACCOUNT.blob.core.windows.net/PATH or set AZURE_STORAGE_ACCOUNT_NAME"
    return f"cannot be reached as it is configured ({type(error).__name__})"


def _s3(location: Location, remote: Remote, shared: Any) -> Backend:
    if remote.endpoint:
        shared["endpoint"] = remote.endpoint
    name = remote.profile or ("" if remote.anonymous else implied())
    configured = region_in_profile(name)
    if name:
        shared["credential_provider"] = profile = Profile(name)
        configured = profile.region
    if any(os.environ.get(variable) for variable in ("AWS_REGION", "AWS_DEFAULT_REGION")) and not remote.profile:
        configured = ""  # obstore takes the region from there
    if region := region_of(remote.region) or configured:
        shared["region"] = region
    made: Backend = stores().S3Store(location.root, **shared)
    return made


GOOD_FOR = timedelta(minutes=6)
"""Validity of credentials as told to obstore. It asks again five minutes before the end: once a minute, while in use."""

_FROM_THE_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables that give credentials. AWS_ACCESS_KEY_ID comes before the files everywhere, as Amazon's own programs have it."""

_KEYS = ("aws_access_key_id", "aws_secret_access_key")
_NEEDS_BOTO3 = ("role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file")


def implied() -> str:
    """Return the profile that gives the credentials if none is named: AWS_PROFILE, else `default`; "" if it has none."""
    if any(os.environ.get(name) for name in _FROM_THE_ENVIRONMENT):
        return ""
    named = os.environ.get("AWS_PROFILE", "")
    settings = _settings(named or "default")
    return named or ("default" if any(key in settings for key in (_KEYS[0], *_NEEDS_BOTO3)) else "")


def region_in_profile(profile: str = "") -> str:
    """Return the region that `~/.aws/config` has for a profile; "" if it has none."""
    return _settings(profile or os.environ.get("AWS_PROFILE") or "default").get("region", "")


def _settings(profile: str) -> dict[str, str]:
    """Return the settings of a profile in the two files. Files that are missing or cannot be parsed are ignored."""
    found: dict[str, str] = {}
    section = profile if profile == "default" else f"profile {profile}"
    for variable, file, name in (
        ("AWS_CONFIG_FILE", "config", section),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile),
    ):
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(OSError, configparser.Error, UnicodeError):
            parser.read(os.environ.get(variable) or os.path.expanduser(f"~/.aws/{file}"), "utf-8")
        if parser.has_section(name):
            found.update(parser.items(name))
    return found


class Profile:
    """obstore's provider of the credentials of the profile `name`. Raises SetupError if it has none now."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.region = region_in_profile(name)
        self._provider: Boto3CredentialProvider | None = None
        self._plain = self._written()
        if self._plain is not None:
            return
        try:
            self._provider = self._by_boto3()
        except ImportError:
            hint = "pip install boto3, beside fsbridge; or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise SetupError(f"profile {name} needs boto3, which is not installed", hint) from None
        except Exception as error:
            raise SetupError(f"profile {name}: {type(error).__name__}: no usable credentials in it") from None
        self.region = self._provider.config.get("region", self.region)

    def _written(self) -> S3Credential | None:
        """Return the profile's keys if it has plain ones and nothing that takes their place."""
        found = _settings(self._name)
        if not all(found.get(key) for key in _KEYS) or any(key in found for key in _NEEDS_BOTO3):
            return None
        return {
            "access_key_id": found[_KEYS[0]],
            "secret_access_key": found[_KEYS[1]],
            "token": found.get("aws_session_token") or None,
            "expires_at": datetime.now(UTC) + GOOD_FOR,
        }

    def _by_boto3(self) -> Boto3CredentialProvider:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider(boto3.Session(profile_name=self._name), ttl=GOOD_FOR)

    def __call__(self) -> Any:
        """Return the present credentials. Runs outside of the confinement, because boto3 may run the user's own programs."""
        return confinement.outside(self._now)

    def _now(self) -> Any:
        if self._provider is None:
            self._plain = self._written() or self._plain  # the file may be half-written: then the last keys stay
            return self._plain
        if not hasattr(self._provider.credentials, "refresh_needed"):  # boto3 does not renew these by itself
            with contextlib.suppress(Exception):
                self._provider = self._by_boto3()
        return self._provider()


class OddKey(CorruptData):
    """A listing has a key that no path can be."""


class OddKeys:
    """Listings by boto3 of the store at `location`. Its client is made at the first one."""

    def __init__(self, location: Location, remote: Remote) -> None:
        self._location = location
        self._remote = remote
        self._client: Any = None
        self._said: set[str] = set()

    def pages(self, prefix: str, after: str | None, one_level: bool) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
        """Yield the prefixes and the objects of each page, as obstore gives them: with keys below the location.

        `after`: only keys behind this one. `one_level`: deeper keys are given as prefixes. Raises CorruptData if boto3 is
        not installed, and Unreachable if the server does not answer boto3.
        """
        root = f"{self._location.path}/" if self._location.path else ""
        asked = {"Bucket": self._location.root, "Prefix": f"{root}{prefix}/" if prefix else root}
        if after is not None:
            asked["StartAfter"] = root + after
        if one_level:
            asked["Delimiter"] = "/"
        pages = iter(self._boto3().get_paginator("list_objects_v2").paginate(**asked))
        while (page := self._next(pages)) is not None:
            prefixes = [item["Prefix"][len(root) : -1] for item in page.get("CommonPrefixes", ())]
            found = [
                {
                    "path": item["Key"][len(root) :].removesuffix("/"),
                    "size": item["Size"],
                    "last_modified": item["LastModified"],
                }
                | {"e_tag": item.get("ETag")}
                for item in page.get("Contents", ())
                if item["Key"] != asked["Prefix"]
            ]
            yield [name for name in prefixes if self._fits(name)], [item for item in found if self._fits(item["path"])]

    def _next(self, pages: Iterator[Any]) -> Any:
        try:
            return next(pages, None)
        except Exception as error:
            raise Unreachable(f"{self._location.text}: cannot be listed by boto3 ({type(error).__name__})") from None

    def _fits(self, key: str) -> bool:
        """Return whether a path can have this name; the first hundred that cannot are logged."""
        if all(part not in ("", ".", "..") for part in key.split("/")) and all(c >= " " and c != "\x7f" for c in key):
            return True
        if key not in self._said and len(self._said) < 100:
            self._said.add(key)
            log.warning("%s: the key %r is left out: no path can have this name", self._location.text, key)
        return False

    def _boto3(self) -> Any:
        if self._client is None:
            self._client = confinement.outside(self._made)
        return self._client

    def _made(self) -> Any:
        try:
            import boto3
            from botocore import UNSIGNED
            from botocore.config import Config
        except ImportError:
            raise CorruptData(
                f"{self._location.text}: cannot be listed: a key in it has an empty part, '.', '..' or a control character, "
                "which needs boto3: pip install '.[aws]' in fsbridge's checkout"
            ) from None
        settings: Any = {"connect_timeout": 2, "read_timeout": 3.5, "retries": {"total_max_attempts": 2}}
        if self._remote.anonymous:
            settings["signature_version"] = UNSIGNED
        if self._remote.endpoint:
            settings["s3"] = {"addressing_style": "path"}
        return boto3.Session(profile_name=self._remote.profile or None).client(
            "s3",
            region_name=self._remote.region or None,
            endpoint_url=self._remote.endpoint or None,
            config=Config(**settings),
        )
