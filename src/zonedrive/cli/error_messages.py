"""Conversion of errors to exit codes, and to the single line that the user sees."""

import contextlib
import errno
import os
import tempfile
import traceback
from pathlib import Path

from zonedrive import __version__, paths
from zonedrive.config import on_this_machine, unless_policy
from zonedrive.errors import (
    LIMITS,
    REPORT,
    BadOption,
    NoHomeDirectory,
    NotLoggedOn,
    ReplyLost,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.translation import marked

FAILED = 1
USAGE = 2
NOT_LOGGED_ON = 3
UNREACHABLE = 4
INTERRUPTED = 130

DESCRIPTOR = "ZONEDRIVE_ERROR_DESCRIPTOR"
"""Environment variable with the number of a file descriptor to which an error is written.

The descriptor is the write end of a pipe. The window (`zonedrive ui`) reads the error from it.
"""

_REMEDIES = {
    **dict.fromkeys(
        paths.NO_ROOM, "make room on the disk of your home folder, or where XDG_STATE_HOME is"
    ),
    **LIMITS,
}
"""Remedies for errors of the operating system, by errno."""

_WRITABLE = "make it writable"
_OWN_FOLDERS = (
    "make it writable, or set XDG_STATE_HOME, XDG_CACHE_HOME and XDG_RUNTIME_DIR to folders"
    " that you own"
)


def exit_code(error: Exception) -> int:
    """Return the exit code of the process for `error`."""
    if isinstance(error, NotLoggedOn):
        return NOT_LOGGED_ON
    if isinstance(error, BadOption):
        return USAGE
    return UNREACHABLE if isinstance(error, Unreachable) else FAILED


def line(error: Exception) -> str:
    """Return the error's message and remedy, as `parts` returns them, in one line."""
    return "; ".join(filter(None, parts(error)))


def parts(error: Exception) -> tuple[str, str]:
    """Return the error's message, and its remedy or "".

    The message may contain the name of a file or text from the service. For an unexpected error,
    also write the details to a file for a bug report.
    """
    if isinstance(error, ZonedriveError):
        if isinstance(error, Unavailable):  # a mount retries by itself, a command does not
            error.remedy = error.remedy or "try again later"
        if isinstance(error, Unreachable) and not isinstance(error, ReplyLost):
            error.message = error.bare  # the user knows the operation: it is the command
        return error.message, error.remedy
    if isinstance(error, OSError):
        return _refused(error)
    return _unforeseen(error)


def pass_on(error: ZonedriveError, descriptor: str) -> None:
    """Write `error` and its class to a file descriptor, as a message of the control protocol.

    Do nothing if `descriptor`, the value of the variable DESCRIPTOR, is not an open descriptor.
    """
    from zonedrive.daemon import protocol

    with contextlib.suppress(ValueError, OverflowError, OSError):
        os.write(int(descriptor), protocol.encode(protocol.refusal(error)))


def _refused(wrong: OSError) -> tuple[str, str]:
    if wrong.filename is None and wrong.errno == errno.ENOENT and not has_folder():
        return paths.NO_FOLDER, paths.GO_ELSEWHERE
    is_ours = _is_of_ours(wrong.filename)
    remedy = _REMEDIES.get(wrong.errno or 0, "")
    if is_ours and wrong.errno in (errno.ENOTDIR, errno.EEXIST):
        if found := paths.obstacle(Path(os.fsdecode(wrong.filename))):
            return parts(paths.no_folder(found))
    elif wrong.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
        remedy = on_this_machine()
    elif is_ours and wrong.errno == errno.EROFS and paths.has_accounts():
        from zonedrive.daemon.local_data import READ_ONLY

        return f"{wrong.filename}: {READ_ONLY}", ""
    elif is_ours and wrong.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        # In another state folder, the accounts with their pending changes would be missing.
        remedy = _WRITABLE if paths.has_accounts() else _OWN_FOLDERS
        for name, folder in paths.policy_folders().items():
            if Path(os.fsdecode(wrong.filename)).is_relative_to(folder):
                remedy = unless_policy(name, remedy)
    name = f"{wrong.filename}: " if wrong.filename else ""
    return f"{name}{wrong.strerror or wrong}", remedy


def unwritten(wrong: OSError) -> str:
    """Return the message for a failed write to standard output."""
    return marked(f"the output cannot be written ({wrong.strerror})")


def has_folder() -> bool:
    """Return True if the working directory exists."""
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() would access the folder
    except OSError:
        return False
    return True


def _is_of_ours(name: object) -> bool:
    """Return True if the path `name` is inside or above one of zonedrive's own folders."""
    if not isinstance(name, str | bytes):
        return False
    path = Path(os.fsdecode(name))
    with contextlib.suppress(NoHomeDirectory):
        kept = (paths.state_dir(), paths.cache_dir(), paths.runtime_dir())
        return any(path.is_relative_to(each) or each.is_relative_to(path) for each in kept)
    return False


def _unforeseen(error: Exception) -> tuple[str, str]:
    """Write an error's type and stack to a new file, which the user can send with a bug report.

    Return the message, and a remedy with the path of the file if the file could be written.
    """
    said = f"an internal error in zonedrive ({type(error).__name__})"
    try:
        descriptor, name = tempfile.mkstemp(prefix="zonedrive-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            # Types and places only: a message or a variable may contain a secret.
            frames = traceback.extract_tb(error.__traceback__)
            file.write(f"zonedrive {__version__}: {type(error).__name__}\n")
            file.writelines(f"{frame.filename}:{frame.lineno} {frame.name}\n" for frame in frames)
    except OSError:
        return said, REPORT
    return said, f"{REPORT}, and see {name}"
