"""Causes of failed changes: only an answer of the service is a refusal."""

import errno
import os

import pytest

from zonedrive import causes, errors
from zonedrive.causes import Cause

ANSWERS = (
    errors.Forbidden, errors.NotFound, errors.AlreadyExists, errors.Locked, errors.TooLarge,
    errors.Rejected,
)  # fmt: skip


def every(kind: type[Exception]) -> list[type[Exception]]:
    """Return a type and all its subclasses."""
    return [kind, *(each for below in kind.__subclasses__() for each in every(below))]


def by_gateway(error: errors.RemoteError) -> errors.RemoteError:
    """Return the error as one of a gateway, not of the service."""
    error.by_gateway = True
    return error


def test_only_answers_of_the_service_are_refusals() -> None:
    """Every error has a cause, and no other error is called a refusal."""
    found = {each: causes.cause_of(each.__new__(each)) for each in every(errors.ZonedriveError)}
    assert not {Cause.REFUSED, Cause.UNEXPECTED} & set(found.values())
    answered = {causes.cause_of(each("no", status=400)) for each in ANSWERS}
    assert answered == {Cause.REFUSED}


@pytest.mark.parametrize(
    ("error", "cause", "said"),
    [
        (OSError(errno.ENOSPC, "x", "/secret"), Cause.LOCAL, "disk of the outbox is full"),
        (OSError(errno.EDQUOT, "x"), Cause.LOCAL, "quota is used up"),
        (OSError(errno.EFBIG, "x"), Cause.LOCAL, "limit of file sizes"),
        (RuntimeError("can't start new thread"), Cause.LOCAL, "'ulimit -u'"),
        (OSError(errno.EIO, "x"), Cause.LOCAL, "disk has an error"),
        (OSError(errno.EMFILE, "x"), Cause.LOCAL, os.strerror(errno.EMFILE)),
        (errors.Damaged("torn"), Cause.LOCAL, "torn"),
        (errors.Unreachable("away"), Cause.SERVICE, "away"),
        (errors.Unavailable("503"), Cause.SERVICE, "503"),
        (errors.Unavailable("507", status=507), Cause.REFUSED, "507"),
        (errors.NotLoggedOn("who"), Cause.SERVICE, "who"),
        (by_gateway(errors.Forbidden("page", status=403)), Cause.SERVICE, "page"),
        (errors.BadAnswer("what"), Cause.UNCLEAR, "what"),
        (errors.AmbiguousName("two"), Cause.UNCLEAR, "two"),
        (errors.Changed("other"), Cause.CHANGED, "other"),
        (errors.Forbidden("no", status=403), Cause.REFUSED, "another name or folder may help"),
        (errors.Forbidden("no", status=403, remedy="ask Bob"), Cause.REFUSED, "no; ask Bob"),
        (errors.Rejected("an empty id"), Cause.LOCAL, "an empty id"),
        (ExceptionGroup("g", [OSError(errno.ENOSPC, "x")]), Cause.LOCAL, "disk of the outbox"),
        (KeyError("secret"), Cause.UNEXPECTED, "an error in zonedrive (KeyError)"),
    ],
)
def test_each_cause_has_its_words(error: Exception, cause: Cause, said: str) -> None:
    """The line has no path and no value of a variable."""
    line = causes.line_of(error)
    assert (causes.cause_of(error), said in line, "secret" in line) == (cause, True, False), line
    assert ("administrator" in line) == (cause is Cause.REFUSED and "Bob" not in line)


def test_failures_are_counted_by_cause() -> None:
    """A temporary cause is no failure; a daemon of an earlier version counts no causes."""
    counts = causes.count([Cause.LOCAL, Cause.REFUSED, Cause.LOCAL, Cause.CHANGED, Cause.SERVICE])
    assert counts == {"local": 2, "refused": 1}
    said = causes.summary(counts, 3)
    assert said == "1 refused by the service, 2 held up by a problem on this machine"
    assert causes.summary({}, 2) == "2 failed"
    assert causes.summary({}, 0) == ""
