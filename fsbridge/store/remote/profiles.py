"""Credentials of a profile in `~/.aws`, by boto3: those that are there now, so that nobody mounts anew to renew them.

Not here: credentials that the environment or the machine's role gives, which are obstore's to find (`backends.py`).
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fsbridge import confinement
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from obstore.auth.boto3 import Boto3CredentialProvider

GOOD_FOR = timedelta(minutes=6)
"""obstore asks for credentials anew five minutes before they end: so each minute while requests are made."""


class Profile:
    """obstore's provider of the credentials of the profile `name`; SetupError when there are none now."""

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            self._provider = self._read()
        except ImportError:
            hint = "install it with: pip install 'fsbridge-fuse[aws]'; or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise SetupError("--profile needs boto3, which is not installed", hint) from None
        except Exception as error:
            raise SetupError(f"profile {name}: {type(error).__name__}: no usable credentials in it") from None
        self.region: str = self._provider.config.get("region", "")

    def _read(self) -> Boto3CredentialProvider:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider(boto3.Session(profile_name=self._name), ttl=GOOD_FOR)

    def __call__(self) -> Any:
        """In front of the wall: boto3 runs other programs and writes files, as the user's own configuration tells it to."""
        return confinement.outside(self._now)

    def _now(self) -> Any:
        if not hasattr(self._provider.credentials, "refresh_needed"):  # from a file that boto3 reads once; others it renews
            with contextlib.suppress(Exception):  # somebody is writing it: the old ones may be good for a while
                self._provider = self._read()
        return self._provider()
