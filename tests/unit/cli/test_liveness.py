"""How long a daemon that says nothing is waited for."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zonedrive.cli import control_client
from zonedrive.cli.control_client import Liveness, connect
from zonedrive.daemon import lock

NOBODY = -1  # the number of no process


class Line:
    """A connection to a daemon, whose end is in the test's hands."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.beside: list[socket.socket] = []

    def answering(self) -> socket.socket:
        """Another connection, at whose end somebody answers."""
        mine, other = socket.socketpair()
        other.sendall(b'{"done":true}\n')
        self.beside.append(other)
        return mine

    def silent(self) -> socket.socket:
        """… and at whose end nobody does."""
        mine, other = socket.socketpair()
        self.beside.append(other)
        return mine

    def gone(self) -> socket.socket:
        """… or none, as the socket is not there any more."""
        raise FileNotFoundError

    def close(self) -> None:
        for each in (self.ours, self.theirs, *self.beside):
            each.close()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """Where little time is waited for, so that a test is quick."""
    for name, seconds in (("SLICE", 0.01), ("QUIET", 0.03), ("SIGN", 0.05), ("CLOSING", 0.2)):
        monkeypatch.setattr(control_client, f"{name}_SECONDS", seconds)
    monkeypatch.setattr(control_client, "WORKING_SECONDS", 0.5)
    made = Line()
    yield made
    made.close()


def test_what_comes_is_cut_into_lines(line: Line) -> None:
    """Until the daemon hangs up; half a line is none."""
    line.theirs.sendall(b"one\ntw")
    line.theirs.sendall(b"o\nthr")
    line.theirs.close()
    assert list(Liveness(line.ours, line.gone, NOBODY).lines(None)) == [b"one", b"two"]


def test_one_that_answers_beside_is_only_slow(line: Line) -> None:
    """It is asked again and again, and given up at the limit alone."""
    waiting = Liveness(line.ours, line.answering, NOBODY)
    with pytest.raises(TimeoutError):
        next(waiting.lines(0.2))
    assert waiting.is_slow
    assert len(line.beside) == 6


def test_one_that_does_not_is_given_up(line: Line) -> None:
    """Long before the limit, and also without one."""
    for longest in (None, 1000.0):
        waiting = Liveness(line.ours, line.silent, NOBODY)
        with pytest.raises(TimeoutError):
            next(waiting.lines(longest))
        assert not waiting.is_slow


def test_one_that_is_closing_has_time_for_it(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is gone already; but not where it is stopped in the middle of that."""
    asked: list[int] = []

    def gone() -> socket.socket:
        asked.append(1)
        return line.gone()

    with pytest.raises(TimeoutError):
        next(Liveness(line.ours, gone, NOBODY).lines(None))
    assert len(asked) == 7
    monkeypatch.setattr(lock, "is_stopped", lambda pid: True)
    with pytest.raises(TimeoutError):
        next(Liveness(line.ours, gone, NOBODY).lines(None))
    assert len(asked) == 8


@pytest.mark.parametrize(("working", "looks"), [(False, 5), (True, 50)])
def test_one_that_works_gets_more_time(
    line: Line, monkeypatch: pytest.MonkeyPatch, working: bool, looks: int
) -> None:
    """It computes, or waits for its disk.  Time is counted in looks: who sleeps meanwhile, with
    the whole machine, has lost one of them."""
    monkeypatch.setattr(lock, "is_working", lambda pid: working)
    looked: list[int] = []

    def look() -> bool:
        looked.append(1)
        return False

    with pytest.raises(TimeoutError):
        control_client.wait(look, os.getpid())
    assert abs(len(looked) - looks) <= 1


def test_a_daemon_that_takes_no_connection_hangs(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel keeps some of them for it, and then no more: that is no missing daemon."""
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as full:
        full.bind(str(path))
        full.listen(0)
        first = connect(path, NOBODY)
        with pytest.raises(TimeoutError):
            connect(path, NOBODY)
        taken: Callable[[], object] = lambda: full.accept()[0].close()  # noqa: E731
        monkeypatch.setattr("zonedrive.cli.control_client.time.sleep", lambda seconds: taken())
        connect(path, NOBODY).close()
        first.close()
    with pytest.raises(ConnectionRefusedError):
        connect(path, NOBODY)
