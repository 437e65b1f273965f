"""Log records in the journal's own format, received by a socket in journald's place."""

import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from zonedrive.daemon import journal, logs
from zonedrive.errors import Forbidden

FIELDS = {"ACCOUNT": "work", "MOUNTPOINT": "/home/me/Zones"}


class Journald:
    """Receiver of datagrams, as journald reads them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(os.fspath(path))
        self._socket.settimeout(30)

    def entry(self) -> dict[str, str]:
        """Return the fields of the next record."""
        return parsed(self._socket.recv(1 << 20))

    def close(self) -> None:
        """Remove the socket, as a stop of journald does."""
        self._socket.close()
        self.path.unlink(missing_ok=True)


def parsed(datagram: bytes) -> dict[str, str]:
    """Return the fields of a datagram in the format of the journal."""
    found = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, separator, value = line.partition(b"=")
        if not separator:
            (length,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest.startswith(b"\n")
            rest = rest[1:]
        found[name.decode()] = value.decode()
        datagram = rest
    return found


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[Journald]:
    """Yield a receiver."""
    receiver = Journald(tmp_path / "socket")
    yield receiver
    receiver.close()


@pytest.fixture
def log(journald: Journald) -> Iterator[logging.Logger]:
    """Yield a logger whose records go to the receiver."""
    logger = logging.getLogger("zonedrive.test_journal")
    handler = journal.JournalHandler(FIELDS, journald.path)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    logger.removeHandler(handler)
    logger.propagate = True
    handler.close()


def test_a_record_has_fields(log: logging.Logger, journald: Journald) -> None:
    """`journalctl` can select by account, mount point, level, inode and HTTP status."""
    refused = Forbidden("no", status=403, code="NO_ACCESS")
    log.warning("inode %d: refused: %s", 7, "no", extra={"error": refused})
    entry = journald.entry()
    assert (
        entry.items()
        >= {
            "MESSAGE": "inode 7: refused: no",
            **FIELDS,
            "PRIORITY": "4",
            "SYSLOG_IDENTIFIER": "zonedrive",
            "LOGGER": "zonedrive.test_journal",
            "CODE_FILE": __file__,
            "CODE_FUNC": "test_a_record_has_fields",
            "INODE": "7",
            "ERROR": "Forbidden",
            "HTTP_STATUS": "403",
            "API_ERROR": "NO_ACCESS",
        }.items()
    )


def test_errors_are_found_in_fields_and_tracebacks(log: logging.Logger, journald: Journald) -> None:
    """The errno and the HTTP status are separate fields."""
    log.info("%d of %d in inode %d: %s", 1, 2, 3, OSError(28, "full", "/home/me/secret.txt"))
    entry = journald.entry()
    assert (entry["ERRNO"], entry["INODE"], entry["ERROR"]) == ("28", "3", "OSError")
    try:
        raise Forbidden("no", status=403, code="not a word\nPRIORITY=0")
    except Forbidden:
        log.exception("a download failed")
    entry = journald.entry()
    assert entry["HTTP_STATUS"] == "403"
    assert "API_ERROR" not in entry
    assert entry["MESSAGE"].startswith("a download failed\nTraceback")
    assert entry["PRIORITY"] == "3"


def test_a_message_cannot_add_a_field(log: logging.Logger, journald: Journald) -> None:
    """A line break in the name of a file does not start a new field."""
    log.info("%s", "a\nPRIORITY=0\nHTTP_STATUS=200")
    entry = journald.entry()
    assert entry["MESSAGE"] == "a\nPRIORITY=0\nHTTP_STATUS=200"
    assert entry["PRIORITY"] == "6"
    assert "HTTP_STATUS" not in entry


def test_a_record_longer_than_a_datagram(
    log: logging.Logger, journald: Journald, capfd: pytest.CaptureFixture[str]
) -> None:
    """A long record goes to the stream, which has no fields."""
    text = "x" * (4 << 20)
    log.info("%s", text)
    assert capfd.readouterr().err == f"INFO {text}\n"
    log.info("short")
    assert journald.entry()["MESSAGE"] == "short"


def test_without_journald_records_go_to_stderr(
    log: logging.Logger, journald: Journald, capfd: pytest.CaptureFixture[str]
) -> None:
    """A restart of journald loses no record, and a record comes again as soon as it listens."""
    journald.close()
    log.warning("nobody %s", "listens")
    assert capfd.readouterr().err == "WARNING nobody listens\n"
    again = Journald(journald.path)
    log.warning("somebody listens")
    assert again.entry()["MESSAGE"] == "somebody listens"
    again.close()


def test_only_the_stream_of_the_journal_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that a service starts inherit the variable, but have another standard error."""
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        named = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert journal.is_journal(stream.fileno(), named)
        assert not journal.is_journal(stream.fileno(), {"JOURNAL_STREAM": "8:1"})
        assert not journal.is_journal(stream.fileno(), {})
        monkeypatch.setenv("JOURNAL_STREAM", named["JOURNAL_STREAM"])
    assert not journal.is_journal(1 << 20)


def test_the_daemon_logs_to_the_journal(
    journald: Journald, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Standard error is the journal's stream: one record with fields, one line, no time."""
    root = logging.getLogger()
    before, level, kept = root.handlers[:], root.level, os.dup(2)
    monkeypatch.setattr(journal.JournalHandler.__init__, "__defaults__", (journald.path,))
    with (tmp_path / "stream").open("w") as stream:
        os.dup2(stream.fileno(), 2)
        found = os.fstat(2)
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        try:
            logs.to_stderr(FIELDS)
            logging.getLogger("zonedrive.x").debug("details")
            logging.getLogger("zonedrive.x").warning("red \x1b[31m %s", "\n")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            for added in set(root.handlers) - set(before):
                added.close()
            root.handlers[:] = before
            root.setLevel(level)
            logging.captureWarnings(False)
    entry = journald.entry()
    assert entry["MESSAGE"].startswith("zonedrive.x: red ")
    assert not {"\x1b", "\n"} & set(entry["MESSAGE"])
    assert entry["ACCOUNT"] == "work"
    assert (tmp_path / "stream").read_text() == ""
