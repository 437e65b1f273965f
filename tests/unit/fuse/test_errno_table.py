"""Mapping of errors to errno numbers."""

import errno
import logging
import sqlite3

import pytest
import trio

from zonedrive import errors
from zonedrive.errors import ZonedriveError
from zonedrive.fuse.errno_table import TABLE, errno_of

PROMISED = {
    errors.NotSupported: errno.EPERM,
    errors.Forbidden: errno.EACCES,
    errors.NotLoggedOn: errno.EACCES,
    errors.CredentialsRefused: errno.EACCES,
    errors.NotFound: errno.ENOENT,
    errors.AlreadyExists: errno.EEXIST,
    errors.Locked: errno.EBUSY,
    errors.TooLarge: errno.EFBIG,
    errors.Rejected: errno.EINVAL,
    errors.Unreachable: errno.ENETUNREACH,
    errors.TimedOut: errno.ETIMEDOUT,
    errors.Unavailable: errno.EREMOTEIO,
    errors.BadAnswer: errno.EIO,
    errors.Changed: errno.ESTALE,
    errors.Damaged: errno.EIO,
    errors.StoreError: errno.EIO,
}


def _all_kinds(kind: type[ZonedriveError] = ZonedriveError) -> list[type[ZonedriveError]]:
    return [kind, *(below for each in kind.__subclasses__() for below in _all_kinds(each))]


@pytest.mark.parametrize(("kind", "number"), PROMISED.items())
def test_each_error_has_its_errno(kind: type[ZonedriveError], number: int) -> None:
    """The errno shows the program what the service or the profile has refused."""
    assert errno_of(kind("why")) == number


def test_an_entry_of_a_zone_that_is_gone_is_not_missing() -> None:
    """The zone may be back: a program that finds no file would write a new one over it."""
    assert errno_of(errors.NotFound("why", code="UNKNOWN_ZONE")) == errno.EACCES
    assert errno_of(errors.NotFound("why", code="UNKNOWN_FILE")) == errno.ENOENT


def test_every_error_of_ours_is_foreseen(caplog: pytest.LogCaptureFixture) -> None:
    """Each of zonedrive's own errors has an entry, and none makes a program repeat endlessly."""
    for kind in _all_kinds():
        assert any(parent in TABLE for parent in kind.__mro__)
    assert not {errno.EAGAIN, errno.EINTR, 0} & set(TABLE.values())
    assert caplog.records == []


def test_the_operating_systems_own_errors_pass_unchanged() -> None:
    """A full disk is ENOSPC, a name that is taken EEXIST."""
    assert errno_of(OSError(errno.ENOSPC, "full")) == errno.ENOSPC
    assert errno_of(FileExistsError(errno.EEXIST, "taken")) == errno.EEXIST
    assert errno_of(TimeoutError()) == errno.ETIMEDOUT
    assert errno_of(trio.TooSlowError()) == errno.ETIMEDOUT


def test_an_error_without_a_number_of_its_class_has_the_classes() -> None:
    """`raise FileNotFoundError("x")` means ENOENT, as its name says."""
    assert errno_of(FileNotFoundError("x")) == errno.ENOENT
    assert errno_of(IsADirectoryError("x")) == errno.EISDIR
    assert errno_of(NotADirectoryError("x")) == errno.ENOTDIR
    assert errno_of(FileExistsError("x")) == errno.EEXIST
    assert errno_of(PermissionError("x")) == errno.EACCES


def test_a_full_database_is_a_full_disk() -> None:
    """Errors that SQLite reports of the disk reach the program with the same errno."""
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 4")
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(sqlite3.OperationalError) as full:
        for _ in range(100):
            connection.execute("INSERT INTO t VALUES (zeroblob(1000))")
    connection.close()
    assert errno_of(full.value) == errno.ENOSPC


def test_several_failures_give_the_first_errno(caplog: pytest.LogCaptureFixture) -> None:
    """Several tasks that fail together give one errno."""
    group = ExceptionGroup("tasks", [errors.Forbidden("no"), errors.BadAnswer("what")])
    assert errno_of(group) == errno.EACCES
    assert caplog.records == []


def test_an_unexpected_error_is_eio(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is logged with its traceback."""
    assert errno_of(ZeroDivisionError("surprise")) == errno.EIO
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
