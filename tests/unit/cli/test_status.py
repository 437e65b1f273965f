"""Output of `status` and `sync` at a terminal and in a pipe, also after errors."""

import json
import os
import re
import signal
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.harness.terminal import Terminal
from tests.unit.cli.stand_in import DONE, STATUS, StandIn, command, daemon, log_on, run
from zonedrive import errors
from zonedrive.daemon import protocol

EVIL = "Zone/ev\x1b]0;pwn\x07il\x9b31m\u202egpj.exe"
EMPTY = {"pending": 0, "uploading": 0, "failed": 0, "conflicts": 0, "bytes": 0}
IDLE = STATUS | {"uploads": [], "outbox": EMPTY}


@dataclass
class Place:
    """Working directory and environment of a terminal."""

    folder: Path = field(default_factory=Path.cwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


def at_terminal(*arguments: str, size: tuple[int, int] = (80, 24), **environment: str) -> Terminal:
    """Run the program at a terminal of the given columns and lines."""
    place = Place()
    place.environment |= {"TERM": "xterm-256color", **environment}
    return Terminal(place, *arguments, size=size)


def failed(causes: dict[str, int], **outbox: int) -> dict[str, Any]:
    """Return a status with the given number of failed changes for each cause."""
    every = {"failed": sum(causes.values()), "bytes": 9, **outbox}
    return STATUS | {"outbox": EMPTY | every | {"causes": causes}, "uploads": []}


def waiting(number: int, **every: object) -> dict[str, Any]:
    """Return a status with the given number of waiting files."""
    upload = {"state": "pending", "size": 1000, "sent": 0, "error": None, **every}
    state = str(upload["state"])
    return STATUS | {
        "outbox": EMPTY | {state: number, "bytes": 1000 * number},
        "uploads": [{"path": f"Zone/{one}.txt", **upload} for one in range(number)],
    }


@pytest.mark.parametrize(
    ("found", "first"),
    [
        (IDLE, "everything is on the service"),
        (waiting(1), "1 file (1000 bytes) is only on this machine"),
        (STATUS, "2 files (3.3 MiB) are only on this machine"),
        (failed({"refused": 2}),
         "2 files (9 bytes) are only on this machine, refused by the service"),
        (failed({"local": 2}),
         "2 files (9 bytes) are only on this machine, held up by a problem on this machine"),
        (failed({"refused": 1}, pending=1),
         "2 files (9 bytes) are only on this machine, 1 of them refused by the service"),
        (failed({}, failed=1, pending=2),
         "3 files (9 bytes) are only on this machine, 1 of them failed"),
        (IDLE | {"mountpoint": None, "state": "offline"}, "everything is on the service"),
        (waiting(1) | {"paused": True},
         "1 file (1000 bytes) is only on this machine, uploads are paused"),
        (failed({"refused": 1}, pending=1) | {"paused": True},
         "2 files (9 bytes) are only on this machine, 1 of them refused by the service"),
        (IDLE | {"paused": True}, "everything is on the service"),
        (IDLE | {"lost": 1}, "1 file in lost+found is only on this machine"),
    ],
)  # fmt: skip
def test_the_first_line_says_if_data_is_safe(
    stand_in: StandIn, found: dict[str, Any], first: str
) -> None:
    """The first line alone shows if everything is on the service."""
    stand_in.answers["status"] = found
    assert run("status").stdout.splitlines()[0] == first


def test_failed_uploads_are_shown_with_their_error(stand_in: StandIn) -> None:
    """The error is shown completely, and above the waiting uploads."""
    remedy = "you have no right to change this file; ask the manager of the zone for it"
    failed = waiting(1, state="failed", error=remedy)
    stand_in.answers["status"] = failed | {
        "uploads": STATUS["uploads"] + failed["uploads"],
        "outbox": STATUS["outbox"] | {"failed": 1, "conflicts": 2},
    }
    shown = run("status", COLUMNS="200").stdout
    assert f"  Zone/0.txt: {remedy}\n" in shown
    assert shown.index(remedy) < shown.index("Zone/a.txt")
    assert "conflicts  2; run: zonedrive conflicts\n" in shown


@pytest.mark.parametrize("state", ["offline", "logon-required"])
def test_the_reason_why_the_service_is_unreachable(stand_in: StandIn, state: str) -> None:
    """The text has the daemon's reason and, for a logon, the complete command."""
    remedy = f"zonedrive logon {STATUS['base_url']} --username alice --session-only"
    why = {"reason": "the session has ended", "remedy": remedy}
    stand_in.answers["status"] = STATUS | {"state": state} | why
    shown = run("status", COLUMNS="200").stdout
    assert "why: the session has ended\n" in shown
    if state == "logon-required":
        assert shown.splitlines()[0].startswith("you are logged off")
        assert shown.splitlines()[1] == f"run: {remedy}"
        assert shown.count("logged off") == 1


def test_a_reason_is_given_once(stand_in: StandIn) -> None:
    """The reason is shown once, although each upload waits for it."""
    waits = waiting(2, state="pending", error="the proxy refused the connection")
    stand_in.answers["status"] = waits | {
        "state": "offline",
        "reason": waits["uploads"][0]["error"],
    }
    assert run("status", COLUMNS="200").stdout.count("the proxy refused") == 1


def test_a_pause_is_shown_with_the_command_to_end_it(stand_in: StandIn) -> None:
    """The line has the begin and the end, in the local time zone."""
    stand_in.answers["status"] = STATUS | {
        "paused": True,
        "paused_since": "2026-11-23T14:00:00+00:00",
        "paused_until": "2026-11-23T16:30:00+00:00",
    }
    assert (
        "uploads are paused since 2026-11-23 14:00:00 until 2026-11-23 16:30:00;"
        " run: zonedrive resume\n"
    ) in run("status", COLUMNS="200", TZ="UTC").stdout


def test_ten_thousand_waiting_files_are_a_few_lines(stand_in: StandIn) -> None:
    """The first uploads and the total are shown; the daemon is asked for no more than these."""
    stand_in.answers["status"] = waiting(10_000)
    lines = run("status").stdout.splitlines()
    assert len(lines) < 24
    assert lines[0].startswith("10000 files")
    assert "10 of 10000 are shown; all: zonedrive status --json" in lines
    assert stand_in.asked[-1]["most"] == 10
    assert len(json.loads(run("status", "--json").stdout)["uploads"]) == 10_000
    assert "most" not in stand_in.asked[-1]


@pytest.mark.parametrize("columns", [40, 80])
def test_the_live_view_fits_the_terminal_and_leaves_it_as_it_was(
    stand_in: StandIn, columns: int
) -> None:
    """The view is not larger than the terminal, and Ctrl-C ends it without a message."""
    stand_in.answers["status"] = waiting(100)
    terminal = at_terminal("status", "--watch", size=(columns, 20))
    terminal.until("of 100 are shown")
    terminal.until(".txt")
    frame = terminal.shown.rpartition("\x1b[H")[2]
    assert terminal.shown.startswith("\x1b[?1049h")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).split("\r\n")
    assert len(lines) <= 20
    assert max(len(line) for line in lines) <= columns
    terminal.shown = terminal.shown.rpartition("\x1b[H")[0]
    stand_in.answers["status"] = IDLE
    terminal.until("everything is on the service")
    assert terminal.interrupt() == 130
    assert terminal.is_as_before()
    assert "Traceback" not in terminal.shown
    terminal.shown = terminal.shown.rpartition("\x1b[?1049l")[2]
    assert terminal.text().strip() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_live_view_that_is_ended_leaves_the_terminal_as_it_was(
    stand_in: StandIn, number: signal.Signals
) -> None:
    """A signal restores the cursor and the screen."""
    terminal = at_terminal("status", "--watch")
    terminal.until("Zone/a.txt")
    terminal.send(number)
    assert terminal.leave() == 128 + number
    assert "\x1b[?1049l" in terminal.shown
    assert terminal.is_as_before()


def test_watching_goes_on_while_the_mount_is_away() -> None:
    """The view shows the unmounted state, and holds no lock that a new daemon needs."""
    paths = log_on()
    with ExitStack() as stack:
        stand_in = stack.enter_context(daemon(paths, Path("/nowhere")))
        terminal = at_terminal("status", "--watch")
        terminal.until("Zone/a.txt")
        stand_in.answers["status"] = errors.MountEnded("the mount has ended")
        terminal.until("not mounted; run: zonedrive mount DIR")
        stack.close()
        stand_in = stack.enter_context(daemon(paths, Path("/nowhere")))
        terminal.until("mounted at /proc")
        paths.account_file.unlink()
        paths.account_copy.unlink()
        stack.close()
        assert terminal.leave() == 3
    assert terminal.is_as_before()
    assert terminal.text().rstrip().endswith("is not logged on; run zonedrive logon URL")


def test_a_watching_program_reads_objects_and_may_leave(stand_in: StandIn) -> None:
    """Each change is one line; a closed pipe ends the command without a message."""
    with subprocess.Popen(
        command("status", "--watch", "--json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    ) as watching:  # fmt: skip
        assert watching.stdout is not None and watching.stderr is not None
        assert json.loads(watching.stdout.readline()) == STATUS
        stand_in.answers["status"] = IDLE
        assert json.loads(watching.stdout.readline()) == IDLE
        watching.stdout.close()
        assert watching.wait(60) == 0
        assert watching.stderr.read() == ""


@pytest.mark.parametrize("arguments", [["status"], ["status", "--watch"], ["sync"]])
def test_a_dumb_terminal_gets_plain_lines(stand_in: StandIn, arguments: list[str]) -> None:
    """The output has no escape sequences, whatever a name contains."""
    stand_in.answers["status"] = waiting(1, path=EVIL, state="failed", error="refused")
    stand_in.answers["sync"] = DONE | {"exit": 1, "failed": [{"path": EVIL, "error": "refused"}]}
    terminal = at_terminal(*arguments, TERM="dumb")
    terminal.until("refused")
    ended = terminal.interrupt() if "--watch" in arguments else terminal.leave()
    assert ended == {"status": 0, "--watch": 130, "sync": 1}[arguments[-1]]
    assert "\x1b" not in terminal.shown
    assert "\u202e" not in terminal.shown


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_can_be_turned_off(
    stand_in: StandIn, variables: dict[str, Any], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures are red, unless NO_COLOR is set."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    stand_in.answers["status"] = waiting(1, path=EVIL, state="failed", error="refused")
    terminal = at_terminal("status", **variables)
    assert terminal.leave() == 0
    assert bool(re.search(r"\x1b\[(\d+;)*3\d", terminal.shown)) == coloured
    assert r"Zone/ev\x1b]0;pwn\x07il\x9b31m\u202egpj.exe: refused" in terminal.text()


@pytest.mark.parametrize("columns", [40, 80])
def test_a_sync_shows_how_far_it_is_on_one_line(stand_in: StandIn, columns: int) -> None:
    """The line has a bar; Ctrl-C ends the wait and removes the line."""
    stand_in.answers.pop("sync")
    terminal = at_terminal("sync", size=(columns, 20))
    terminal.until("2 files (5 bytes) left")
    drawn = terminal.shown.rpartition("\x1b[K")[2]
    assert re.fullmatch(r"\[-+\] 2 files \(5 bytes\) left", drawn)
    assert len(drawn) < columns
    assert terminal.interrupt() == 130
    assert terminal.is_as_before()
    assert terminal.shown.rpartition("\r\x1b[K")[2].strip() == ""


def test_the_end_of_the_mount_during_a_sync() -> None:
    """Without pending changes, the end of the mount is no error."""
    paths = log_on()
    with ExitStack() as stack:
        stand_in = stack.enter_context(daemon(paths, Path("/nowhere")))
        stand_in.answers.pop("sync")
        terminal = at_terminal("sync")
        terminal.until("2 files")
        stack.close()
        assert terminal.leave() == 0
    assert terminal.shown.endswith("\r\x1b[K")


def test_a_socket_of_another_user_is_not_spoken_to(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other user receives nothing, and the error names the user."""
    path = protocol.connect(log_on().control, 5)
    path.close()
    monkeypatch.setattr(protocol, "peer", lambda connection: (0, 2_000_000_017))
    with pytest.raises(errors.ZonedriveError, match="a socket of user 2000000017, not of yours"):
        protocol.connect(log_on().control, 5)
    assert stand_in.asked == []
