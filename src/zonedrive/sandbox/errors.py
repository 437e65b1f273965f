"""What can go wrong: mistakes of whoever starts the sandbox, and the service's error answers.

Must not know any endpoint.  INVARIANT: every error that leaves over HTTP has the one error body,
the framework's own refusals included.
"""

from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

# The error name used where a status is all that is known (a framework's refusal, a fault).
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

# Every error name of the interface; the last three come from the logon only.
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


class SandboxError(Exception):
    """The sandbox cannot start; the message is one line that names cause and place."""


class ApiError(Exception):
    """A refusal that the caller of the API gets: status, error name, sentence, optional datum."""

    def __init__(self, status: int, code: str, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.data = data


def code_of(status: int) -> str:
    """The error name that fits a bare status."""
    return CODE_OF_STATUS.get(status, "FAILED")


def error_body(code: str, message: str, data: str | None = None) -> bytes:
    """The error structure as JSON; `data` is left out where there is none."""
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
    """An answer with the error structure."""
    return Response(error_body(code, message, data), status, headers, media_type="application/json")


async def answer_api_error(_request: Request, error: Exception) -> Response:
    """Starlette's handler for ApiError."""
    assert isinstance(error, ApiError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return error_response(error.status, error.code, error.message, error.data, headers)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's handler for the framework's own refusals (no such path, wrong method)."""
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


async def answer_crash(_request: Request, error: Exception) -> Response:
    """Starlette's handler for anything unforeseen; the traceback goes to the log."""
    return error_response(500, "EXCEPTION", f"{HTTPStatus(500).phrase} ({type(error).__name__})")


def bad_argument(message: str) -> ApiError:
    """The refusal for a parameter or body that does not fit."""
    return ApiError(400, "ILLEGAL_ARGUMENT", message)


def must_change_password() -> ApiError:
    """The refusal of everything else for one who has to change the password."""
    return ApiError(403, "NOT_ALLOWED", "The password must be changed first")
