"""Mapping from exceptions to the errno numbers with which FUSE requests are answered.

Each number is chosen for its effect on programs: many print the text of the number, and some act on
the number. EAGAIN is never used, because programs would repeat the call at once and forever.
"""

import errno
import logging
import sqlite3

import trio

from zonedrive import errors

log = logging.getLogger(__name__)

# The most specific matching type counts; a type that is not listed has its parent's number.
TABLE: dict[type[BaseException], int] = {
    errors.ZonedriveError: errno.EIO,
    # The number POSIX uses for operations that a file system does not support.
    errors.NotSupported: errno.EPERM,
    errors.Changed: errno.ESTALE,
    errors.AmbiguousName: errno.EEXIST,
    errors.AlreadyRunning: errno.EBUSY,
    errors.Unreachable: errno.ENETUNREACH,  # users should read "Network is unreachable"
    errors.TimedOut: errno.ETIMEDOUT,
    errors.ReplyLost: errno.EIO,  # unknown outcome: the text must not promise success or failure
    errors.Untrusted: errno.EACCES,  # the host is reachable but refused for security
    errors.Unavailable: errno.EREMOTEIO,  # "Remote I/O error", as NFS says for a faulting server
    errors.NotLoggedOn: errno.EACCES,
    errors.Forbidden: errno.EACCES,
    errors.NotFound: errno.ENOENT,
    errors.AlreadyExists: errno.EEXIST,
    errors.Locked: errno.EBUSY,
    errors.TooLarge: errno.EFBIG,
    errors.Rejected: errno.EINVAL,
    trio.TooSlowError: errno.ETIMEDOUT,
    # Python's own exceptions, if raised without a number.
    TimeoutError: errno.ETIMEDOUT,
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    MemoryError: errno.ENOMEM,
}

_SQLITE = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_IOERR_WRITE: errno.ENOSPC,  # the error of the write-ahead log on a full disk
}


def errno_of(error: BaseException) -> int:
    """Return the errno for `error`; for an unexpected error, log the traceback and return EIO."""
    if isinstance(error, BaseExceptionGroup):
        return errno_of(error.exceptions[0])
    # An OSError of getaddrinfo(3) has numbers of a different kind.
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return error.errno
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0)
        return _SQLITE.get(code) or _SQLITE.get(code & 0xFF) or _unforeseen(error)
    if isinstance(error, errors.NotFound) and error.code == errors.UNKNOWN_ZONE:
        return errno.EACCES  # the entry may be back with the zone: no program must create it again
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return _unforeseen(error)


def _unforeseen(error: BaseException) -> int:
    log.error("an operation failed with an unexpected error", exc_info=error)
    return errno.EIO
