"""Exceptions of zonedrive, in one class hierarchy.

A message is one sentence that names the cause; `remedy` tells the user what to do. Errors that
POSIX defines, such as EEXIST and ENOTEMPTY, are plain `OSError`s. Only `fuse.errno_table` maps
errors to an errno, and only `cli` maps errors to an exit code.
"""

import errno

from zonedrive.translation import marked

OVERLOADED = (429, 503)  # statuses of an overloaded service
FULL = 507  # status of a service that has no space left


REPORT = "nothing saved is lost; send the output of 'zonedrive doctor --report FILE'"
"""Remedy for an internal error."""


LIMITS = {
    errno.EAGAIN: marked("raise the limit ('ulimit -u', TasksMax=), or end some programs"),
    errno.EFBIG: marked("remove the limit of file sizes ('ulimit -f', LimitFSIZE=)"),
    errno.EMFILE: marked("raise the limit of open files ('ulimit -n', LimitNOFILE=)"),
}
"""Remedies for limits of processes and threads, of file sizes, and of open files, by errno."""


class ZonedriveError(Exception):
    """Base class of all errors that zonedrive raises on purpose."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        """Store message and remedy; the remedy must not contain text or names from the service."""
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def line(self) -> str:
        """Return one line for the user: the cause, then the remedy."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ConfigError(ZonedriveError):
    """Error for a setting, option or account file that is not usable."""


class BadOption(ConfigError):
    """Error for an option or argument of a command that is not usable."""


class SignOnNotOffered(ConfigError):
    """Error for a requested sign-on method that the service does not offer."""


class NoHomeDirectory(ConfigError):
    """Error for a user who has no usable home folder for zonedrive's files."""


class ForeignFolder(NoHomeDirectory):
    """Error for a folder of zonedrive that belongs to another user."""


class ProfileError(ConfigError):
    """Error for a deployment profile that is not usable; the message names file and line."""


class NotSupported(ZonedriveError):
    """Error for an operation for which the profile has no endpoint (POSIX: EPERM)."""


class StoreError(ZonedriveError):
    """Error for local data that is damaged or cannot be stored."""


class Damaged(StoreError):
    """Error for stored bytes that failed their integrity check, and are therefore not returned."""


class Changed(ZonedriveError):
    """Error for an entry whose state on the service differs from the last known state.

    A change that fails with this error is planned again with the new state. A program that reads
    the file gets ESTALE, and has to open the file again.
    """


class AmbiguousName(ZonedriveError):
    """Error for a request by name if several entries of the folder have the name."""


class AlreadyRunning(ZonedriveError):
    """Error for an account that another daemon or command already uses."""


class MountError(ZonedriveError):
    """Error for a mount point that is not usable, or a mount that the kernel refuses."""


class MountEnded(MountError):
    """Error for a control request that was not completed because the mount has ended."""


class RemoteError(ZonedriveError):
    """Error for a failed request to the service, or a failed connection to the service.

    `status` is the HTTP status (0 if the service did not answer), `code` the APIError name ("" if
    the service sent none), and `bare` the message without the attempted operation. `logged` is the
    message for logs, by default the same message.

    INVARIANT: `str()` returns the message for logs. That message contains no text of the service,
    because such text may contain names of files.
    """

    is_partial = False
    """True if an earlier request of the same operation had an effect."""

    by_gateway = False
    """True if a gateway has rejected the request, and the service has probably not received it."""

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        status: int = 0,
        code: str = "",
        bare: str = "",
        logged: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.bare = bare or message
        self.logged = logged or message
        self.status = status
        self.code = code

    def __str__(self) -> str:
        return self.logged


def during(doing: str, text: str) -> str:
    """Return `text`, preceded by `doing` (the attempted operation) unless `doing` is ""."""
    return f"{doing}: {text}" if doing else text


class Unreachable(RemoteError):
    """Error for a request that the service did not answer; a later attempt may succeed.

    For example, the host name is unknown, or the connection was refused, timed out or was reset.
    """


class TimedOut(Unreachable):
    """Error for a request that the service did not answer within the timeout."""


class Interrupted(Unreachable):
    """Error for a connection that broke without effect on the service; a retry is safe."""


class ReplyLost(Unreachable):
    """Error for a connection that broke after the request was sent; the effect is unknown."""


class UnusableReply(ReplyLost):
    """Error for an upload whose success response does not describe the uploaded file."""


class ProxyFailed(Unreachable):
    """Error for a configured proxy that did not connect to the service."""


class Untrusted(Unreachable):
    """Error for a server certificate that is not trusted; a retry alone does not help.

    `is_renewable` is True if a certificate has expired or is not yet valid. Then the service needs
    a new certificate, or this machine's clock is wrong.
    """

    is_renewable = False


class OtherHost(Untrusted):
    """Error for a server certificate that was issued for another host."""


class NoTls(Unreachable):
    """Error for a server that answers without TLS, or supports only versions before TLS 1.2."""


class Unavailable(RemoteError):
    """Error for a temporary failure of the service (408, 429, 500, 502, 503, …).

    A later attempt may succeed. `retry_after` is the delay in seconds that the service requests, or
    None. `unprocessed` is True if the request certainly had no effect.
    """

    retry_after: float | None = None
    unprocessed = False

    @property
    def is_overload(self) -> bool:
        """True if the service rejected the request because of overload."""
        return self.status in OVERLOADED


class BadAnswer(RemoteError):
    """Error for a response that violates the API, such as malformed JSON or a truncated body."""


class NotLoggedOn(RemoteError):
    """Error for a user who has not logged on, or whose session has ended (401)."""


class CredentialsRefused(NotLoggedOn):
    """Error for a logon that the service rejected, or that the user did not complete.

    INVARIANT: only the user may start another attempt.
    """


class PasswordChangeRequired(CredentialsRefused):
    """Error for a logon after which the service requires a password change."""


class Forbidden(RemoteError):
    """Error for a request for which the user lacks the permission (403)."""


class EndpointRefused(Forbidden):
    """Error for status 401 from an endpoint of a profile.

    The status alone does not show whether the logon has ended, or only this endpoint rejects the
    logon. Therefore the logon is checked before this error reaches a caller.
    """


UNKNOWN_ZONE = "UNKNOWN_ZONE"  # code of a NotFound


class NotFound(RemoteError):
    """Error for a zone, entry, version or endpoint that does not exist (404)."""


class AlreadyExists(RemoteError):
    """Error for a name that already exists (409)."""


class Locked(RemoteError):
    """Error for an entry that another user has locked (APIError LOCKED)."""


class TooLarge(RemoteError):
    """Error for content that is larger than the service accepts (413)."""


class Rejected(RemoteError):
    """Error for a request that the service rejected, for example for an illegal name (400)."""


def first_of(wrong: Exception) -> Exception:
    """Return the first exception in an exception group, at any depth, or else `wrong` itself.

    If this exception is Python's RuntimeError for a thread that cannot be started, return a
    ZonedriveError that names the limit instead.
    """
    while isinstance(wrong, ExceptionGroup):
        wrong = wrong.exceptions[0]
    if type(wrong) is RuntimeError and str(wrong) == "can't start new thread":
        return ZonedriveError(
            "this user may start no more processes and threads",
            remedy=LIMITS[errno.EAGAIN],
        )
    return wrong


def drop_tracebacks(error: BaseException | None) -> None:
    """Remove the tracebacks of `error`, its causes and the members of exception groups.

    A traceback refers to the body of a request or response (up to 192 MiB), which would stay in
    memory as long as the error is stored.
    """
    while error is not None:
        error.__traceback__ = None
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                drop_tracebacks(each)
        error = error.__cause__ or error.__context__


def described(wrong: BaseException) -> str:
    """Return the type and the message of an exception in one line."""
    said = " ".join(str(wrong).split())
    return f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__
