"""Errors that prevent the sandbox from starting, and error responses of the API.

This module does not depend on the endpoints. INVARIANT: the body of every HTTP error response has
the same structure, even if the framework raised the error.
"""

import errno
import shutil
import sqlite3
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

PAGES = "/api/sandbox/pages/"
"""Path prefix of the web pages for members of a zone.

A 401 response for such a page makes the browser ask for a password.
"""

# Default error name for an HTTP status, used for framework errors and injected faults.
CODE_OF_STATUS = {
    400: "ILLEGAL_ARGUMENT",
    401: "AUTHORIZATION_FAILED",
    403: "NOT_ALLOWED",
    404: "NOT_FOUND",
    405: "NOT_SUPPORTED",
    408: "FAILED",
    409: "ALREADY_EXISTS",
    500: "FAILED",
    502: "COMMUNICATION_ERROR",
    503: "NOT_AVAILABLE",
}

# Every error name of the API; only the logon uses the last three.
NAMES = frozenset((
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
    "VERIFICATIONCODE_FAILURE", "TIMEOUT", "UNSUPPORTED_VERSION", "INVALID_DATA",
    "INVALID_SESSIONID", "TEMPORARY_BLOCKED",
))  # fmt: skip


FULL = (errno.ENOSPC, errno.EDQUOT)
SMALLEST_FREE = 64 * 1024  # bytes: a disk with less counts as full


class SandboxError(Exception):
    """Error for a failed start of the sandbox; the message is one line with the cause."""


def unusable(path: Path, wrong: OSError | sqlite3.Error) -> SandboxError:
    """Return the error for a file or folder that cannot be used at the start because of `wrong`."""
    code = getattr(wrong, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return SandboxError(f"{path} is not a sandbox's database ({wrong})")
    is_full = code == sqlite3.SQLITE_FULL or getattr(wrong, "errno", 0) in FULL
    if code == sqlite3.SQLITE_IOERR:  # possibly a full disk, if SQLite has mapped a file to memory
        is_full = shutil.disk_usage(path if path.is_dir() else path.parent).free < SMALLEST_FREE
    if is_full:
        return SandboxError(
            f"the disk of {path} is full: make room there, or use another folder for --data"
        )
    place = getattr(wrong, "filename", None) or path
    return SandboxError(f"{place} cannot be used: {getattr(wrong, 'strerror', None) or wrong}")


class WorldError(SandboxError):
    """Error for an invalid world file; the message names the file and, if known, the line."""


class ApiError(Exception):
    """Error for a failed request; sent as a response with status, error name, message and data."""

    def __init__(self, status: int, code: str, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.data = data


def code_of(status: int) -> str:
    """Return the default error name of an HTTP status."""
    return CODE_OF_STATUS.get(status, "FAILED")


def error_body(code: str, message: str, data: str | None = None) -> bytes:
    """Return the JSON body of an error response; omit `data` if it is None."""
    body = {"error": code, "message": message}
    if data is not None:
        body["data"] = data
    return msgspec.json.encode(body)


def error_response(
    status: int,
    code: str,
    message: str,
    data: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return an error response with a body from `error_body`."""
    return Response(error_body(code, message, data), status, headers, media_type="application/json")


async def answer_api_error(request: Request, error: Exception) -> Response:
    """Return the response for an ApiError (Starlette exception handler).

    A 401 response asks for HTTP Basic credentials if the path is below PAGES, otherwise for a
    bearer token.
    """
    assert isinstance(error, ApiError)
    is_page = request.url.path.startswith(PAGES)
    scheme = 'Basic realm="sandbox", charset="UTF-8"' if is_page else "Bearer"
    headers = {"WWW-Authenticate": scheme} if error.status == 401 else None
    return error_response(error.status, error.code, error.message, error.data, headers)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Return the response for an HTTPException of the framework (Starlette exception handler).

    The framework raises this exception for an unknown path or a wrong method, for example.
    """
    assert isinstance(error, HTTPException)
    sentence = {
        404: f"There is nothing at {request.url.path}",
        405: f"{request.method} is not offered at {request.url.path}",
    }.get(error.status_code, error.detail)
    return error_response(
        error.status_code,
        code_of(error.status_code),
        sentence,
        headers=dict(error.headers) if error.headers else None,
    )


async def answer_database_error(_request: Request, error: Exception) -> Response:
    """Return the response for a failed database operation (Starlette exception handler).

    A full disk is a possible cause.
    """
    return error_response(500, "IO_EXCEPTION", f"It cannot be kept: {error}")


async def answer_crash(_request: Request, error: Exception) -> Response:
    """Return the response for an unexpected exception (Starlette exception handler).

    Starlette raises the exception again, so that uvicorn logs the traceback and closes the
    connection.
    """
    sentence = f"{HTTPStatus(500).phrase} ({type(error).__name__})"
    return error_response(500, "EXCEPTION", sentence, headers={"Connection": "close"})


def bad_argument(message: str) -> ApiError:
    """Return ApiError 400 ILLEGAL_ARGUMENT for an invalid parameter or body."""
    return ApiError(400, "ILLEGAL_ARGUMENT", message)


def must_change_password() -> ApiError:
    """Return ApiError 403 for a caller who must change their password first."""
    return ApiError(403, "NOT_ALLOWED", "The password must be changed first")
