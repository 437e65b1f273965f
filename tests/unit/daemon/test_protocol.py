"""Lines on the control socket."""

import errno
import os
import socket
from pathlib import Path

import pytest

from zonedrive import errors
from zonedrive.cli.error_messages import exit_code
from zonedrive.daemon import protocol
from zonedrive.errors import ZonedriveError


def test_every_error_keeps_its_type() -> None:
    """The command ends with the exit code and text of the daemon's error."""
    for kind in (errors.NotLoggedOn, errors.TimedOut, errors.StoreError, errors.ProfileError):
        sent = kind("the cause", remedy="the remedy")
        back = protocol.raised(protocol.decode(protocol.encode(protocol.refusal(sent))))
        assert type(back) is kind
        assert back.line() == "the cause; the remedy"
        assert exit_code(back) == exit_code(sent)


def test_a_private_error_class_becomes_its_public_base() -> None:
    """Class names of a package stay internal."""

    class Special(errors.Unreachable):
        pass

    assert type(protocol.raised(protocol.refusal(Special("x")))) is errors.Unreachable


def test_an_os_error_keeps_its_text() -> None:
    """The text includes the file name, if there is one."""
    said = protocol.refusal(FileNotFoundError(errno.ENOENT, "No such file", "/x/y"))
    assert said["error"] == "/x/y: No such file"


def test_a_full_disk_has_a_remedy() -> None:
    """The answer of every command has the remedy."""
    back = protocol.raised(protocol.refusal(OSError(errno.ENOSPC, "No space left", "/x/tree.db")))
    assert back.line().startswith("/x/tree.db: No space left; make room on that disk")


def test_an_unknown_error_kind_is_a_plain_error() -> None:
    """A line cannot make the client create other objects."""
    for kind in ("annotations", "print", "__builtins__", None):
        assert type(protocol.raised({"error": "x", "kind": kind})) is ZonedriveError


def test_paths_may_contain_any_bytes() -> None:
    """Encoding and decoding do not change the bytes of a path."""
    path = os.fsdecode(b"/tmp/\xff\xfe\n\x01 x")
    assert protocol.decode(protocol.encode({"path": path}))["path"] == path


@pytest.mark.parametrize("line", [b"", b"{", b"[1]", b"7", b"\xff", b"[" * 100_000])
def test_a_line_without_an_object_is_refused(line: bytes) -> None:
    """The error says what is wrong."""
    with pytest.raises(ZonedriveError, match="the request is not"):
        protocol.decode(line)


def test_a_socket_path_may_be_longer_than_a_socket_address(tmp_path: Path) -> None:
    """XDG folders may be nested deeply."""
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        with protocol.address(folder / "a.sock") as name:
            server.bind(name)
        server.listen()
        with protocol.connect(folder / "a.sock", 5):
            server.accept()[0].close()
