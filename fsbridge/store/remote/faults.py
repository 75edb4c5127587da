"""What a server's refusals and failures mean: one of our errors for each of obstore's, without a word of the server's.

Servers repeat tokens in their error texts, so only codes that are known here are passed on. Not here: requests
(`client.py`).
"""

from __future__ import annotations

import re

from fsbridge.errors import (
    AccessDenied,
    CorruptData,
    FsbridgeError,
    NotFound,
    Stale,
    TimedOut,
    Unreachable,
    Unsupported,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{3,60})</Code>")
_REGION = re.compile(r"<Region>([a-z]{2}(?:-[a-z]+)+-\d)</Region>")
REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")
_TYPED = (401, 403, 404, 412)
"""HTTP statuses of a request for an object for which obstore has an error class of its own."""
_ABSENT = ("NoSuchKey", "BlobNotFound", "PathNotFound")
"""Codes of object stores for absent objects; the last one is Azure's with folders."""
_TELLS_ABSENCE = ("s3", "az", "ab")
"""Beginnings of URLs of stores that give such a code; Google's emulator does not."""
_LISTING = re.compile(r"[?&](?:list-type=2|comp=list)")
_GIVES_TOKEN = re.compile(r"Error performing token request|Error getting token response")
_GIVES_CREDENTIALS = re.compile(rf"Error performing (?:PUT|POST) |{_GIVES_TOKEN.pattern}")
"""Matches failed requests for credentials, if only reads are made: objects and listings need no PUT or POST."""


class Refused(AccessDenied):
    """The server refuses: wrong or no credentials, or no permission."""


class Withheld(Refused):
    """The server refuses one object and gives no reason, as S3 does for absent objects where listing is not permitted."""


class Unusable(Refused):
    """The server refuses everything: no or wrong credentials, another region, a wrong clock."""


class WrongRegion(Unusable):
    """The bucket is in another region, which the answer does not name."""


class NoBucket(Unreachable):
    """There is no such bucket, so that nothing can be in it."""


class TakenForAbsent(NotFound):
    """The object is withheld, and the user has said that this means absent."""


class NoRanges(Unsupported):
    """The server gives whole objects only."""


class Panic(Exception):
    """A panic of obstore, reported without its text, which may quote what obstore was given."""


def translate(error: Exception, place: str, writes: bool = False) -> FsbridgeError:
    """Return our error for one of obstore's, without any text of the server except codes that are known here.

    `writes`: True if the object was written, so that a failed PUT or POST need not be a request for credentials.
    """
    if isinstance(error, FsbridgeError):
        return error
    if isinstance(error, Panic):
        return Unreachable(
            f"{place}: no request can be made; check URL, endpoint, region and credentials for odd characters"
        )
    kind, text = type(error).__name__, str(error).partition("\n\nDebug source")[0]
    status_match = _STATUS.search(text)
    status = int(status_match[1]) if status_match is not None else 0
    code_match = _CODE.search(text)
    code = code_match[1] if code_match is not None else ""
    if code == "NoSuchBucket" or "ContainerNotFound" in text:
        return NoBucket(f"{place}: the bucket does not exist")
    if code == "ResourceNotFound":  # Azure's answer for private containers without credentials
        return NoBucket(f"{place}: the bucket does not exist, or is not public")
    if "169.254.169.254" in text or "metadata.google.internal" in text:
        return Unusable(f"{place}: no credentials; set {_VARIABLES.get(place[:2], _VARIABLES['s3'])}, or say --anonymous")
    region = _REGION.search(text)
    if place.startswith("http") and "redirect without LOCATION" in text:
        return Unreachable(f"{place}: the server redirects the request, but does not say where to")
    if "redirect without LOCATION" in text or code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        return WrongRegion(f"{place}: wrong region; say --region NAME") if region is None else in_region(place, region[1])
    if code == "RequestTimeTooSkewed":
        return Unusable(f"{place}: refused because this machine's clock is wrong; set it, by NTP for example")
    if code in ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"):
        return Unusable(f"{place}: refused because the credentials have expired")
    if code == "InvalidObjectState":
        return Refused(f"{place}: archived, and cannot be read before it is restored")
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"):
        return Unusable(f"{place}: refused because the credentials are wrong ({code})")
    if _about_credentials(kind, status, text, writes):
        refused = status in (400, *_TYPED)
        reason = _reason(status, text, str(error))
        return (Unusable if refused else Unreachable)(f"{place}: no credentials can be obtained: {reason}")
    if kind == "FileNotFoundError" or isinstance(error, FileNotFoundError) or status in (404, 410):
        if code in _ABSENT or place[:2] not in _TELLS_ABSENCE:
            return NotFound(f"{place}: not there")
        return Unreachable(f"{place}: 'not found' from a server that is no object store: a gateway whose backend is down?")
    if kind == "PreconditionError" or status == 412:
        return Stale(f"{place}: replaced")
    if status in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        known = f", {code}" if code in _REFUSALS else ""
        advice = "" if place.startswith("http") else "; check the credentials, and what they permit"
        bare = ("AccessDenied",) if place.startswith("s3") else ("", "AccessDenied")
        refused = code not in bare or status == 401 or "kms:" in text  # "kms:": an encryption key that may not be used
        return (Refused if refused else Withheld)(f"{place}: refused (status {status or 403}){known}{advice}")
    if kind == "NotSupportedError" or "non-partial response" in text or "NotPartial" in text:
        return NoRanges(f"{place}: the server ignores ranges and gives whole objects only; copy the store to another server")
    if status == 416:
        return CorruptData(f"{place}: the object ends before the requested bytes")
    if kind == "InvalidPathError":
        return NotFound(f"{place}: the server can have no object of this name")
    if "timed out" in text or "kind: Timeout" in str(error):
        return TimedOut(f"{place}: no answer from the server in time")
    return Unreachable(f"{place}: {_reason(status, text, str(error))}")


_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile of ~/.aws with --profile NAME",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_KEY",
    "ab": "AZURE_STORAGE_ACCOUNT_KEY",
}
"""Variables that credentials are read from, by the beginning of the URL."""


def in_region(place: str, region: str) -> Unusable:
    """Return the error for a request that went to a region other than the bucket's."""
    return Unusable(f"{place}: wrong region: it is {region}; say --region {region}")


_REFUSALS = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "RequestExpired"})


_CONNECTIONS = {
    "UnknownIssuer": "this machine does not trust the server's certificate; SSL_CERT_FILE may name a file of those to trust",
    "CaUsedAsEndEntity": "the server has signed its certificate itself",
    "NotValidForName": "the server's certificate is for another server",
    "InvalidCertificate": "the server's certificate is not valid, or this machine's clock is wrong",
    "dns error": "this machine cannot find the server's name (DNS)",
    "ConnectionRefused": "nothing listens at the server's address",
}
"""What is wrong if no request can be sent, by obstore's words for it."""


def _reason(status: int, text: str, details: str) -> str:
    if status in (429, 503):
        return f"the server is too busy (status {status})"
    if status:
        return f"the server answers with status {status}"
    if "Content-Length" in text:
        return "the server does not say how long the object is"
    if "error sending request" in text:
        known = (said for word, said in _CONNECTIONS.items() if word in details)
        return next(known, "the connection to the server failed or broke off")
    return "the server's answer makes no sense"


def _about_credentials(kind: str, status: int, text: str, writes: bool) -> bool:
    """True if the server of credentials failed, not the store. Then "not found" says nothing about an object."""
    elsewhere = status in _TYPED and "performing" in text and _LISTING.search(text) is None
    pattern = _GIVES_TOKEN if writes else _GIVES_CREDENTIALS
    return kind == "GenericError" and (elsewhere or pattern.search(text) is not None)


def broke_off(error: Exception) -> bool:
    """True if a LIST may succeed when it is asked again: its body broke off."""
    text = str(error)
    return type(error).__name__ == "GenericError" and _STATUS.search(text) is None and "error sending request" not in text
