"""Credentials and regions of the profiles in `~/.aws`, read again while mounted, so renewed ones are used.

Plain keys are read by ourselves; a profile with a role, single sign-on or a program needs boto3. Not here: credentials
that the environment or the machine's role gives, which obstore finds itself (`backends.py`).
"""

from __future__ import annotations

import configparser
import contextlib
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fsbridge import confinement
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import S3Credential

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


def region(profile: str = "") -> str:
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
        self.region = region(name)
        self._provider: Boto3CredentialProvider | None = None
        self._plain = self._written()
        if self._plain is not None:
            return
        try:
            self._provider = self._by_boto3()
        except ImportError:
            hint = "pip install '.[aws]' in fsbridge's checkout; or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
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
            self._plain = self._written() or self._plain  # while the file is being written, the last keys may be good
            return self._plain
        if not hasattr(self._provider.credentials, "refresh_needed"):  # boto3 reads these once; others it renews itself
            with contextlib.suppress(Exception):
                self._provider = self._by_boto3()
        return self._provider()
