"""The command line: help, exit codes, and one line for each error."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.unit.cli.stand_in import ZONES, StandIn, command, log_on, run
from zonedrive import __version__, config, errors, paths
from zonedrive.cli import error_messages
from zonedrive.cli import logon as logon_module
from zonedrive.cli import main as main_module
from zonedrive.cli.error_messages import exit_code
from zonedrive.cli.logon import Terminal
from zonedrive.cli.main import COMMANDS, _sentence
from zonedrive.errors import ZonedriveError

HEAVY = ("pyfuse3", "httpx", "trio", "rich", "cryptography", "keyring", "sqlite3")


def _all_kinds(kind: type[ZonedriveError] = ZonedriveError) -> list[type[ZonedriveError]]:
    return [kind, *(below for each in kind.__subclasses__() for below in _all_kinds(each))]


def test_the_version_is_printed() -> None:
    """`--version` prints name and version, in a process as a person starts it."""
    said = subprocess.run(command("--version"), capture_output=True, encoding="utf-8", check=True)
    assert said.stdout == f"zonedrive {__version__}\n"


def test_every_command_has_a_help(home: Path) -> None:
    """`--help` of each command exits with 0 and needs no account."""
    listed = run("--help")
    assert listed.returncode == 0
    for name in COMMANDS:
        assert f"  {name} " in listed.stdout
        shown = run(name, "--help")
        assert (shown.returncode, shown.stderr) == (0, ""), name
        assert shown.stdout.startswith(f"Usage: zonedrive {name} ")
        assert "--help" in shown.stdout
    assert not any(home.iterdir())


def test_help_is_quick() -> None:
    """The list of commands, the version and most help texts import no slow module."""
    text = (
        "import sys\nfrom zonedrive.cli.main import COMMANDS, program\n"
        "import zonedrive.cli.status, zonedrive.cli.mount, "
        "zonedrive.cli.files, zonedrive.cli.sandbox, zonedrive.cli.tokens, "
        "zonedrive.cli.organization, zonedrive.cli.credentials, zonedrive.cli.sync\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, encoding="utf-8", check=True
    )
    assert said.stdout == "[]\n"


COMMAND_WORDS = {"groups": 2, "tokens": 2}


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["mount"],
        ["mount", "a", "b"],
        ["status", "--nonsense"],
        ["unmount", "--timeout", "-1", "x"],
        ["unmount", "--timeout", "nan", "x"],
        ["sync", "--timeout", "1e400"],
        ["logon", "https://x", "--username", "al\udcff"],
        ["logon", "https://x", "--code", "al\udcff"],
        ["logon", "https://x", "--idp", "al\udcff"],
        ["new-credentials", "https://x", "--username", "al\udcff"],
        ["zones", "--account", "Not A Name"],
        ["restore"],
        ["send"],
        ["sandbox"],
        ["trash", "--purge"],
        ["trash", "--purge", "x"],
        ["groups", "create", ""],
        ["groups", "create", "n\udcff"],
        ["groups", "create", "n", "--member", "\udcff=Access"],
        ["groups", "update", ""],
        ["groups", "delete", "..", "--yes"],
        ["groups", "member", "g", " ", "Access"],
        ["groups", "member", "g", "m", "Add"],
        ["tokens", "create", "n\udcff", "--password-stdin"],
        ["tokens", "create", "n", "--client", "\udcff", "--password-stdin"],
        ["tokens", "revoke", ""],
        ["tokens", "revoke", "."],
    ],
)
def test_a_wrong_use_is_one_line_and_exits_with_2(arguments: list[str]) -> None:
    """The line names the mistake and the command's help."""
    failed = run(*arguments)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.count("\n") == 1
    assert failed.stderr.startswith("zonedrive: ")
    command = " ".join(["zonedrive", *arguments[: COMMAND_WORDS.get(arguments[0], 1)]])
    assert f"see '{command if arguments != ['nonsense'] else 'zonedrive'} --help'" in failed.stderr


def test_a_name_at_the_beginning_of_a_message_stays_as_it_is() -> None:
    """The first word of a sentence becomes lower case, a name does not."""
    failed = run("groups", "create", "g", "--member", "Bob=Access", "--member", "Bob=Manage")
    assert "'Bob'" in failed.stderr
    assert _sentence("NAME is empty.") == "NAME is empty"
    assert _sentence("Bob@acme.example is there.") == "Bob@acme.example is there"
    assert _sentence("There is no terminal.") == "there is no terminal"


def test_exit_codes_follow_the_kind_of_error() -> None:
    """2: wrong usage; 3: no logon, or it is refused; 4: no service; 1: all other errors."""
    for kind in _all_kinds():
        expected = 1
        if issubclass(kind, errors.NotLoggedOn):
            expected = 3
        elif issubclass(kind, errors.Unreachable):
            expected = 4
        elif issubclass(kind, errors.BadOption):
            expected = 2
        if kind.__module__ == "zonedrive.errors":
            assert exit_code(kind("x")) == expected, kind


@pytest.mark.parametrize(
    "arguments",
    [
        ["mount", "."],
        ["unmount", "."],
        ["zones"],
        ["status"],
        ["sync"],
        ["sync", "x"],
        ["conflicts"],
        ["trash"],
        ["restore", "x"],
        ["versions", "x"],
    ],
)
def test_commands_without_a_logon_exit_with_3(arguments: list[str], home: Path) -> None:
    """Before the first logon every command names the remedy."""
    failed = run(*arguments)
    assert failed.returncode == 3
    assert failed.stderr.count("\n") == 1
    assert "zonedrive logon" in failed.stderr


def test_a_sync_without_a_mount() -> None:
    """The error names the remedy if nothing is mounted."""
    log_on()
    failed = run("sync")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == (
        "zonedrive: the account 'default' is not mounted; run 'zonedrive mount DIR'\n"
    )


def test_ctrl_c_is_quiet(stand_in: StandIn) -> None:
    """Ctrl-C during a wait prints no traceback, and the exit code is 130."""
    del stand_in.answers["sync"]
    with subprocess.Popen(
        command("sync"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as waiting:
        assert stand_in.waiting.wait(60)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out, err.strip()) == (130, "", "")


def test_a_closed_pipe_is_no_error(stand_in: StandIn) -> None:
    """`zonedrive zones | head -1` is quiet."""
    stand_in.answers["zones"] = {"zones": ZONES * 3000}
    with subprocess.Popen(
        command("zones", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as writing:
        assert writing.stdout is not None and writing.stderr is not None
        writing.stdout.read(1)
        writing.stdout.close()
        assert writing.stderr.read() == b""
    assert writing.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["--version"], 0), (["sync", "--help"], 0), (["zones"], 0), ([], 2)],
)
def test_a_reader_that_reads_nothing_is_no_error(
    stand_in: StandIn, arguments: list[str], code: int
) -> None:
    """`zonedrive --help | true` is quiet, and the exit code does not depend on the reader."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*arguments), stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, b"")


def closed(streams: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the program with these streams closed, as in `zonedrive … <&- >&-`."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {streams}', "sh", *command(*arguments)],
        capture_output=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("streams", ["<&-", ">&-", "<&- >&-"])
def test_closed_streams_are_no_obstacle(streams: str, home: Path) -> None:
    """Commands of a script without stdin and stdout print at most one line and do not hang."""
    log_on(url="https://127.0.0.1:1")
    for arguments, code, said in ((["status"], 0, ""), (["mount", "missing"], 1, "not exist")):
        done = closed(streams, *arguments)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") == (1 if said else 0), done.stderr
        assert said in done.stderr


def test_a_version_is_not_written_to_a_closed_stream(stand_in: StandIn) -> None:
    """`versions --get` with a closed stdout is wrong usage; a list of versions is not needed."""
    for arguments in (("--get", "1"), ("--get", "1", "-o", "-")):
        done = closed(">&-", "versions", "a.txt", *arguments)
        assert done.returncode == 2
        assert "standard output is closed" in done.stderr.lower()
    assert stand_in.asked == []


def test_an_address_is_not_printed_on_a_closed_stream(home: Path) -> None:
    """`ui --no-browser` with a closed stdout is wrong usage: nobody could open the window."""
    done = closed(">&-", "ui", "--no-browser")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard output is closed" in done.stderr.lower()


def test_no_stream_at_all_is_no_obstacle(home: Path) -> None:
    """Commands do their work, and find files, with all of their standard streams closed."""
    log_on(url="https://127.0.0.1:1")
    (home / "m").mkdir()
    assert closed("<&- >&- 2>&-", "status").returncode == 0
    done = closed("<&- >&-", "mount", "m", "-o", "profile=/nowhere.toml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "/nowhere.toml" in done.stderr


def test_a_logon_with_closed_input() -> None:
    """A missing password and a missing terminal are each reported in one line."""
    failed = closed("<&-", "logon", "https://127.0.0.1:1")
    assert failed.returncode == 4 and failed.stderr.count("\n") == 1
    terminal = Terminal(password_stdin=True, code=None)
    with open(os.devnull) as nothing, pytest.MonkeyPatch.context() as patch:  # noqa: PTH123
        patch.setattr("sys.stdin", nothing)
        with pytest.raises(errors.BadOption, match="standard input is empty"):
            terminal.password()
        for ask in (_username, Terminal(password_stdin=False, code=None).password):
            with pytest.raises(click.UsageError, match="no terminal"):
                ask()


def _username() -> None:
    logon_module._prompt("User name")


def complaint(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command prints that ends with an error."""

    def broken(*_: object, **__: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(main_module.program, "main", broken)
        main_module.main(["zones"])
    assert ended.value.code == 1
    return capsys.readouterr().err


def test_an_internal_error_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No traceback is printed; the details go to a file, without values that could be secrets."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = complaint(KeyError("hunter2"), capsys)
    assert said.count("\n") == 1 and "Traceback" not in said and "hunter2" not in said
    kept = Path(said.strip().rpartition("see ")[2])
    assert "KeyError" in kept.read_text() and "hunter2" not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts can rely on one line; an error of the system names the file."""
    several = ZonedriveError("first\n  second", remedy="third\n")
    assert complaint(several, capsys) == "zonedrive: first second; third\n"
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/nothing")
    said = "zonedrive: /proc/nothing: No such file or directory\n"
    assert complaint(missing, capsys) == said


@pytest.mark.parametrize("descriptor", ["abc", "-1", "77", "99999999999999999999"])
def test_a_wrong_descriptor_for_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], descriptor: str
) -> None:
    """The error is one line if the variable in the environment is not an open descriptor."""
    monkeypatch.setenv(error_messages.DESCRIPTOR, descriptor)
    assert complaint(ZonedriveError("it failed"), capsys) == "zonedrive: it failed\n"


def test_an_unforeseen_error_without_room_for_its_details(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is still one line if no file can be written."""

    def full(**_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    said = error_messages.line(RuntimeError("s3cret"))
    assert said == f"an internal error in zonedrive (RuntimeError); {errors.REPORT}"


@pytest.mark.parametrize("state", ["missing", "an account", "unreadable"])
@pytest.mark.parametrize(
    ("number", "here", "elsewhere"),
    [
        (errno.EACCES, "make it writable", "make it writable, or set XDG_STATE_HOME, XDG_CACHE_"),
        (errno.ENOLCK, "move {} to a folder on a disk", "set XDG_STATE_HOME to a folder on a disk"),
    ],
)
def test_no_remedy_leaves_an_account_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch, state: str, number: int, here: str, elsewhere: str
) -> None:
    """Another state folder is a remedy only before the first logon."""
    folder, iterdir = paths.state_dir(), Path.iterdir

    def closed(path: Path) -> Iterator[Path]:
        if path == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return iterdir(path)

    if state == "an account":
        log_on("work")
    elif state == "unreadable":
        folder.mkdir(parents=True)
        monkeypatch.setattr(Path, "iterdir", closed)
    _, remedy = error_messages.parts(OSError(number, os.strerror(number), str(folder / "work")))
    expected = elsewhere if state == "missing" else here.format(folder)
    assert remedy.startswith(expected)
    assert state == "missing" or number != errno.EACCES or remedy == here


def test_an_error_without_a_home_folder_has_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may have a user without a home folder."""

    def home() -> Path:
        raise errors.NoHomeDirectory("there is none")

    monkeypatch.setattr(paths, "home", home)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    text, _ = error_messages.parts(OSError(errno.EOPNOTSUPP, "not supported", "/mnt/a"))
    assert text


def test_a_folder_of_a_policy_is_corrected_by_the_administrator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG variables have no effect on a folder that a policy sets."""

    def remedy(path: Path) -> str:
        try:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        except OSError as denied:
            return error_messages.parts(denied)[1]

    monkeypatch.setattr(paths, "policy_folders", lambda: {"state_dir": tmp_path})
    policy: dict[str, object] = {"state_dir": str(tmp_path)}
    monkeypatch.setattr(config, "organization", lambda account: config.Organization(policy=policy))
    monkeypatch.setattr(paths, "own_subfolder", lambda folder: folder / "0")
    asked = "ask the administrator of this computer to correct the policy state_dir"
    assert remedy(tmp_path / "0") == asked
    assert "XDG_STATE_HOME" in remedy(tmp_path.parent)
