"""Waiting for a silent daemon."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zonedrive.cli import control_client
from zonedrive.cli.control_client import DaemonTimeout, connect, received
from zonedrive.daemon import lock, protocol
from zonedrive.errors import ZonedriveError
from zonedrive.paths import AccountPaths

NOBODY = -1  # the number of no process


class Line:
    """Connection to a daemon that the test controls."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.beside: list[socket.socket] = []

    def answering(self) -> socket.socket:
        """Return another connection, to a daemon that answers."""
        mine, other = socket.socketpair()
        other.sendall(b'{"done":true}\n')
        self.beside.append(other)
        return mine

    def silent(self) -> socket.socket:
        """Return another connection, to a daemon that does not answer."""
        mine, other = socket.socketpair()
        self.beside.append(other)
        return mine

    def gone(self) -> socket.socket:
        """Raise the error for a missing socket."""
        raise FileNotFoundError

    def close(self) -> None:
        for each in (self.ours, self.theirs, *self.beside):
            each.close()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """Yield a connection with short timeouts."""
    for name, seconds in (("SLICE", 0.01), ("QUIET", 0.03), ("SIGN", 0.05), ("CLOSING", 0.2)):
        monkeypatch.setattr(control_client, f"{name}_SECONDS", seconds)
    monkeypatch.setattr(control_client, "WORKING_SECONDS", 0.5)
    monkeypatch.setattr(control_client, "_pid", lambda paths: NOBODY)
    made = Line()
    yield made
    made.close()


def lines(
    line: Line, again: Callable[[], socket.socket], longest: float | None = None
) -> Iterator[bytes]:
    """Return the received lines, if `again` opens another connection to the daemon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_client, "_reached", lambda paths: again())
        yield from received(line.ours, AccountPaths("default"), longest)


def test_a_request_that_is_too_long_is_not_sent() -> None:
    """The daemon would read a part of it, and close the connection."""
    request = {"paths": ["x" * protocol.MAX_LINE]}
    with pytest.raises(ZonedriveError, match="too long"):
        next(control_client.stream(AccountPaths("nobody"), request))


def test_received_bytes_are_split_into_lines(line: Line) -> None:
    """An incomplete last line is dropped when the daemon closes the connection."""
    line.theirs.sendall(b"one\ntw")
    line.theirs.sendall(b"o\nthr")
    line.theirs.close()
    assert list(lines(line, line.gone)) == [b"one", b"two"]


def test_a_daemon_that_answers_a_second_connection_is_slow(line: Line) -> None:
    """The daemon is tested repeatedly, and only the time limit ends the wait."""
    with pytest.raises(DaemonTimeout):
        next(lines(line, line.answering, 0.2))
    assert len(line.beside) == 6


@pytest.mark.parametrize("longest", [None, 1000.0])
def test_a_daemon_that_does_not_answer_hangs(line: Line, longest: float | None) -> None:
    """The wait ends long before the time limit, and also without one."""
    with pytest.raises(TimeoutError):
        next(lines(line, line.silent, longest))


def test_a_closing_daemon_gets_time(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closing daemon has removed its socket already; a stopped process gets no time."""
    asked: list[int] = []

    def gone() -> socket.socket:
        asked.append(1)
        return line.gone()

    with pytest.raises(TimeoutError):
        next(lines(line, gone))
    assert len(asked) == 7
    monkeypatch.setattr(lock, "is_stopped", lambda pid: True)
    with pytest.raises(TimeoutError):
        next(lines(line, gone))
    assert len(asked) == 8


@pytest.mark.parametrize(("working", "looks"), [(False, 5), (True, 50)])
def test_a_working_daemon_gets_more_time(
    line: Line, monkeypatch: pytest.MonkeyPatch, working: bool, looks: int
) -> None:
    """A daemon that computes or waits for its disk has more time. A suspend counts as one slice."""
    monkeypatch.setattr(lock, "is_working", lambda pid: working)
    looked = 0
    with pytest.raises(TimeoutError):
        for _ in control_client._slices(os.getpid()):
            looked += 1
    assert abs(looked - looks) <= 1


def test_a_daemon_that_takes_no_connection_hangs(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full listen queue is a hanging daemon, not a missing one."""
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
