"""URLs of remote stores: what they name, which are refused, and that none shows a secret. Not here: requests."""

from __future__ import annotations

import pytest

from fsbridge.config import Remote
from fsbridge.errors import (
    SetupError,
)
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.urls import parse_url


@pytest.mark.parametrize(
    ("url", "kind", "root", "path"),
    [
        ("s3://b/x/y/", "s3", "b", "x/y"),
        ("s3a://b", "s3", "b", ""),
        ("gcs://b/x", "gs", "b", "x"),
        ("abfs://c@account.dfs.core.windows.net/x", "az", "c", "x"),
        ("https://h:8080/a%20b/c", "http", "https://h:8080", "a%20b/c"),
        ("S3://b/what?is=this", "s3", "b", "what?is=this"),
    ],
)
def test_a_url_names_a_kind_of_server_a_root_and_a_path(url: str, kind: str, root: str, path: str) -> None:
    found = parse_url(url)
    assert (found.kind, found.root, found.path) == (kind, root, path)
    if path:
        assert found.parent.path == path.rpartition("/")[0]


@pytest.mark.parametrize(
    "url", ["https://u:SECRET@h/x", "https://h/x?X-Amz-Signature=SECRET", "s3://SECRET@b/x", "ftp://SECRET", "s3:///SECRET"]
)
def test_urls_with_secrets_are_refused(url: str) -> None:
    with pytest.raises(SetupError) as caught:
        parse_url(url)
    assert "SECRET" not in str(caught.value) or url.startswith(("ftp", "s3:///"))


@pytest.mark.parametrize(
    "query", ["access_token=SECRET", "token=SECRET", "sv=1&sig=SECRET", "Policy=SECRET", "download=1&Signature=SECRET"]
)
def test_queries_that_hold_secrets_are_refused_without_showing_them(query: str) -> None:
    with pytest.raises(SetupError, match="password or a signature") as caught:
        parse_url(f"https://h/x?{query}")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("query", ["download=1", "download", "download=true", "Download=1", ""])
def test_what_only_tells_a_browser_to_save_a_file_is_left_out(query: str) -> None:
    """The links of Zenodo end with it."""
    assert parse_url(f"https://h/records/1/files/f.h5?{query}") == parse_url("https://h/records/1/files/f.h5")


@pytest.mark.parametrize(
    "rest", ["x?format=original", "x?versionId=3", "x#mode=bytes", "x?download=1&format=original", "?a=1"]
)
def test_a_query_that_chooses_what_is_sent_is_refused_and_no_secret(rest: str) -> None:
    with pytest.raises(SetupError, match="give the URL without it") as caught:
        parse_url(f"https://h/{rest}")
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://b u/x", "s3://\u00e4/x", "gs://b\t/x", "az://c@a b/x"])
def test_what_no_request_can_name_is_refused(url: str) -> None:
    """obstore panics when it asks."""
    with pytest.raises(SetupError, match="not the name of a bucket"):
        parse_url(url)


def test_endpoints_and_regions_that_no_request_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    place = parse_url("s3://b/x")
    for endpoint in ("http://a b", "http://h:1/ /", "http://h/\u00e4"):
        with pytest.raises(SetupError, match="not the URL of a server"):
            Client(place, Remote(anonymous=True, endpoint=endpoint))
    with pytest.raises(SetupError, match="not the name of a region"):
        Client(place, Remote(anonymous=True, region="a b"))
    monkeypatch.setenv("AWS_REGION", "a b")
    with pytest.raises(SetupError, match="not the name of a region"):
        Client(place, Remote(anonymous=True))
