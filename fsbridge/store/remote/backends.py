"""obstore, which speaks to servers, set up from the user's options and environment.

- `backend` makes obstore's stores with our own timeouts.
- `Profile` gives credentials of profiles in `~/.aws`, read again while mounted, so renewed ones are used. Plain keys are
  read here; a profile with a role, single sign-on or a program needs boto3. Other credentials are found by obstore itself.
- `bucket_url` and `signed` make URLs for the requests that obstore cannot send itself (`odd_keys.py`).

Not here: requests by obstore (`client.py`).
"""

from __future__ import annotations

import configparser
import contextlib
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fsbridge import __version__
from fsbridge.config import Patience, Remote
from fsbridge.errors import FsbridgeError, SetupError, Unreachable
from fsbridge.installing import install
from fsbridge.store.remote.library import library
from fsbridge.store.remote.urls import Location, region_of

if TYPE_CHECKING:
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import ObjectStore as Backend
    from obstore.store import S3Credential


def backend(location: Location, remote: Remote, patience: Patience, connections: int, is_bucket: bool = False) -> Backend:
    """Return an obstore store with this patience and at most so many unused connections. Asks nothing of the server.

    `is_bucket`: True if the endpoint is the URL of an S3 bucket, not of a server.
    """
    plain = remote.allow_http or location.root.startswith("http://") or remote.endpoint.startswith("http://")
    client: Any = {
        "timeout": timedelta(seconds=patience.timeout),
        "connect_timeout": timedelta(seconds=2),
        "pool_idle_timeout": timedelta(seconds=remote.limits.idle_seconds),
        "pool_max_idle_per_host": str(connections),
        "user_agent": f"fsbridge/{__version__}",
        **({"allow_http": True} if plain else {}),
        **({"root_certificate": bundle} if (bundle := certificates(location)) else {}),
    }
    retry: Any = {
        "max_retries": patience.max_retries,
        "retry_timeout": timedelta(seconds=patience.retry_timeout),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=patience.max_backoff),
            "base": 2,
        },
    }
    shared: Any = {"client_options": client, "retry_config": retry}
    made: Backend
    try:
        if location.kind == "http":
            made = library().store.HTTPStore(location.text, **shared)
            return made
        if location.path:
            shared["prefix"] = location.path
        if remote.anonymous:
            shared["skip_signature"] = True
        if is_bucket:
            shared["virtual_hosted_style_request"] = True
        if location.kind == "s3":
            return _s3(location, remote, shared)
        if location.kind == "gs":
            options: Any = {"config": {"base_url": remote.endpoint}} if remote.endpoint else {}
            made = library().store.GCSStore(location.root, **options, **shared)
            return made
        more: Any = {"account_name": location.account} if location.account else {}
        if remote.endpoint:
            more["endpoint"] = remote.endpoint
        made = library().store.AzureStore(location.root, **more, **shared)
        return made
    except FsbridgeError:
        raise
    except Exception as error:
        raise SetupError(f"{location.text}: {_configuration(error, location)}") from None


SIGNED_FOR = timedelta(minutes=1)
"""Validity of a signed URL, which is used at once."""

_PATIENCE = Patience(3.5, 5.0, 3, 1.0)
"""For getting the credentials that sign a URL."""


def bucket_url(location: Location, remote: Remote, store: Backend) -> str:
    """Return the URL of the bucket of `store`, S3's or Google's, without a slash at its end. Asks nothing of the server."""
    if location.kind == "gs":
        server = remote.endpoint or os.environ.get("GOOGLE_BASE_URL", "") or "https://storage.googleapis.com"
        return f"{server.rstrip('/')}/{location.root}"
    options: Any = {name: value for name, value in store.config.items() if name in ("region", "endpoint")}  # type: ignore[union-attr]
    options |= {"access_key_id": "x", "secret_access_key": "x"}  # a signed URL tells the bucket's; the signature is not used
    plain = library().store.S3Store(location.root, client_options={"allow_http": True}, **options)
    return str(library().sign(plain, "GET", "", SIGNED_FOR)).partition("?")[0].rstrip("/")


def signed(location: Location, remote: Remote, url: str) -> str:
    """Return a URL of S3 with a signature of the user's credentials, which may take requests to get.

    `url`: of the bucket, with a query that ends with the name of a parameter and `=`.
    """
    bucket = location._replace(path="")
    try:
        store: Any = backend(bucket, replace(remote, endpoint=url), _PATIENCE, 1, is_bucket=True)
        return str(library().sign(store, "GET", "", SIGNED_FOR))
    except FsbridgeError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise Unreachable(f"{location.text}: no request can be signed; check region and credentials") from None


def certificates(location: Location) -> bytes:
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
        shared["credential_provider"] = profile = Profile(name, remote.limits.credentials_seconds)
        configured = profile.region
    if any(os.environ.get(variable) for variable in ("AWS_REGION", "AWS_DEFAULT_REGION")) and not remote.profile:
        configured = ""  # obstore takes the region from there
    if region := region_of(remote.region) or configured:
        shared["region"] = region
    made: Backend = library().store.S3Store(location.root, **shared)
    return made


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
    settings: dict[str, str] = {}
    section = profile if profile == "default" else f"profile {profile}"
    for variable, file, name in (
        ("AWS_CONFIG_FILE", "config", section),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile),
    ):
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(OSError, configparser.Error, UnicodeError):
            parser.read(os.environ.get(variable) or os.path.expanduser(f"~/.aws/{file}"), "utf-8")
        if parser.has_section(name):
            settings.update(parser.items(name))
    return settings


class Profile:
    """obstore's provider of the credentials of the profile `name`. Raises SetupError if it has none now."""

    def __init__(self, name: str, seconds: float) -> None:
        """`seconds`: for which obstore may use credentials before it asks again."""
        self._name = name
        self._validity = timedelta(seconds=seconds)
        self.region = region_in_profile(name)
        self._provider: Boto3CredentialProvider | None = None
        self._plain = self._written()
        if self._plain is not None:
            return
        try:
            self._provider = self._by_boto3()
        except ImportError:
            hint = f"{install('boto3')}; or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise SetupError(f"profile {name} needs boto3, which is not installed", hint) from None
        except Exception as error:
            raise SetupError(f"profile {name}: {type(error).__name__}: no usable credentials in it") from None
        self.region = self._provider.config.get("region", self.region)

    def _written(self) -> S3Credential | None:
        """Return the profile's keys if it has plain ones and nothing that takes their place."""
        settings = _settings(self._name)
        if not all(settings.get(key) for key in _KEYS) or any(key in settings for key in _NEEDS_BOTO3):
            return None
        return {
            "access_key_id": settings[_KEYS[0]],
            "secret_access_key": settings[_KEYS[1]],
            "token": settings.get("aws_session_token") or None,
            "expires_at": datetime.now(UTC) + self._validity,
        }

    def _by_boto3(self) -> Boto3CredentialProvider:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider(boto3.Session(profile_name=self._name), ttl=self._validity)

    def __call__(self) -> Any:
        """Return the present credentials."""
        if self._provider is None:
            self._plain = self._written() or self._plain  # the file may be half-written: then the last keys stay
            return self._plain
        if not hasattr(self._provider.credentials, "refresh_needed"):  # boto3 does not renew these by itself
            with contextlib.suppress(Exception):
                self._provider = self._by_boto3()
        return self._provider()
