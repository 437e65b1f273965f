"""The lines on the control socket."""

import errno
import os
import socket
from pathlib import Path

import pytest

from zonedrive import errors
from zonedrive.cli.error_messages import exit_code
from zonedrive.daemon import protocol
from zonedrive.errors import ZonedriveError


def test_every_error_arrives_as_what_it_was() -> None:
    """The command that asked ends with the exit code and the line of the daemon's error."""
    for kind in (errors.NotLoggedOn, errors.TimedOut, errors.StoreError, errors.ProfileError):
        sent = kind("the cause", remedy="the remedy")
        back = protocol.raised(protocol.decode(protocol.encode(protocol.refusal(sent))))
        assert type(back) is kind
        assert back.line() == "the cause; the remedy"
        assert exit_code(back) == exit_code(sent)


def test_an_error_that_the_other_side_does_not_know_is_its_nearest_kin() -> None:
    """A package's own error loses its name, not its meaning."""

    class Special(errors.Unreachable):
        pass

    assert type(protocol.raised(protocol.refusal(Special("x")))) is errors.Unreachable


def test_an_unforeseen_error_tells_no_secret() -> None:
    """Of what nobody foresaw only the type is said."""
    said = protocol.refusal(KeyError("hunter2"))
    assert "hunter2" not in str(said)
    assert "KeyError" in said["error"]


def test_an_error_of_the_system_is_said_in_its_words() -> None:
    """A missing folder is called that."""
    said = protocol.refusal(FileNotFoundError(errno.ENOENT, "No such file", "/x/y"))
    assert said["error"] == "/x/y: No such file"


def test_a_full_disk_is_named_with_what_to_do() -> None:
    """Whatever was asked for."""
    back = protocol.raised(protocol.refusal(OSError(errno.ENOSPC, "No space left", "/x/tree.db")))
    assert back.line().startswith("/x/tree.db: No space left; make room on that disk")


def test_a_kind_that_is_no_error_of_ours_is_not_trusted() -> None:
    """A line never makes the command line build something else than an error."""
    for kind in ("annotations", "print", "__builtins__", None):
        assert type(protocol.raised({"error": "x", "kind": kind})) is ZonedriveError


def test_paths_of_any_bytes_pass() -> None:
    """A path is bytes; none is lost or refused on the way."""
    path = os.fsdecode(b"/tmp/\xff\xfe\n\x01 x")
    assert protocol.decode(protocol.encode({"path": path}))["path"] == path


@pytest.mark.parametrize("line", [b"", b"{", b"[1]", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    """A malformed line is an error with a sentence."""
    with pytest.raises(ZonedriveError, match="the request is not"):
        protocol.decode(line)


def test_a_socket_may_lie_deeper_than_a_socket_address_is_long(tmp_path: Path) -> None:
    """XDG folders may be nested as deeply as a file system allows."""
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        with protocol.address(folder / "a.sock") as name:
            server.bind(name)
        server.listen()
        with protocol.connect(folder / "a.sock", 5):
            server.accept()[0].close()
