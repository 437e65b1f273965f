"""Statuses, APIErrors and broken connections become errors by one table."""

import ssl

import httpx
import pytest

from zonedrive import errors
from zonedrive.remote.urls import REQUIREMENTS, ZONES, Origin, Request
from zonedrive.remote.wire import error_mapping

# Every APIError value of the published interface.
CODES = [
    "NONE", "CANCELLED", "FAILED", "NOT_ALLOWED", "INVALID_ACCESS", "LOAD_ERROR",
    "COMMUNICATION_ERROR", "SERVER_NOT_RESPONDING", "OFFLINE", "ILLEGAL_ARGUMENTS",
    "NOT_IMPLEMENTED", "NOT_SUPPORTED", "WRONG_ORGANIZATION", "ORGANIZATION_UNKNOWN",
    "USER_UNKNOWN", "USER_EXISTS", "ALREADY_LOGGED_ON", "WRONG_PASSWORD", "ILLEGAL_PASSWORD",
    "AUTHORIZATION_FAILED", "USER_REMOVED", "USER_INACTIVE", "UNKNOWN_ZONE",
    "UNKNOWN_ZONE_TYPE", "UNKNOWN_FILE", "UNKNOWN_FILE_VERSION", "NOT_A_FOLDER", "NOT_A_FILE",
    "ILLEGAL_NAME", "ALREADY_EXISTS", "NOT_AVAILABLE", "NOT_FOUND", "WRONG_ZONE",
    "WRONG_FILE", "LOCKED", "TEMPORARILY_BLOCKED", "MULTIPARTUPLOAD_FAILED",
    "ASSEMBLY_FAILED", "EXCEPTION", "IO_EXCEPTION", "ILLEGAL_ARGUMENT", "TEMPORARY_FAILURE",
    "PASSWORD_FAILURE", "ID_NOT_FOUND", "WRONG_STATE", "UPLOAD_ID_ALREADY_EXISTS",
    "VERIFICATIONCODE_FAILURE", "TIMEOUT", "UNSUPPORTED_VERSION",
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "", errors.Rejected),
        (400, "ILLEGAL_NAME", errors.Rejected),
        (400, "UNKNOWN_FILE", errors.NotFound),
        (401, "", errors.NotLoggedOn),
        (401, "NOT_FOUND", errors.NotLoggedOn),
        (403, "", errors.Forbidden),
        (403, "UNKNOWN_FILE", errors.Forbidden),
        (403, "LOCKED", errors.Locked),
        (404, "", errors.NotFound),
        (404, "NOT_ALLOWED", errors.NotFound),
        (408, "", errors.Unavailable),
        (409, "", errors.AlreadyExists),
        (409, "LOCKED", errors.Locked),
        (409, "WRONG_STATE", errors.Rejected),
        (409, "SOMETHING_NEW", errors.AlreadyExists),
        (413, "", errors.TooLarge),
        (418, "", errors.Rejected),
        (418, "LOCKED", errors.Locked),
        (423, "", errors.Locked),
        (429, "", errors.Unavailable),
        (500, "", errors.Unavailable),
        (500, "EXCEPTION", errors.Unavailable),
        (500, "NOT_ALLOWED", errors.Forbidden),
        (502, "", errors.Unavailable),
        (503, "NOT_AVAILABLE", errors.Unavailable),
        (507, "", errors.Unavailable),
        (599, "", errors.Unavailable),
    ],
)
def test_the_table(status: int, code: str, kind: type[errors.RemoteError]) -> None:
    """A decisive status wins; a general one is refined by the code."""
    body = b'{"error":"%s","message":"why","data":"f1"}' % code.encode()
    error = error_mapping.refusal(status, body, "listing a folder")
    assert type(error) is kind
    assert (error.status, error.code) == (status, code)
    assert error.message.startswith("listing a folder: ")
    assert "why" in error.message


@pytest.mark.parametrize("status", [404, 410])
@pytest.mark.parametrize(
    ("body", "origin", "kind"),
    [
        (b"<html>404</html>", "published", errors.Unavailable),
        (b"", "published", errors.Unavailable),
        (b"[]", "published", errors.Unavailable),
        (b'{"error":5}', "published", errors.Unavailable),
        (b'{"error":"UNKNOWN_FILE"}', "published", errors.NotFound),
        (b'{"message":"gone"}', "published", errors.NotFound),
        (b"<html>404</html>", "", errors.NotFound),
    ],
)
def test_a_published_endpoint_that_a_gateway_does_not_find(
    status: int, body: bytes, origin: Origin, kind: type[errors.RemoteError]
) -> None:
    """The endpoint exists, so only an error object of the service shows that an entry is gone."""
    request = Request("GET", "/x", origin=origin)
    error = error_mapping.failed(status, {}, body, request, "https://x")
    assert type(error) is kind
    assert error.status == status


@pytest.mark.parametrize(
    ("status", "origin", "kind"),
    [
        (400, "published", errors.Unavailable),
        (403, "published", errors.Unavailable),
        (404, "published", errors.Unavailable),
        (405, "published", errors.Unavailable),
        (451, "published", errors.Unavailable),
        (401, "published", errors.NotLoggedOn),
        (403, "profile", errors.Forbidden),
        (404, "profile", errors.NotFound),
        (405, "profile", errors.Rejected),
        (403, "", errors.Forbidden),
        (401, "profile", errors.EndpointRefused),
        (401, "", errors.NotLoggedOn),
    ],
)
def test_a_gateway_that_rejects_a_request(
    status: int, origin: Origin, kind: type[errors.RemoteError]
) -> None:
    """A page shows that a gateway answers; the service's own errors may have a wrong type."""
    body = b"\xef\xbb\xbf\n<!DOCTYPE html><p>Blocked"
    request = Request("DELETE", "/x", origin=origin)
    error = error_mapping.failed(status, {}, body, request, "https://x")
    assert (type(error), error.status, error.by_gateway) == (kind, status, True)
    html = {"Content-Type": "text/html"}
    by_service = b'{"error":"NOT_ALLOWED"}'
    assert not error_mapping.failed(status, html, by_service, request, "https://x").by_gateway


@pytest.mark.parametrize("path", [ZONES, REQUIREMENTS])
def test_a_gateway_that_blocks_everything(path: str) -> None:
    """These requests are harmless: if they are rejected, the service cannot be reached."""
    request = Request("GET", path, origin="published")
    error = error_mapping.failed(403, {}, b"<p>Log on", request, "https://x")
    assert (type(error), error.status, error.by_gateway) == (errors.Unreachable, 403, True)


@pytest.mark.parametrize("status", [409, 413, 423, 429, 500, 503])
def test_a_page_of_a_gateway_whose_status_tells_enough(status: int) -> None:
    """For example, gateways also limit the size of a request."""
    page, request = b"<html>", Request("POST", "/x", origin="published")
    error = error_mapping.failed(status, {}, page, request, "https://x")
    assert type(error) is error_mapping.meaning(status, "").error
    assert not error.by_gateway


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 500, 502, 503])
def test_every_code_with_every_status_has_a_meaning(status: int) -> None:
    """No status and code of the service causes a traceback."""
    for code in CODES:
        body = b'{"error":"%s","message":"m"}' % code.encode()
        error = error_mapping.refusal(status, body, "x")
        assert isinstance(error, errors.RemoteError), code
        assert not isinstance(error, errors.Unreachable), code


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502</html>",
        b"[]",
        b"null",
        b'{"error":5,"message":[],"data":{}}',
        b'{"error":"not a code!"}',
        b'{"message":null}',
        b'{"error":"NOT_ALL',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_refusal_without_a_proper_body_is_a_refusal(body: bytes) -> None:
    """The status decides."""
    error = error_mapping.refusal(403, body, "x")
    assert type(error) is errors.Forbidden
    assert error.code == ""


def test_a_body_with_only_a_message_is_read() -> None:
    assert error_mapping.error_body(b'{"message":"gone fishing"}') == ("", "gone fishing")


def test_a_body_with_a_byte_order_mark_is_read() -> None:
    """A removed entry would otherwise count as a page that a gateway does not find."""
    body = b'\xef\xbb\xbf{"error":"NOT_FOUND","message":"it is gone"}'
    error = error_mapping.refusal(404, body, "x", origin="published")
    assert (type(error), error.code) == (errors.NotFound, "NOT_FOUND")


def test_the_services_words_are_harmless() -> None:
    """A message cannot control the terminal, break a line or fill a log."""
    body = b'{"message":"a\\u001b[31m\\nb\\u202e\\u0000c' + b"x" * 5000 + b'"}'
    line = error_mapping.refusal(403, body, "x").line()
    assert line.isprintable()
    assert len(line) < 400
    assert "a\ufffd[31m b\ufffd\ufffdcxxx" in line


def delay(**headers: str) -> float | None:
    """Return the delay that an answer of an overloaded service requests."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = error_mapping.failed(503, named, b"", Request("GET", "/x"), "https://zones.example")
    assert isinstance(error, errors.Unavailable)
    return error.retry_after


def test_a_date_to_try_again_is_one_of_the_services_clock() -> None:
    """The local clock may be wrong, and counts only if the answer has no date."""
    until = "Tue, 06 Nov 2001 08:50:07 GMT"
    assert delay(Retry_After=until, Date="Tue, 06 Nov 2001 08:49:37 GMT") == 30
    assert delay(Retry_After=until, Date="Tue, 06 Nov 2001 08:50:37 GMT") == 0
    assert delay(Retry_After=until, Date="nonsense") == delay(Retry_After=until) == 0
    assert delay(Retry_After="7", Date="Tue, 06 Nov 2001 08:49:37 GMT") == 7


def test_a_redirect_is_never_followed_but_named() -> None:
    """One line tells the user the target of the redirect."""
    headers = {"Location": "http://evil.example/\r\nx"}
    error = error_mapping.failed(302, headers, b"", Request("GET", "/x"), "https://zones.example")
    assert type(error) is errors.BadAnswer
    assert "http://evil.example/ x" in error.line()
    assert "evil" not in str(error)


@pytest.mark.parametrize("mark", "?#")
def test_a_redirect_is_named_without_its_secrets(mark: str) -> None:
    """A query may be a signature that gives access to a file."""
    headers = {"Location": f"https://store.example/f{mark}signature=s3cret"}
    error = error_mapping.failed(302, headers, b"", Request("GET", "/x"), "https://zones.example")
    assert "https://store.example/f, which is not followed" in error.line()
    assert "s3cret" not in error.line()


def chained(outer: Exception, inner: BaseException) -> Exception:
    """Return `outer` with `inner` as its cause."""
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("wrong", "sent", "kind"),
    [
        (httpx.ConnectError("x"), False, errors.Unreachable),
        (httpx.ConnectError("x"), True, errors.Unreachable),
        (httpx.ConnectTimeout("x"), True, errors.TimedOut),
        (httpx.PoolTimeout("x"), True, errors.TimedOut),
        (httpx.ReadTimeout("x"), False, errors.TimedOut),
        (httpx.ReadTimeout("x"), True, errors.ReplyLost),
        (httpx.ReadError("x"), False, errors.Interrupted),
        (httpx.ReadError("x"), True, errors.ReplyLost),
        (httpx.RemoteProtocolError("x"), False, errors.Interrupted),
        (httpx.RemoteProtocolError("x"), True, errors.ReplyLost),
        (httpx.WriteError("x"), False, errors.Interrupted),
        (httpx.DecodingError("x"), False, errors.BadAnswer),
    ],
)
def test_a_request_without_an_answer(
    wrong: Exception, sent: bool, kind: type[errors.RemoteError]
) -> None:
    """The error shows if the request may have had an effect, or certainly had none."""
    assert type(error_mapping.broken(wrong, "h", "x", sent=sent)) is kind


def test_a_strange_certificate_is_named_as_such() -> None:
    """The line has the reason, and recommends --ca-file."""
    inner = ssl.SSLCertVerificationError(1, "self-signed certificate")
    error = error_mapping.broken(chained(httpx.ConnectError("x"), inner), "h", "x")
    assert type(error) is errors.Untrusted
    assert "self-signed certificate" in error.line()
    assert "--ca-file" in error.line()


@pytest.mark.parametrize(
    ("status", "code", "retry_after", "early", "unprocessed"),
    [
        (429, "", None, False, True),
        (503, "NOT_AVAILABLE", None, False, False),
        (503, "", 2.0, False, False),
        (503, "", None, True, True),
        (503, "", None, False, False),  # also of a gateway that lost the service
        (503, "TEMPORARY_FAILURE", None, False, False),
        (500, "NOT_AVAILABLE", 2.0, True, False),
    ],
)
def test_only_a_clear_rejection_proves_that_nothing_was_done(
    status: int, code: str, retry_after: float | None, early: bool, unprocessed: bool
) -> None:
    """A status that a gateway may send after the service got the request proves nothing."""
    body = b'{"error": "%s"}' % code.encode()
    error = error_mapping.refusal(status, body, "uploading", retry_after=retry_after, early=early)
    assert isinstance(error, errors.Unavailable)
    assert error.unprocessed is unprocessed
    assert error.retry_after == retry_after


def test_the_text_of_the_service_is_for_the_user_and_not_for_logs() -> None:
    """The service may name a file, and names of files are encrypted on this machine."""
    body = b'{"error": "ALREADY_EXISTS", "message": "A folder has the name secret.docx"}'
    for error in (
        error_mapping.refusal(409, body, "uploading"),
        error_mapping.failed(504, {}, body, Request("POST", "/x"), "https://x", sent=True),
    ):
        assert "secret.docx" in error.message
        assert "secret.docx" not in str(error)
        assert "ALREADY_EXISTS" in str(error)
