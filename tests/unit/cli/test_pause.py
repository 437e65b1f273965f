"""Commands `pause` and `resume`, with a stand-in for the daemon and without one."""

import json

import pytest

from tests.unit.cli.stand_in import StandIn, log_on, run
from zonedrive.state.pause import load

LEFT = {"files": 2, "changes": 1, "bytes": 5}
NOTHING = {"files": 0, "changes": 0, "bytes": 0}


def test_the_daemon_gets_the_command(stand_in: StandIn) -> None:
    """The output has the amount of pending changes."""
    stand_in.answers["pause"] = {"left": LEFT, "uploading": 0}
    ended = run("pause")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == (
        "uploads are paused; 1 file (5 bytes) and 1 change (new folders, renames, removals) wait\n"
    )
    stand_in.answers["pause"] = {"left": NOTHING, "uploading": 0}
    assert run("pause").stdout == "uploads are paused; nothing is waiting\n"
    assert [each["seconds"] for each in stand_in.asked] == [None, None]


def test_an_upload_that_does_not_end_is_named(stand_in: StandIn) -> None:
    """`pause` ends although the request of an upload may hang."""
    stand_in.answers["pause"] = {"left": LEFT | {"files": 1, "changes": 0}, "uploading": 1}
    ended = run("pause")
    assert ended.returncode == 0
    assert ended.stdout == "uploads are paused; 1 file (5 bytes) waits\n"
    assert ended.stderr == "zonedrive: 1 upload is still ending\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2h", 7200), ("366d", 31_622_400)],
)
def test_a_pause_can_have_a_length(stand_in: StandIn, text: str, seconds: float) -> None:
    """The unit is optional; the answer names the end."""
    stand_in.answers["pause"] = {"left": NOTHING, "uploading": 0}
    ended = run("pause", "--for", text)
    assert ended.stdout.startswith("uploads are paused until 2")
    assert stand_in.asked[-1]["seconds"] == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "-5", "5 m", "m", "1e3", "nan", "367d", "١h"])
def test_a_wrong_length_is_wrong_usage(text: str) -> None:
    """One line says what to write."""
    ended = run("pause", f"--for={text}")
    assert ended.returncode == 2
    assert "use a time such as 90s, 30m, 2h or 1d" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_resume_says_what_goes_on(stand_in: StandIn) -> None:
    stand_in.answers["resume"] = {"was_paused": True, "left": LEFT | {"changes": 0}}
    assert run("resume").stdout == "uploads continue; 2 files (5 bytes) to send\n"
    stand_in.answers["resume"] = {"was_paused": True, "left": NOTHING}
    assert run("resume").stdout == "uploads continue\n"
    stand_in.answers["resume"] = {"was_paused": False, "left": LEFT}
    ended = run("resume")
    assert (ended.returncode, ended.stdout) == (0, "uploads were not paused\n")


def test_without_a_mount_the_pause_is_stored() -> None:
    """`status`, `--json` and the metrics show the pause; each account has its own."""
    paths, work = log_on(), log_on("work")
    ended = run("pause", "--account", "work", "--for", "2h")
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert ended.stdout.endswith("; nothing is waiting\n")
    assert load(paths.pause) is None
    stored = load(work.pause)
    assert stored is not None
    assert 7000 < stored.seconds_left <= 7200
    assert work.pause.stat().st_mode & 0o777 == 0o600
    found = json.loads(run("status", "--account", "work", "--json").stdout)
    assert (found["paused"], found["held"]) == (True, 0)
    assert found["paused_since"] < found["paused_until"]
    shown = run("status", "--account", "work", COLUMNS="200").stdout
    assert "; run: zonedrive resume --account work\n" in shown
    assert '{"paused": false' not in run("status", "--json").stdout
    assert json.loads(run("status", "--json").stdout)["paused"] is False
    values = [line for line in run("status", "--metrics").stdout.splitlines() if "_paused{" in line]
    assert [line.rpartition(" ")[2] for line in values] == ["0", "1"]
    assert run("resume", "--account", "work").stdout == "uploads continue at the next mount\n"
    assert run("resume", "--account", "work").stdout == "uploads were not paused\n"
    assert load(work.pause) is None


def test_a_damaged_database_does_not_prevent_a_pause() -> None:
    """The number of waiting files is then unknown."""
    paths = log_on()
    paths.database.write_bytes(b"no database" * 1000)
    ended = run("pause")
    assert ended.returncode == 0
    assert ended.stdout == "uploads are paused\n"
    assert "cannot be counted" in ended.stderr
    assert load(paths.pause) is not None
    assert run("resume").stdout == "uploads continue at the next mount\n"


def test_a_folder_that_cannot_be_written_is_named() -> None:
    """A folder in place of the file stands for any error of the disk, also for root."""
    paths = log_on()
    paths.pause.mkdir()
    (paths.pause / "inside").touch()
    for command in ("pause", "resume"):
        ended = run(command)
        assert ended.returncode == 1
        assert f"{paths.pause} cannot be changed" in ended.stderr
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_without_a_logon_there_is_nothing_to_pause(command: str) -> None:
    ended = run(command, "--account", "nobody")
    assert ended.returncode == 3
    assert "not logged on" in ended.stderr
