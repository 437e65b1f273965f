"""The one place where an error becomes an errno.

Must not know what was asked.  Chosen by what programs make of a number: they print its text, and
some act on it.  EAGAIN is never used: programs repeat the call at once, for ever.
"""

import errno
import logging
import sqlite3

import trio

from zonedrive import errors

log = logging.getLogger(__name__)

# By the most special type that matches; a type without a line has that of its parent.
TABLE: dict[type[BaseException], int] = {
    errors.ZonedriveError: errno.EIO,
    errors.ConfigError: errno.EIO,
    errors.NotSupported: errno.EPERM,  # what POSIX gives where a file system cannot do it
    errors.StoreError: errno.EIO,
    errors.Changed: errno.ESTALE,
    errors.AmbiguousName: errno.EEXIST,
    errors.AlreadyRunning: errno.EBUSY,
    errors.MountError: errno.EIO,
    errors.RemoteError: errno.EIO,
    errors.Unreachable: errno.ENETUNREACH,  # "Network is unreachable": what a person should read
    errors.TimedOut: errno.ETIMEDOUT,
    errors.ReplyLost: errno.EIO,  # whether it took effect is open: no text may promise either
    errors.Untrusted: errno.EACCES,  # the way is there, but we do not go it
    errors.Unavailable: errno.EREMOTEIO,  # "Remote I/O error", as NFS says for a faulting server
    errors.BadAnswer: errno.EIO,
    errors.NotLoggedOn: errno.EACCES,
    errors.Forbidden: errno.EACCES,
    errors.NotFound: errno.ENOENT,
    errors.AlreadyExists: errno.EEXIST,
    errors.Locked: errno.EBUSY,
    errors.TooLarge: errno.EFBIG,
    errors.Rejected: errno.EINVAL,
    trio.TooSlowError: errno.ETIMEDOUT,
    # Python's names, where they are raised without a number.
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
    sqlite3.SQLITE_IOERR_WRITE: errno.ENOSPC,  # what a full disk gives the write-ahead log
}


def errno_of(error: BaseException) -> int:
    """The errno for `error`; an error that nobody foresaw is EIO, with its traceback in the log."""
    if isinstance(error, BaseExceptionGroup):
        return errno_of(error.exceptions[0])
    # An OSError of getaddrinfo(3) has another kind of number.
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return error.errno
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0)
        return _SQLITE.get(code) or _SQLITE.get(code & 0xFF) or _unforeseen(error)
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return _unforeseen(error)


def _unforeseen(error: BaseException) -> int:
    log.error("an operation failed in a way that nobody foresaw", exc_info=error)
    return errno.EIO
