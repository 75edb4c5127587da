"""What a server's refusals and failures mean, and what is said of them. Not here: faults on each method (`test_remote.py`).

- 403 for what is absent: `a_refusal_is_absence`; a page for it: `has_everything`; a store that vanishes: `loses_the_store`
- refusals for another reason, with `--absent-403`: `another_reason`, `all_at_once_refused`
- errors of the source of credentials: `a_source_of_credentials`
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_s3 import BUCKET, CHUNK, FakeS3, Fault
from remote_stores import LARGE, A, B, open_store, open_web

from fsbridge.config import Remote
from fsbridge.errors import (
    AccessDenied,
    FsbridgeError,
    NotFound,
    SetupError,
    Stale,
    Unlistable,
    Unreachable,
)
from fsbridge.store import ROOT, WHOLE, Key
from fsbridge.store.remote import faults
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.faults import Refused
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url


def test_p3_a_refusal_is_absence_only_when_the_user_says_so(server: FakeS3) -> None:
    refused = s3_error(403, "AccessDenied")
    server.fault = lambda request: refused if request.kind == "LIST" or request.key == "z/gone" else None
    store = open_store(server)
    assert store.begin()
    assert not store.listable
    with pytest.raises(AccessDenied):
        store.stat(Key("gone"), WHOLE)
    with pytest.raises(NotFound):
        open_store(server, absent_403=True).stat(Key("gone"), WHOLE)
    with pytest.raises(Unlistable):
        list(store.list(Key("a")))
    assert store.read(A, 1 << 20)[0] == CHUNK


def s3_error(status: int, code: str, message: str = "") -> Fault:
    return Fault(status=status, body=f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


@pytest.mark.parametrize(
    "fault",
    [
        s3_error(403, "RequestTimeTooSkewed"),
        s3_error(403, "SignatureDoesNotMatch"),
        s3_error(403, "InvalidObjectState", "The operation is not valid for the object's storage class"),
        s3_error(403, "AccessDenied", "arn:x is not authorized to perform: kms:Decrypt on this resource"),
        s3_error(400, "ExpiredToken"),
        Fault(status=401),
        Fault(status=403, body=b"<html>a gateway's page</html>"),
    ],
)
def test_p3_a_refusal_for_another_reason_is_never_absence(server: FakeS3, fault: Fault) -> None:
    """Credentials that expire while a store is mounted, an archived object: all chunks would be fill values."""
    store = open_store(server, absent_403=True)
    assert store.begin()
    server.fault = lambda request: fault
    for key in (A, LARGE):
        with pytest.raises(AccessDenied):
            store.stat(key, WHOLE)
        with pytest.raises(AccessDenied):
            store.read(key, 1 << 24)


@pytest.mark.parametrize(("status", "error"), [(404, Refused), (403, Refused), (412, Refused), (500, Unreachable)])
def test_p3_an_error_of_a_source_of_credentials_is_never_absence(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    """A role that is taken away while a store is mounted is 404 there, or 403: all chunks would be fill values."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.endpoint}/{BUCKET}/role")
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    body = b"<Error><Code>AccessDenied</Code></Error>"
    server.fault = lambda request: Fault(status=status, body=body) if request.key == "role" else None
    options = Remote(region="us-east-1", endpoint=server.endpoint, absent_403=True)
    store = ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(1.0, 60.0))
    for call in (lambda: store.stat(A, WHOLE), lambda: list(store.list(Key("a"))), store.begin):
        with pytest.raises(error) as caught:
            call()
        assert status == 500 or "no credentials can be obtained: the server answers with status" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Error performing token request: Error performing GET http://h/msi in 1ms - status code: 404 Not Found: ", Refused),
        ("Error performing token request: Error performing POST http://h/t in 1ms - status code: 500 : ", Unreachable),
        ("Error getting token response body: HTTP error: expected value at line 1 column 1", Unreachable),
        ("Error performing POST REDACTED in 1ms - Server returned non-2xx status code: 403 Forbidden: ", Refused),
        ("Error performing PUT http://h/latest/api/token in 1ms - status code: 404 Not Found: ", Refused),
    ],
)
def test_p3_tokens_that_are_not_there_are_no_objects(said: str, error: type[Exception]) -> None:
    """Errors as obstore words them for Azure and Google, for roles by web identity and of machines."""
    found = faults.translate(type("GenericError", (Exception,), {})(f"Generic error: {said}"), "s3://b/z/c/0")
    assert isinstance(found, error)
    assert "no credentials can be obtained" in str(found)


def test_p3_what_is_listed_or_all_at_once_refused_is_not_absent(server: FakeS3) -> None:
    store = open_store(server, absent_403=True)
    assert store.begin()
    store.read(Key("zarr.json"), 100)
    list(store.list(Key("a/c")))
    server.fault = lambda request: s3_error(403, "AccessDenied") if request.key == f"z/{A}" else None
    with pytest.raises(AccessDenied):
        store.read(A, 1 << 20)
    server.fault = lambda request: s3_error(403, "AccessDenied") if request.key == "z/x/b" else None
    with pytest.raises(NotFound):
        store.read(Key("x/b"), 1 << 20)
    server.fault = lambda request: s3_error(403, "AccessDenied")
    with pytest.raises(Unreachable):
        store.read(Key("x/c"), 1 << 20)


def test_p3_a_server_that_has_everything_is_refused(server: FakeS3) -> None:
    soft = Fault(status=200, body=b"<html>not found</html>")
    server.fault = lambda request: soft if request.key[2:10] == "fsbridge" else None
    with pytest.raises(SetupError, match="answers as if every name existed"):
        open_web(server).begin()


def test_p3_a_web_server_that_loses_the_store_is_an_error(server: FakeS3) -> None:
    store = open_web(server, ttl=0.0)
    store.begin()
    store.read(Key("zarr.json"), 100)
    with pytest.raises(NotFound):
        store.stat(Key("a/c/9"), WHOLE)
    store.read(A, 1 << 20)
    server.objects.clear()  # in the moment after it was there
    for key in (Key("a/c/8"), A, Key("zarr.json")):
        with pytest.raises(Unreachable, match="lost the store"):
            store.stat(key, WHOLE)


def test_p3_an_object_removed_from_a_web_server_leaves_the_others_readable(server: FakeS3) -> None:
    store = open_web(server, ttl=0.0)
    for key in (A, B, Key("zarr.json")):
        store.read(key, 1 << 20)
    del server.objects["z/zarr.json"]
    with pytest.raises(NotFound):
        store.stat(Key("zarr.json"), WHOLE)
    with server.counted() as requests, pytest.raises(NotFound):
        store.stat(Key("a/c/9"), WHOLE)
    assert [request.key for request in requests] == ["z/a/c/9", "z/a/c/1"]
    assert requests[1].headers["if-none-match"]  # so that no body is sent


def test_p3_an_array_that_is_removed_from_a_web_server_is_absent(server: FakeS3) -> None:
    store = open_web(server, ttl=0.0)
    for key in (Key("zarr.json"), A, B):
        store.read(key, 1 << 20)
    for name in [name for name in server.objects if name.startswith("z/a/")]:
        del server.objects[name]
    for _ in range(2):
        with server.counted() as requests, pytest.raises(NotFound):
            store.stat(Key("a/zarr.json"), WHOLE)
    assert [request.key for request in requests] == ["z/a/zarr.json", "z/zarr.json"]


def test_p3_a_store_without_any_of_its_objects_is_no_empty_group(server: FakeS3) -> None:
    store = ObjectStore(open_store(server).client, Answers(0.0, 0.0))
    assert store.begin()
    server.objects.clear()
    with pytest.raises(Stale, match="no longer there"):
        list(store.list(ROOT))
    assert not open_store(server).begin()


def test_what_servers_say_is_not_passed_on(server: FakeS3) -> None:
    """Servers repeat tokens in their error texts."""
    secret = "AKIAPLANTED/SECRET+"
    for status, code in ((403, "InvalidToken"), (400, "ExpiredToken"), (500, "InternalError"), (404, "NoSuchKey")):
        body = f"<Error><Code>{code}</Code><Message>{secret}</Message><Token>{secret}</Token></Error>".encode()
        fault = Fault(status=status, body=body)
        server.fault = lambda request: fault  # noqa: B023  # it is used within this round
        with pytest.raises(FsbridgeError) as caught:
            open_store(server).read(A, 1 << 20)
        assert secret not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(status=301), "wrong region; say --region"),
        (Fault(status=301, headers={"x-amz-bucket-region": "eu-west-1"}), "it is eu-west-1; say --region eu-west-1"),
        (Fault(status=301, headers={"x-amz-bucket-region": "eu-west-1?token=PLANTED"}), "wrong region; say --region NAME"),
        (
            Fault(status=400, body=b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"),
            "wrong region: it is eu-west-1; say --region",
        ),
        (Fault(status=403, body=b"<Error><Code>RequestTimeTooSkewed</Code></Error>"), "clock is wrong"),
        (Fault(status=403, body=b"<Error><Code>SignatureDoesNotMatch</Code></Error>"), "credentials are wrong"),
        (Fault(status=404, body=b"<Error><Code>NoSuchBucket</Code></Error>"), "bucket does not exist"),
    ],
)
def test_mistakes_are_one_line_that_says_what_helps(server: FakeS3, fault: Fault, text: str) -> None:
    server.fault = lambda request: fault
    with pytest.raises(FsbridgeError, match=text):
        open_store(server).begin()


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(close=True)])
def test_errors_never_mention_names_that_only_fsbridge_asks_for(server: FakeS3, fault: Fault) -> None:
    server.fault = lambda request: fault if request.key.rpartition("/")[2].startswith("fsbridge-") else None
    with pytest.raises(FsbridgeError) as caught:
        open_web(server).begin()
    assert str(caught.value).startswith(f"{server.url('z')}: ")
    assert "fsbridge-" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "variables"),
    [("s3://b/z", "AWS_ACCESS_KEY_ID and"), ("gs://b/z", "GOOGLE_APPLICATION_CREDENTIALS"),
     ("az://b@a.blob.core.windows.net/z", "AZURE_STORAGE_ACCOUNT_KEY"), ("abfs://b/z", "AZURE_STORAGE_ACCOUNT_KEY")],
)  # fmt: skip
def test_without_credentials_the_error_says_where_they_are_looked_for(url: str, variables: str) -> None:
    found = faults.translate(RuntimeError("error sending request for url (http://169.254.169.254/metadata)"), url)
    assert str(found).startswith(f"{url}: no credentials; set {variables}")


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/latest/api/token", "http://metadata.google.internal/computeMetadata"]
)
def test_what_the_clouds_own_address_does_not_answer_means_no_credentials(place: str) -> None:
    """Errors as obstore words them; nothing but loopback addresses is asked here."""
    text = f"Generic S3 error: Error performing PUT {place} in 1s, after 3 retries - HTTP error: error sending request"
    found = faults.translate(RuntimeError(text), "s3://bucket/z")
    assert isinstance(found, Refused)
    assert str(found).startswith("s3://bucket/z: no credentials; set AWS_ACCESS_KEY_ID")
    assert "--anonymous" in str(found)
