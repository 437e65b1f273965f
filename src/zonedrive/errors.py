"""Exceptions of zonedrive: one class hierarchy, raised and caught by type.

A message is one sentence that names the cause; `remedy` tells the user what to do. Errors with a
POSIX name (a name that exists, a folder that is not empty) are plain `OSError`s. Only
`fuse.errno_table` maps errors to an errno, and only `cli` maps errors to an exit code.
"""

OVERLOADED = (429, 503)  # statuses of an overloaded service


REPORT = "nothing saved is lost; send the output of 'zonedrive doctor --report FILE'"
"""Remedy for an internal error."""


class ZonedriveError(Exception):
    """Base class of all errors that zonedrive raises on purpose."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def line(self) -> str:
        """Return one line for the user: the cause, then the remedy."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ConfigError(ZonedriveError):
    """Setting, option or account file that is not usable."""


class BadOption(ConfigError):
    """Option or argument of a command that is not usable."""


class NoHomeDirectory(ConfigError):
    """Missing home folder: the user has no folder for zonedrive's files."""


class ProfileError(ConfigError):
    """Deployment profile that is not usable; the message names the file and the line."""


class NotSupported(ZonedriveError):
    """Operation for which the profile has no endpoint (POSIX: EPERM)."""


class StoreError(ZonedriveError):
    """Local data that is damaged or cannot be stored."""


class Damaged(StoreError):
    """Stored bytes that failed their integrity check, and are therefore not returned."""


class Changed(ZonedriveError):
    """State on the service that differs from the last known state.

    The operation is planned again with the new state. A program that reads gets ESTALE and has to
    open the file again.
    """


class AmbiguousName(ZonedriveError):
    """Name that several entries of a folder have on the service, although requests use names."""


class AlreadyRunning(ZonedriveError):
    """Account that another daemon already serves."""


class MountError(ZonedriveError):
    """Mount point that is not usable, or mount that the kernel refuses."""


class MountEnded(MountError):
    """End of the mount while its daemon handled a request."""


class RemoteError(ZonedriveError):
    """Failure of the service or of the connection to the service.

    `status` is the HTTP status (0 without an answer), `code` the APIError name ("" if the service
    sent none), `data` the optional data of the error body, and `bare` the message without the
    attempted operation.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        status: int = 0,
        code: str = "",
        data: str | None = None,
        bare: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.bare = bare or message
        self.status = status
        self.code = code
        self.data = data


def during(doing: str, text: str) -> str:
    """Return `text`, preceded by `doing` (the attempted operation) unless `doing` is ""."""
    return f"{doing}: {text}" if doing else text


class Unreachable(RemoteError):
    """Missing answer of the service; a later attempt may succeed.

    For example, the host name is unknown, or the connection was refused, timed out or was reset.
    """


class TimedOut(Unreachable):
    """Missing answer of the service within the timeout."""


class Interrupted(Unreachable):
    """Connection that broke without effect on the service; the request may be repeated."""


class ReplyLost(Unreachable):
    """Connection that broke after the request was sent; the effect of the request is unknown."""


class ProxyFailed(Unreachable):
    """Proxy of this machine that did not connect to the service."""


class Untrusted(Unreachable):
    """Server certificate that is not trusted; a retry alone does not help.

    `is_renewable` is True if a certificate is expired or not yet valid: the service needs a new
    certificate, or this machine's clock is wrong.
    """

    is_renewable = False


class OtherHost(Untrusted):
    """Server certificate that is for another host."""


class NoTls(Unreachable):
    """Server that answers, but not with TLS 1.2 or later."""


class Unavailable(RemoteError):
    """Temporary error of the service (408, 429, 500, 502, 503, …); a later attempt may succeed.

    `retry_after` is the delay in seconds that the service requests, or None. `unprocessed` is True
    if the request certainly had no effect.
    """

    retry_after: float | None = None
    unprocessed = False

    @property
    def is_overload(self) -> bool:
        """True if the service rejected the request because of overload."""
        return self.status in OVERLOADED


class BadAnswer(RemoteError):
    """Answer that violates the API: malformed JSON, a missing field, a short body."""


class NotLoggedOn(RemoteError):
    """Missing session: the user has not logged on, or the session has ended (401)."""


class CredentialsRefused(NotLoggedOn):
    """Logon that the service rejected, or that the user did not complete.

    INVARIANT: only the user may start another attempt.
    """


class PasswordChangeRequired(CredentialsRefused):
    """Logon that succeeded, but for which the service requires a password change first."""


class Forbidden(RemoteError):
    """Request for which the user lacks the permission (403)."""


class NotFound(RemoteError):
    """Zone, entry, version or endpoint that does not exist (404)."""


class AlreadyExists(RemoteError):
    """Name that already exists (409)."""


class Locked(RemoteError):
    """Entry that another user has locked (APIError LOCKED)."""


class TooLarge(RemoteError):
    """Content that is larger than the service accepts (413)."""


class Rejected(RemoteError):
    """Request that the service rejects, for example with an illegal name (400 and similar)."""


def first_of(wrong: Exception) -> Exception:
    """Return the first exception in a group, at any depth; return other exceptions unchanged."""
    while isinstance(wrong, ExceptionGroup):
        wrong = wrong.exceptions[0]
    return wrong


def described(wrong: BaseException) -> str:
    """Return the type and the message of an exception in one line."""
    said = " ".join(str(wrong).split())
    return f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__
