"""The one table from errors to exit codes.

Must not know any command.
"""

from zonedrive import errors

DONE = 0
FAILED = 1
USAGE = 2
NOT_LOGGED_ON = 3
UNREACHABLE = 4
INTERRUPTED = 130

# By the most special type that matches; every other error is FAILED.
TABLE: dict[type[Exception], int] = {
    errors.NotLoggedOn: NOT_LOGGED_ON,
    errors.Unreachable: UNREACHABLE,
}


def exit_code(error: Exception) -> int:
    """What the process ends with after `error`."""
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return FAILED
