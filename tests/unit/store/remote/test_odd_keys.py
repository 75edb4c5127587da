"""Listings of buckets with keys that no path can be, which obstore refuses: signed, paged, checked."""

from __future__ import annotations

import urllib.parse

import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fake_s3 import BUCKET, FakeS3, Fault, Request

from fsbridge.config import REMOTE_LIMITS, Remote, RemoteLimits
from fsbridge.errors import FsbridgeError, TimedOut
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.odd_keys import OddKeys
from fsbridge.store.remote.urls import parse_url


@pytest.fixture
def odd(server: FakeS3) -> FakeS3:
    """The store `z` has one odd key, a key that XML spells with references, and one that URLs spell with escapes."""
    for key in ("z//odd", "z/a&b<c>", "z/\u00e4 +%41", "z/plain"):
        server.put(key, b"x", 1e9)
    return server


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Credentials:
    """Credentials in the environment."""
    found = Credentials("AKID", "se/cr+et", "to/k+en=")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", found.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", found.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", found.token)
    return found


def client(
    server: FakeS3,
    url: str = f"s3://{BUCKET}/z",
    anonymous: bool = True,
    region: str = "us-east-1",
    limits: RemoteLimits = REMOTE_LIMITS,
) -> Client:
    return Client(parse_url(url), Remote(anonymous=anonymous, region=region, endpoint=server.endpoint, limits=limits))


def is_own(request: Request) -> bool:
    """True for a request that obstore has not sent."""
    return request.query.get("encoding-type") == "url"


def test_keys_are_spelled_as_they_are(odd: FakeS3) -> None:
    prefixes, objects = client(odd).level("")
    assert {found.key for found in objects} == {"a&b<c>", "\u00e4 +%41", "plain", "zarr.json"}
    assert prefixes == ["a"]
    assert all(found.mtime_ns == 10**18 for found in objects)
    assert {found.key: (found.size, found.etag) for found in objects}["plain"] == (1, odd.objects["z/plain"].etag)


def test_an_independent_signer_signs_alike(odd: FakeS3, keys: Credentials) -> None:
    odd.page = 2
    odd.put("z/y//odd", b"x", 1e9)
    listed = client(odd, anonymous=False, region="eu-west-1")
    assert {found.key for found in listed.level("")[1]} >= {"plain"}
    assert {found.key for page in listed.beneath("", "b") for found in page} == {"plain", "\u00e4 +%41", "zarr.json"}
    requests = [request for request in odd.requests if is_own(request)]
    assert {name for request in requests for name in request.query} >= {"continuation-token", "delimiter", "start-after"}
    for request in requests:
        query = dict(request.query)
        signature = query.pop("X-Amz-Signature")
        url = f"{odd.endpoint}/{BUCKET}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}"
        known = AWSRequest("GET", url)
        known.context["timestamp"] = query["X-Amz-Date"]
        signer = S3SigV4QueryAuth(keys, "s3", "eu-west-1", expires=60)
        assert signature == signer.signature(signer.string_to_sign(known, signer.canonical_request(known)), known)
        assert query["X-Amz-Security-Token"] == keys.token


def test_google_buckets_are_listed_alike_without_credentials(odd: FakeS3) -> None:
    listed = client(odd, f"gs://{BUCKET}/z", region="")
    assert {found.key for found in listed.level("")[1]} >= {"plain"}
    assert is_own(odd.requests[-1])


ENTRY = "<Key>z/k</Key><LastModified>2020-01-01T00:00:00Z</LastModified><Size>1</Size>"
BOMB = '<!DOCTYPE b [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><ListBucketResult>&b;</ListBucketResult>'


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        *((Fault(status=200, body=body.encode()), "makes no sense") for body in (
            "", "<html>", "<html></html>", BOMB, "<ListBucketResult>", "<ListBucketResult><Contents/></ListBucketResult>",
            f"<ListBucketResult><Contents>{ENTRY.replace('<Size>1', '<Size>one')}</Contents></ListBucketResult>",
            f"<ListBucketResult><Contents>{ENTRY.replace('2020', 'now')}</Contents></ListBucketResult>",
            "<ListBucketResult><CommonPrefixes/></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        )),
        (Fault(status=403), r"refused \(status 403\)"),
        (Fault(status=500), "answers with status 500"),
        (Fault(status=302, headers={"Location": "http://169.254.169.254/"}), "answers with status 302"),
        (Fault(close=True), "connection to the server failed or broke off"),
        (Fault(truncate=20), "connection to the server failed or broke off"),
    ],
)  # fmt: skip
def test_p3_an_answer_that_makes_no_sense_is_an_error(odd: FakeS3, fault: Fault, said: str) -> None:
    odd.fault = lambda request: fault if is_own(request) else None
    with pytest.raises(FsbridgeError, match=said):
        client(odd).level("")


def test_a_server_that_fails_once_is_asked_again(odd: FakeS3) -> None:
    faults = [Fault(status=503)]
    odd.fault = lambda request: faults.pop() if is_own(request) and faults else None
    assert len(client(odd).level("")[1]) == 4


def test_p6_p7_listings_without_an_end_are_given_up(odd: FakeS3) -> None:
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>"
    again = f"<ListBucketResult>{more}<Contents>{ENTRY}</Contents></ListBucketResult>"
    odd.fault = lambda request: Fault(status=200, body=again.format("t").encode()) if is_own(request) else None
    with pytest.raises(FsbridgeError, match="one page again and again"):
        client(odd).level("")
    odd.fault = lambda request: Fault(status=200, body=again.format(request.number).encode()) if is_own(request) else None
    bucket = f"{odd.endpoint}/{BUCKET}"
    with pytest.raises(TimedOut, match="does not end"):
        list(OddKeys(parse_url(f"s3://{BUCKET}/z"), Remote(anonymous=True), lambda: bucket).pages("", None, True, 0.0))
    odd.fault = lambda request: Fault(status=200, body=b" " * 2000) if is_own(request) else None
    with pytest.raises(FsbridgeError, match="a page of the server's listing has no end"):
        client(odd, limits=RemoteLimits(odd_page_bytes=1000)).level("")
    with pytest.raises(TimedOut, match="no answer from the server in time"):
        client(odd, limits=RemoteLimits(odd_page_seconds=-1.0)).level("")
