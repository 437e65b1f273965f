"""Exceptions of zonedrive: one class hierarchy, raised and caught by type.

A message is one sentence that names the cause; `remedy` tells the user what to do.  Errors with a
POSIX name (a name that exists, a folder that is not empty) are plain `OSError`s.  Only
`fuse.errno_table` maps errors to an errno, and only `cli` to an exit code.
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
    """A setting, an option or an account file is not usable."""


class BadOption(ConfigError):
    """An option or argument of a command is not usable."""


class NoHomeDirectory(ConfigError):
    """The user has no home folder for zonedrive's files."""


class ProfileError(ConfigError):
    """A deployment profile is not usable; the message names file and line."""


class NotSupported(ZonedriveError):
    """The profile has no endpoint for this operation (POSIX: EPERM)."""


class StoreError(ZonedriveError):
    """Local data is damaged or cannot be stored."""


class Damaged(StoreError):
    """Stored bytes failed their integrity check; they are never returned, but fetched again."""


class Changed(ZonedriveError):
    """The state on the service differs from the last known state.

    The operation is evaluated again with the new state.  A reader opens the current version.
    """


class AmbiguousName(ZonedriveError):
    """Several entries in a folder have one name on the service, and only names can be sent."""


class AlreadyRunning(ZonedriveError):
    """Another daemon serves this account."""


class MountError(ZonedriveError):
    """A mount point is not usable, or the kernel refuses the mount."""


class MountEnded(MountError):
    """The mount ended while its daemon handled a request."""


class RemoteError(ZonedriveError):
    """The service, or the connection to it, failed.

    `status` is the HTTP status (0: no answer), `code` the APIError name ("" if none was sent),
    `data` the optional data of the error body, `bare` the message without the attempted operation.
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
    """Return `text`, preceded by the attempted operation unless `doing` is ""."""
    return f"{doing}: {text}" if doing else text


class Unreachable(RemoteError):
    """The service did not answer: unknown name, refused, timed out, reset.  Try again later."""


class TimedOut(Unreachable):
    """The service took longer than the timeout."""


class Interrupted(Unreachable):
    """The connection broke without effect on the service; the request may be repeated."""


class ReplyLost(Unreachable):
    """The connection broke after the request was sent; its effect is unknown."""


class ProxyFailed(Unreachable):
    """The proxy of this machine did not connect to the service."""


class Untrusted(Unreachable):
    """The server's certificate is not trusted; a retry alone does not help.

    `is_renewable`: a certificate is expired or not yet valid; the service needs a new one, or the
    clock is wrong.
    """

    is_renewable = False


class OtherHost(Untrusted):
    """The server's certificate is for another host."""


class NoTls(Unreachable):
    """The server answers, but not with TLS 1.2 or later."""


class Unavailable(RemoteError):
    """The service answers with a temporary error (408, 429, 500, 502, 503, …): try again later.

    `retry_after` is the delay in seconds that the service asks for, or None.  `unprocessed`: the
    request certainly had no effect.
    """

    retry_after: float | None = None
    unprocessed = False

    @property
    def is_overload(self) -> bool:
        """Return True if the service rejected the request because it is overloaded."""
        return self.status in OVERLOADED


class BadAnswer(RemoteError):
    """An answer violates the API: malformed JSON, a missing field, a short body."""


class NotLoggedOn(RemoteError):
    """401: there is no session, or the session has ended."""


class CredentialsRefused(NotLoggedOn):
    """The service rejected a logon.  INVARIANT: only the user may start another attempt."""


class PasswordChangeRequired(CredentialsRefused):
    """The logon succeeded, but the service requires a password change first."""


class Forbidden(RemoteError):
    """403: the user is logged on but lacks the permission."""


class NotFound(RemoteError):
    """404: the zone, entry, version or endpoint does not exist."""


class AlreadyExists(RemoteError):
    """409: the name exists."""


class Locked(RemoteError):
    """Another user has locked the entry (APIError LOCKED)."""


class TooLarge(RemoteError):
    """413: the content is larger than the service accepts."""


class Rejected(RemoteError):
    """400 and similar: the service rejects the request, for example an illegal name."""


def first_of(wrong: Exception) -> Exception:
    """Return the first exception of a group, at any depth."""
    while isinstance(wrong, ExceptionGroup):
        wrong = wrong.exceptions[0]
    return wrong


def described(wrong: BaseException) -> str:
    """Return one line about an exception: its type and its message."""
    said = " ".join(str(wrong).split())
    return f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__
