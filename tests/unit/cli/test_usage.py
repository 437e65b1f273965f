"""A wrong option or argument exits with 2, also if a file or a setting shows that it is wrong."""

from pathlib import Path

import pytest

from tests.unit.cli.stand_in import StandIn, log_on, run

LOGON = ("logon", "https://a.example", "--username", "u", "--password-stdin")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*LOGON, "--ca-file", "none.pem"), "--ca-file: none.pem does not exist"),
        ((*LOGON, "--ca-file", "empty.pem"), "--ca-file: empty.pem holds no certificate"),
        ((*LOGON, "--profile", "none.toml"), "--profile: the profile none.toml does not exist"),
        ((*LOGON, "--profile", "nothing"), "--profile: there is no profile 'nothing'"),
        (("new-credentials", "--username", ""), "invalid value for '--username': it is empty"),
        ((*LOGON, "--token-days", "1.5"), "invalid value for '--token-days': '1.5' is not a valid"),
        (("sync", "--timeout", "x"), "invalid value for '--timeout': 'x' is not a valid number of"),
        (("mount", "Z", "-o", "remount,rw"), "-o remount cannot be set: unmount, and mount again"),
        (("logon", "ftp://a.example"), "'ftp://a.example' is not an https:// address"),
        (("logon", "http://a.example"), "'http://a.example' is plain HTTP"),
    ],
)
def test_a_wrong_value_is_wrong_usage(home: Path, arguments: tuple[str, ...], said: str) -> None:
    """The line names the option, and no request is sent."""
    log_on()
    (home / "Z").mkdir()
    (home / "empty.pem").touch()
    failed = run(*arguments)
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.startswith(f"zonedrive: {said}")
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [
    "share", "unshare", "pin", "unpin", "sync", "send", "log", "versions", "status", "ui",
    "mount", "unmount", "doctor", "doctor --profile", "doctor --report", "logon --profile",
    "status --metrics --output",
])  # fmt: skip
def test_an_empty_path_is_not_the_working_directory(stand_in: StandIn, command: str) -> None:
    """A script passes it for a variable without a value; the daemon gets no request."""
    words = command.split()
    failed = run(*words, "")
    assert failed.returncode == 2
    assert failed.stderr.endswith(f": it is empty; see 'zonedrive {words[0]} --help'\n")
    assert failed.stderr.count("\n") == 1
    assert stand_in.asked == []


def test_an_unknown_account_is_reported_with_the_others(home: Path) -> None:
    """A typing error in --account is found at once."""
    log_on("default")
    log_on("work", "https://b.example")
    failed = run("zones", "--account", "wrok")
    assert failed.returncode == 3
    assert failed.stderr == (
        "zonedrive: the account 'wrok' is not logged on; run zonedrive logon URL --account wrok"
        " (accounts on this computer: default, work)\n"
    )
    failed = run("logoff", "--account", "wrok")
    assert failed.returncode == 3
    assert failed.stderr == (
        "zonedrive: the account 'wrok' is not logged on: nothing to do; accounts on this computer:"
        " default, work\n"
    )


def test_logging_off_without_a_logon(home: Path) -> None:
    """The error says that there is nothing to do."""
    failed = run("logoff")
    assert failed.returncode == 3
    assert failed.stderr == "zonedrive: the account 'default' is not logged on: nothing to do\n"
