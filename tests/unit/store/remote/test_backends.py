"""obstore set up by options and environment: credentials of a profile in `~/.aws` as a server sees them, URLs of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_s3 import BUCKET, FakeS3

from fsbridge.config import Patience, Remote, RemoteLimits
from fsbridge.errors import SetupError
from fsbridge.store.remote.backends import backend, bucket_url
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.urls import parse_url


@pytest.fixture
def server() -> Iterator[FakeS3]:
    server = FakeS3()
    server.put("z/a", b"x")
    yield server
    server.stop()


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that boto3 reads, with the region of the profile beside it."""
    (tmp_path / "config").write_text("[profile lab]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "credentials"


def write_keys(file: Path, name: str) -> None:
    file.write_text(f"[lab]\naws_access_key_id = {name}\naws_secret_access_key = s\naws_session_token = T{name}\n")


def test_credentials_that_are_renewed_under_a_mount_are_used(server: FakeS3, credentials: Path) -> None:
    """`aws sts` and single sign-on write credentials each hour; a file that is just being written leaves the old ones."""
    limits = RemoteLimits(credentials_seconds=0.0)  # each request asks for them
    write_keys(credentials, "AKIAONE")
    client = Client(parse_url(f"s3://{BUCKET}/z"), Remote(profile="lab", endpoint=server.endpoint, limits=limits))

    def find_credentials() -> str:
        client.get("a")
        headers = server.requests[-1].headers
        assert "/eu-west-1/s3/" in headers["authorization"]
        return f"{headers['authorization'].partition('=')[2].partition('/')[0]} {headers['x-amz-security-token']}"

    assert find_credentials() == "AKIAONE TAKIAONE"
    write_keys(credentials, "AKIATWO")
    assert find_credentials() == "AKIATWO TAKIATWO"
    credentials.write_text("[lab]\naws_access_key_id = AKIATHREE\n")
    assert find_credentials() == "AKIATWO TAKIATWO"


def test_a_profile_without_credentials_is_said_at_once(server: FakeS3, credentials: Path) -> None:
    credentials.write_text("[other]\n")
    with pytest.raises(SetupError, match="no usable credentials in it"):
        Client(parse_url(f"s3://{BUCKET}/z"), Remote(profile="lab", endpoint=server.endpoint))


def test_credentials_of_the_default_profile_are_used_without_an_option(
    server: FakeS3, credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of Amazon's do so: variables come first, and AWS_PROFILE names another profile."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    keys = "aws_access_key_id = {0}\naws_secret_access_key = s\n"
    credentials.write_text(f"[default]\n{keys.format('AKIADEFAULT')}[lab]\n{keys.format('AKIALAB')}")

    def find_credentials() -> str:
        Client(parse_url(f"s3://{BUCKET}/z"), Remote(endpoint=server.endpoint)).get("a")
        return server.requests[-1].headers["authorization"].partition("Credential=")[2].rpartition("/s3/")[0]

    assert (find_credentials().startswith("AKIADEFAULT/"), find_credentials().endswith("/us-east-1")) == (True, True)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert (find_credentials().startswith("AKIALAB/"), find_credentials().endswith("/eu-west-1")) == (True, True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAVARIABLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert find_credentials().startswith("AKIAVARIABLE/")


def test_the_bucket_is_where_obstore_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience(1.0, 1.0, 1, 1.0)

    def find_url(url: str, remote: Remote) -> str:
        location = parse_url(url)
        return bucket_url(location, remote, backend(location, remote, patience, 1))

    for remote, url in (
        (Remote(region="eu-west-1"), "https://s3.eu-west-1.amazonaws.com/bucket"),
        (Remote(endpoint="https://h/x/"), "https://h/x/bucket"),
    ):
        assert find_url("s3://bucket/z", remote) == url
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert find_url("s3://bucket/z", Remote(anonymous=True)) == "https://s3.eu-north-1.amazonaws.com/bucket"
    assert find_url("gs://b/z", Remote(anonymous=True)) == "https://storage.googleapis.com/b"
