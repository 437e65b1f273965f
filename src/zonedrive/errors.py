"""Everything that can go wrong and has a name: one tree of exceptions, raised and caught by type.

A message is one sentence that names the cause; `remedy` is what the person can do about it.
Refusals that POSIX itself has a word for (a name that exists, a folder that is not empty) are
plain `OSError`s.  Which errno an error becomes is decided in `fuse.errno_table` alone, which
exit code in `cli`.
"""


class ZonedriveError(Exception):
    """Anything zonedrive itself raises on purpose."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def line(self) -> str:
        """The one line a person sees: cause, then remedy."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ConfigError(ZonedriveError):
    """A setting, an option or an account file that cannot be used."""


class Homeless(ConfigError):
    """There is no folder of the user's for what zonedrive keeps."""


class ProfileError(ConfigError):
    """A deployment profile that cannot be used; the message names file and line."""


class NotSupported(ZonedriveError):
    """The profile knows no endpoint for this operation (POSIX: EPERM)."""


class StoreError(ZonedriveError):
    """Local data that is damaged or cannot be kept."""


class Damaged(StoreError):
    """Stored bytes that fail their check: read again from the service, never handed out."""


class Changed(ZonedriveError):
    """Known of the service until now, and no longer true: to be decided again with fresh knowledge.

    A reader looks up the current version and opens that.
    """


class AmbiguousName(ZonedriveError):
    """Several entries of the service have one name in a folder, and only the name is sent."""


class AlreadyRunning(ZonedriveError):
    """Another daemon serves this account."""


class MountError(ZonedriveError):
    """A mount point that cannot be used, or a kernel that refuses the mount."""


class MountEnded(MountError):
    """The mount went away while something was asked of its daemon."""


class RemoteError(ZonedriveError):
    """The service, or the way to it, failed.

    `status` is the HTTP status (0: no answer), `code` the APIError name ("" where none came),
    `data` the error body's optional datum, `bare` the message without what was being done.
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


class Unreachable(RemoteError):
    """No answer: name not found, refused, timed out, reset.  Worth another try later."""


class TimedOut(Unreachable):
    """The service took longer than the deadline."""


class Interrupted(Unreachable):
    """The connection broke underway, without effect on the service: the same may be asked again."""


class ReplyLost(Unreachable):
    """The request was sent and the connection broke: whether it took effect is unknown."""


class Untrusted(Unreachable):
    """The peer's certificate is not one we trust; trying again does not help by itself."""


class Unavailable(RemoteError):
    """The service answers but cannot serve now (408, 429, 500, 502, 503, …): try again later."""


class BadAnswer(RemoteError):
    """An answer that breaks the interface: malformed JSON, a missing field, a short body."""


class NotLoggedOn(RemoteError):
    """401: no session, or one that has ended."""


class CredentialsRefused(NotLoggedOn):
    """A logon that the service refused.  INVARIANT: never repeated without a person."""


class PasswordChangeRequired(CredentialsRefused):
    """The logon holds, but the service lets nothing through before the password is changed."""


class Forbidden(RemoteError):
    """403: logged on, but without the right to do this."""


class NotFound(RemoteError):
    """404: no such zone, entry, version or endpoint."""


class AlreadyExists(RemoteError):
    """409: the name is taken."""


class Locked(RemoteError):
    """Somebody holds a lock on the entry (APIError LOCKED)."""


class TooLarge(RemoteError):
    """413: more bytes than the service takes."""


class Rejected(RemoteError):
    """400 and its kin: the service finds the request wrong, for instance an illegal name."""


def first_of(wrong: Exception) -> Exception:
    """The first exception of a group, at any depth."""
    while isinstance(wrong, ExceptionGroup):
        wrong = wrong.exceptions[0]
    return wrong


def described(wrong: BaseException) -> str:
    """An exception in one line: its type, and what it says."""
    said = " ".join(str(wrong).split())
    return f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__
