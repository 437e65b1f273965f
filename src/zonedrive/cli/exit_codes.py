"""The table of exit codes by error type.

Knows nothing about the commands.
"""

from zonedrive import errors

DONE = 0
FAILED = 1
USAGE = 2
NOT_LOGGED_ON = 3
UNREACHABLE = 4
INTERRUPTED = 130

# The most specific type decides; every other error is FAILED.
TABLE: dict[type[Exception], int] = {
    errors.NotLoggedOn: NOT_LOGGED_ON,
    errors.Unreachable: UNREACHABLE,
}


def exit_code(error: Exception) -> int:
    """Return the exit code of the process for `error`."""
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return FAILED
