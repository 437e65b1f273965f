"""`zonedrive logon` and `zonedrive logoff` as people and scripts use them, at a real service."""

import contextlib
import io
import json
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyotp
import pytest

from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually
from zonedrive.cli.logoff import _refusal
from zonedrive.cli.logon import Terminal as Script
from zonedrive.cli.main import main
from zonedrive.db import Database
from zonedrive.logon.account_data import Backlog
from zonedrive.logon.account_lock import locked
from zonedrive.logon.bearer_auth import load_bearer, save_bearer
from zonedrive.logon.secrets import FileStore
from zonedrive.paths import AccountPaths
from zonedrive.state.schema import SCHEMAS

ALICE = f"alice@{world.DOMAIN}"
PASSWORD = world.PASSWORDS["alice"]
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


class Here:
    """Machine whose commands run in this process, which saves their start."""

    def __init__(self, machine: Machine, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.state, self.cache = machine.folder, machine.state, machine.cache
        self._patch = patch
        for name, value in machine.environment.items():
            if name.startswith("XDG_"):
                patch.setenv(name, value)

    def run(self, *arguments: str | Path, text: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command like Machine.run."""
        out, err = io.StringIO(), io.StringIO()
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main([str(one) for one in arguments])
            except SystemExit as end:
                code = end.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def done(self, *arguments: str) -> str:
        """Run a command like Machine.done."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Return a machine with private folders, not logged on."""
    return Here(machine, monkeypatch)


def logon(
    machine: Machine | Here,
    deployment: Deployment,
    *more: str,
    text: str = f"{PASSWORD}\n",
    username: str = ALICE,
    url: str = "",
    ca_file: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Log on as a script does."""
    return machine.run(
        "logon", url or deployment.base_url, "--username", username, "--password-stdin",
        "--ca-file", ca_file or deployment.ca_file, *more, text=text,
    )  # fmt: skip


def one_line(ended: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """Check that the command failed with this exit code, and one line that contains the words."""
    assert ended.returncode == code, ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    for word in words:
        assert word in lines[0]
    assert PASSWORD not in ended.stderr + ended.stdout


@contextlib.contextmanager
def organization(table: str) -> Iterator[Deployment]:
    """Yield a sandbox with other rules, whose users have one-time codes."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    file = world.write(folder, zones=1, organization=table)
    text = file.read_text().replace("[[users]]\n", f'[[users]]\notp_secret = "{SECRET}"\n')
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world, "write", lambda *_, **__: file)
            file.write_text(text)
            deployment = Deployment(folder)
        try:
            yield deployment
        finally:
            deployment.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_script_logs_on_and_off(machine: Machine, deployment: Deployment) -> None:
    """The stored data are private; after the logoff none are left."""
    ended = logon(machine, deployment, "--profile", "sandbox")
    assert ended.returncode == 0, ended.stderr
    assert deployment.base_url in ended.stdout
    assert ALICE in ended.stdout
    assert "secrets.json" in ended.stderr
    account = json.loads((machine.state / "account.json").read_text())
    assert account["profile"] == "sandbox"
    assert account["organization"] == "Acme"
    for file in machine.folder.rglob("*"):
        if file.is_file():
            assert file.stat().st_mode & 0o077 == 0
            assert PASSWORD.encode() not in file.read_bytes()
    zones = json.loads(machine.done("zones", "--json"))
    assert len(zones) == world.ZONES + 1
    assert "Zone 01" in {zone["name"] for zone in zones}
    machine.done("logoff")
    assert not machine.state.exists()
    assert not machine.cache.exists()
    one_line(machine.run("zones"), 3, "not logged on")
    one_line(machine.run("logoff"), 3, "not logged on")


@pytest.mark.parametrize("username", [ALICE, "nobody@nowhere.example"])
def test_a_wrong_password(here: Here, deployment: Deployment, username: str) -> None:
    """One attempt, exit code 3, one line, and no stored data."""
    deployment.tell({"stats": "reset"})
    ended = logon(here, deployment, text="wrong\n", username=username)
    one_line(ended, 3, "unknown user or wrong password")
    assert deployment.stats()["requests"]["POST /api/access/logon"] == 1
    assert not here.state.exists()


def test_a_password_of_any_characters(here: Here, deployment: Deployment) -> None:
    """Spaces and accents are part of the password; the end of the line is not."""
    for end in ("\n", "\r\n", "", "\nsecond line\n"):
        text = f"{world.PASSWORDS['carol']}{end}"
        ended = logon(here, deployment, text=text, username=f"carol@{world.DOMAIN}")
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("text", ["", "\n", "x" * 5000 + "\n"])
def test_no_password(here: Here, deployment: Deployment, text: str) -> None:
    """Without a password no request is sent."""
    one_line(logon(here, deployment, text=text), 2)


def test_plain_http(here: Here, deployment: Deployment) -> None:
    """Plain HTTP is refused before any request."""
    url = deployment.base_url.replace("https", "http")
    one_line(logon(here, deployment, url=url), 2, "plain HTTP")


def test_a_host_that_does_not_answer(here: Here, deployment: Deployment) -> None:
    """Exit code 4, and the line names the host and the cause."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        port = deaf.getsockname()[1]
        host = f"127.0.0.1:{port}"
        one_line(logon(here, deployment, url=f"https://{host}"), 4, host, "refused")
    one_line(logon(here, deployment, url="https://zones.invalid"), 4, "zones.invalid")


def test_a_bad_profile(here: Here, deployment: Deployment, tmp_path: Path) -> None:
    """A bad profile is refused with its line, before the password is read."""
    (tmp_path / "p.toml").write_text('[delete]\nmethod = "DELETE"\npath = "https://evil/{entry}"\n')
    ended = logon(here, deployment, "--profile", str(tmp_path / "p.toml"))
    one_line(ended, 1, "p.toml, line 3", "another host")
    one_line(logon(here, deployment, "--profile", "nothing"), 2, "published or sandbox")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--password-stdin"],
        ["--idp", "corp", "--personal-id", "eid"],
        ["--idp", "corp", "--username", "a", "--password-stdin"],
        ["--username", "a", "--password-stdin", "--session-only", "--token-days", "5"],
        ["--username", "a", "--password-stdin", "--token-days", "0"],
        ["--username", "a", "--password-stdin", "--account", "No Name"],
        ["--token-stdin"],
        ["--username", "a", "--token-stdin", "--password-stdin"],
        ["--username", "a", "--token-stdin", "--code", "-"],
        ["--username", "a", "--token-stdin", "--session-only"],
        ["--username", "a", "--token-stdin", "--token-days", "5"],
        ["--username", "a", "--token-stdin", "--save-password"],
        ["--username", "a", "--token-stdin", "--idp", "corp"],
    ],
)
def test_wrong_usage(here: Here, arguments: list[str]) -> None:
    one_line(here.run("logon", "https://zones.invalid", *arguments), 2, "--help")


def test_the_session_alone(here: Here, deployment: Deployment) -> None:
    """The session is used until the service ends it; a new logon repairs that."""
    assert logon(here, deployment, "--session-only").returncode == 0
    here.done("zones")
    deployment.tell({"expire_sessions": True})
    one_line(here.run("zones"), 3, "zonedrive logon")
    assert logon(here, deployment).returncode == 0
    here.done("zones")
    deployment.tell({"expire_sessions": True})
    here.done("zones")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"status": 500, "error": "FAILED"}, 1),
        ({"status": 404}, 1),
        ({"status": 403, "error": "UNSUPPORTED_VERSION"}, 1),
        ({"status": 401, "error": "TEMPORARY_BLOCKED"}, 3),
        ({"drop_reply": True}, 4),
    ],
)
def test_a_service_in_trouble(
    here: Here, deployment: Deployment, fault: dict[str, object], code: int
) -> None:
    """Each failure of the logon gives one line and the matching exit code."""
    with deployment.faulty(path="^/api/access/logon$", **fault):
        one_line(logon(here, deployment), code, "logging on")
    assert not here.state.exists()


@pytest.mark.parametrize("fault", [{"status": 401}, {"status": 409, "error": "ALREADY_EXISTS"}])
def test_an_unexpected_answer_to_the_first_request(
    here: Here, deployment: Deployment, fault: dict[str, object]
) -> None:
    """The error recommends neither a logon nor another name."""
    with deployment.faulty(path="^/api/access/authorizationrequirements", **fault):
        ended = logon(here, deployment)
    one_line(ended, 1, "like a deployment", f"HTTP {fault['status']}", "check the base URL")
    assert "zonedrive logon" not in ended.stderr and "taken" not in ended.stderr


def test_a_code_from_a_device(here: Here) -> None:
    """A script gives the code beforehand; without one, the line says so."""
    with organization('otp = "TOTP"') as deployment:
        one_line(logon(here, deployment), 3, "--code")
        one_line(logon(here, deployment, "--code", "000000"), 3, "wrong one-time code")
        typed = f"{PASSWORD}\n{pyotp.TOTP(SECRET).now()}\n"
        one_line(logon(here, deployment, "--code", "-"), 2, "one-time code")
        ended = logon(here, deployment, "--code", "-", text=typed)
        assert ended.returncode == 0, ended.stderr
        here.done("zones")


def test_a_code_from_the_mail_of_an_earlier_logon(machine: Machine) -> None:
    """The code is sent with the password, because a password alone makes the code invalid."""
    with organization('otp = "ServiceMail"') as deployment:
        one_line(logon(machine, deployment), 3, "sent to you by mail", "--code -")
        typed = f"{PASSWORD}\n{deployment.tell({'mail': ALICE})['code']}\n"
        ended = logon(machine, deployment, "--code", "-", text=typed)
        assert ended.returncode == 0, ended.stderr
        machine.done("zones")
        one_line(logon(machine, deployment, "--code", "-"), 2, "no line with the one-time code")


def test_a_code_that_a_script_has_later(machine: Machine) -> None:
    """A code that is mailed after the password is read from standard input only then."""
    with organization('otp = "ServiceMail"') as deployment:
        words = ["--username", ALICE, "--password-stdin", "--code", "-", "--session-only"]
        logging_on = subprocess.Popen(
            [COMMAND, "logon", deployment.base_url, "--ca-file", deployment.ca_file, *words],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=machine.environment,
        )  # fmt: skip
        assert logging_on.stdin is not None
        logging_on.stdin.write(f"{PASSWORD}\n")
        logging_on.stdin.flush()
        mailed = eventually(
            lambda: deployment.tell({"mail": ALICE}).get("code"), what="a code is mailed"
        )
        said = logging_on.communicate(f"{mailed}\n", timeout=60)[1]
        assert logging_on.returncode == 0, said
        machine.done("zones")


@pytest.fixture
def token(here: Here, deployment: Deployment) -> str:
    """Return a token that was made on another machine, for a program."""
    options = ("--account", "elsewhere", "--profile", "sandbox")
    assert logon(here, deployment, *options).returncode == 0
    words = ("tokens", "create", "ci", "--account", "elsewhere", "--password-stdin")
    made = here.run(*words, text=f"{PASSWORD}\n")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def with_token(here: Here, deployment: Deployment, text: str) -> "subprocess.CompletedProcess[str]":
    """Log on with a token, as a container does."""
    return here.run(
        "logon", deployment.base_url, "--username", ALICE, "--token-stdin",
        "--ca-file", deployment.ca_file, text=text,
    )  # fmt: skip


def test_a_token_from_a_secret(here: Here, deployment: Deployment, token: str) -> None:
    """The token is used until the logoff, which leaves it valid for others."""
    ended = with_token(here, deployment, f"{token}\r\n")
    assert ended.returncode == 0, ended.stderr
    assert f"as {ALICE} (by token)" in ended.stdout
    here.done("zones")
    left = here.run("logoff")
    assert left.returncode == 0
    assert "the token remains valid at the service" in left.stderr
    again = with_token(here, deployment, token)
    assert again.returncode == 0, again.stderr
    assert token not in ended.stdout + ended.stderr + left.stderr + again.stderr


def test_a_logoff_with_a_token_that_was_revoked(
    here: Here, deployment: Deployment, token: str
) -> None:
    """The logoff does not say that the token remains valid."""
    assert with_token(here, deployment, token).returncode == 0
    listed = json.loads(here.done("tokens", "list", "--json", "--account", "elsewhere"))
    for each in listed:
        if each["name"] == "ci":
            here.done("tokens", "revoke", str(each["id"]), "--account", "elsewhere")
    left = here.run("logoff")
    assert (left.returncode, left.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("wrong\n", 3, "does not accept the token"),
        ("", 2, "--token-stdin"),
        ("two words\n", 2, "is not a token"),
        ("x" * 20_000, 2, "too long"),
    ],
)
def test_an_invalid_token(
    here: Here, deployment: Deployment, text: str, code: int, said: str
) -> None:
    """One line that does not quote the input; nothing is stored."""
    ended = with_token(here, deployment, text)
    one_line(ended, code, said)
    assert "two words" not in ended.stderr
    assert not here.state.exists()


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (("password", "code", "new_password"), ["one", "two", "three"]),
        (("password", "new_password"), ["one", "three"]),
        (("code",), ["two"]),
        (("new_password",), ["three"]),
        (("code", "password", "new_password"), ["two", "one", "three"]),
    ],
)
def test_each_line_of_the_standard_input_has_its_place(
    monkeypatch: pytest.MonkeyPatch, wanted: tuple[str, ...], taken: list[str]
) -> None:
    """Password, code and new password each have a line, in whatever order they are requested."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n two \r\nthree\n")))
    terminal = Script(password_stdin=True, code="-")
    assert terminal.given_code("TOTP") is None
    ask = {"code": lambda: terminal.code("TOTP")}
    assert [ask.get(name, getattr(terminal, name))().reveal() for name in wanted] == taken


def test_a_person_at_a_terminal(machine: Machine) -> None:
    """User, password without echo and the mailed code are requested in the order of the service."""
    with organization('otp = "ServiceMail"') as deployment:
        terminal = Terminal(
            machine, "logon", deployment.base_url, "--ca-file", str(deployment.ca_file)
        )
        terminal.until("User name")
        terminal.type(ALICE)
        terminal.until("Password")
        terminal.type(PASSWORD)
        terminal.until("One-time code (sent to you by mail)")
        assert PASSWORD not in terminal.shown
        terminal.type(deployment.tell({"mail": ALICE})["code"])
        assert terminal.end() == 0, terminal.shown
        assert "logged on" in terminal.shown
        machine.done("zones")


@pytest.mark.parametrize("asked", ["User name", "Password"])
def test_no_answer_at_a_prompt(machine: Machine, deployment: Deployment, asked: str) -> None:
    """Ctrl-D gives one line and exit code 1; no data are stored."""
    user = ["--username", ALICE] if asked == "Password" else []
    terminal = Terminal(
        machine, "logon", deployment.base_url, "--ca-file", str(deployment.ca_file), *user
    )
    terminal.until(asked)
    terminal.until(": ")
    terminal.press("\x04")
    assert terminal.end() == 1
    assert "\r\nzonedrive: no answer\r\n" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert not machine.state.exists()


def test_ctrl_c_at_a_prompt_is_quiet(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C gives exit code 130, as elsewhere."""

    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    with pytest.raises(SystemExit) as ended:
        main(["logon", deployment.base_url, "--ca-file", str(deployment.ca_file)])
    assert ended.value.code == 130
    assert "no answer" not in capsys.readouterr().err


def test_a_pipe_is_no_terminal(
    here: Here, deployment: Deployment, recwarn: pytest.WarningsRecorder
) -> None:
    """Without --password-stdin no password is read from a pipe, and the logon fails."""
    before = deployment.stats()["requests"]
    for more in (["--username", ALICE], []):
        ended = here.run(
            "logon", deployment.base_url, "--ca-file", deployment.ca_file, *more,
            text=f"{PASSWORD}\n",
        )  # fmt: skip
        one_line(ended, 2, "there is no terminal for questions: use --password-stdin")
    logons = "POST /api/access/logon"
    assert deployment.stats()["requests"].get(logons) == before.get(logons)
    assert not recwarn.list


def intend(here: Here, size: int) -> None:
    """Create a file in the outbox, as a killed daemon does."""
    Database.open(here.state / "tree.db", SCHEMAS).close()
    with contextlib.closing(sqlite3.connect(here.state / "tree.db")) as database:
        database.execute(
            "INSERT INTO intents (ino, seq, generation, size, place, gone, held, due_ns, attempts,"
            " failed, error) VALUES (5, 1, 1, ?, 0, 0, 0, 0, 0, 0, '')",
            (size,),
        )
        database.commit()


def test_a_logoff_keeps_pending_files(here: Here, deployment: Deployment) -> None:
    """Logoff refuses with the number of files; --discard deletes them."""
    assert logon(here, deployment).returncode == 0
    intend(here, 77)
    one_line(
        here.run("logoff"), 1,
        "1 file (77 bytes) is not on the service yet, and nothing is sent while it is not mounted;"
        " mount it first, or drop it with --discard",
    )  # fmt: skip
    assert (here.state / "tree.db").exists()
    one_line(
        logon(here, deployment, username=f"bob@{world.DOMAIN}",
              text=f"{world.PASSWORDS['bob']}\n"),
        1, "1 file (77 bytes)",
    )  # fmt: skip
    assert logon(here, deployment).returncode == 0
    here.done("logoff", "--discard")
    assert not here.state.exists()


def test_a_logoff_of_a_mount_counts_pending_files() -> None:
    """If a running daemon could not send the files, the remedy does not recommend a mount."""
    said = _refusal(AccountPaths("work"), Backlog(2, 77), "", mounted=True).line()
    assert "are not on the service yet; see 'zonedrive status --account work'" in said
    assert "drop them with --discard" in said and "mount it" not in said


def test_a_logoff_works_without_the_service(here: Here, deployment: Deployment) -> None:
    """Key and cache are deleted; the output says that the service was not informed."""
    assert logon(here, deployment).returncode == 0
    with deployment.faulty(status=503, path="^/api/access/logoff"):
        ended = here.run("logoff")
    assert ended.returncode == 0
    assert "not ended at the service" in ended.stderr
    assert not here.state.exists()


@pytest.mark.parametrize("command", ["logon", "logoff"])
def test_a_logon_and_a_logoff_wait_for_a_renewal_and_end_its_session(
    machine: Machine, deployment: Deployment, tmp_path: Path, command: str
) -> None:
    """A renewal that is storing its session is waited for; this session is then ended."""
    words = {"logon": ["logon", deployment.base_url, "--username", ALICE, "--password-stdin"]}
    other = Machine(tmp_path / "other")
    for each in (machine, other):
        assert logon(each, deployment, "--session-only").returncode == 0
    renewed = load_bearer(FileStore(other.state / "secrets.json"))
    assert renewed is not None
    with ThreadPoolExecutor() as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", machine.environment["XDG_STATE_HOME"])
            paths = AccountPaths("default")
            assert paths.state == machine.state
            with locked(paths):
                ended = pool.submit(
                    machine.run, *words.get(command, [command]), text=f"{PASSWORD}\n"
                )
                lock = f":{machine.state.stat().st_ino} 0 EOF\n"
                eventually(
                    lambda: any(
                        "-> FLOCK" in line and line.endswith(lock)
                        for line in Path("/proc/locks").read_text().splitlines(keepends=True)
                    ),
                    what=f"{command} waits for the renewal",
                )
                save_bearer(FileStore(paths.secrets_file), renewed)
        result = ended.result()
    assert result.returncode == 0, result.stderr
    one_line(other.run("zones"), 3, "zonedrive logon")
