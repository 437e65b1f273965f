"""Decisions of a daemon about the renewal of a logon."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.logon.test_bearer_auth import Memory, Times
from zonedrive import config
from zonedrive.errors import CredentialsRefused
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import TURN_SECONDS, Bearer, save_bearer
from zonedrive.logon.renewal import (
    PROCESS_SECONDS,
    Outcome,
    Renewal,
    RenewalRequest,
    digest,
    in_a_process,
)
from zonedrive.paths import AccountPaths

OLD = Bearer("old", "session")
NEW = Bearer("new", "session")


class Worker:
    """Worker that returns the given outcomes."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.orders = list(outcomes), list[RenewalRequest]()

    def __call__(self, paths: AccountPaths, order: RenewalRequest) -> Outcome:
        self.orders.append(order)
        return self.outcomes.pop(0)


@pytest.fixture(autouse=True)
def account(paths: AccountPaths) -> None:
    """Store an account with a password."""
    Account(name="work", base_url="https://z.example", username="a", keeps_password=True).save(
        paths
    )


def test_another_bearer_comes_from_the_store(paths: AccountPaths) -> None:
    """The request has a digest of the known bearer, and whether it has ended."""
    store, worker = Memory(), Worker(Outcome("renewed"), Outcome("renewed"))
    save_bearer(store, NEW)
    renewal = Renewal(paths, lambda: store, worker)
    assert renewal(OLD) == renewal(OLD, ended=False) == NEW
    assert worker.orders == [RenewalRequest(digest(OLD), True), RenewalRequest(digest(OLD), False)]
    assert "old" not in repr(worker.orders)
    assert digest(None) == ""


def test_a_refusal_is_the_last_try(paths: AccountPaths) -> None:
    """After a refusal there is no new try until the user has logged on."""
    no = Outcome("refused", "the password is wrong", "run zonedrive logon")
    worker = Worker(no, Outcome("renewed"))
    renewal = Renewal(paths, Memory, worker)
    for _ in range(3):
        with pytest.raises(CredentialsRefused, match="wrong"):
            renewal(OLD)
    assert len(worker.orders) == 1
    renewal.forget()
    renewal(OLD)
    assert len(worker.orders) == 2


def test_a_refusal_ends_with_the_next_logon(paths: AccountPaths) -> None:
    """The daemon may be too busy to hear of the logon, which has stored another bearer."""
    worker = Worker(Outcome("refused", "the password is wrong", seconds=0), Outcome("renewed"))
    store = Memory()
    renewal = Renewal(paths, lambda: store, worker)
    with pytest.raises(CredentialsRefused, match="wrong"):
        renewal(OLD)
    save_bearer(store, Bearer("newest", "session"))
    assert renewal(NEW, ended=False) == Bearer("newest", "session")
    assert len(worker.orders) == 2


@pytest.mark.parametrize("result", ["later", "blocked"])
def test_a_service_that_cannot_or_will_not_is_left_alone_for_a_while(
    paths: AccountPaths, result: str
) -> None:
    """A block is reported meanwhile; an unreachable service is reported by its connectivity."""
    times = Times()
    worker = Worker(Outcome(result, "blocked", seconds=900.0), Outcome("renewed"))  # type: ignore[arg-type]
    renewal = Renewal(paths, Memory, worker, times)
    for _ in range(3):
        if result == "blocked":
            with pytest.raises(CredentialsRefused, match="blocked"):
                renewal(OLD)
        else:
            assert renewal(OLD) is None
    assert len(worker.orders) == 1
    times.now += 901
    renewal(OLD)
    assert len(worker.orders) == 2


@pytest.mark.parametrize(
    ("result", "may_succeed"), [("later", True), ("blocked", True), ("refused", False)]
)
def test_a_renewal_may_succeed_until_it_is_refused(
    paths: AccountPaths, result: str, may_succeed: bool
) -> None:
    """A logoff waits for a renewal that may still succeed."""
    worker = Worker(Outcome(result, "no", seconds=0))  # type: ignore[arg-type]
    renewal = Renewal(paths, Memory, worker)
    assert renewal.may_succeed()
    with suppress(CredentialsRefused):
        renewal(OLD)
    assert renewal.may_succeed() is may_succeed
    renewal.forget()
    assert renewal.may_succeed()
    paths.account_file.unlink()
    paths.account_copy.unlink(missing_ok=True)
    assert not renewal.may_succeed()


def test_without_a_password_nothing_is_started(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password of systemd counts like a stored one."""
    Account(name="work", base_url="https://z.example", username="a").save(paths)
    worker = Worker(Outcome("renewed"))
    renewal = Renewal(paths, Memory, worker)
    assert renewal(OLD) is None
    assert worker.orders == []
    (tmp_path / "zonedrive.work.password").write_text("x")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    renewal(OLD)
    assert len(worker.orders) == 1
    paths.account_file.unlink()
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    assert not renewal.is_possible()


@pytest.mark.parametrize("given", ["at the logon", "by systemd"])
def test_a_policy_forbids_every_saved_password(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """A password that was saved earlier, or that a unit of the user passes, is not used."""
    if given == "by systemd":
        (tmp_path / "zonedrive.work.password").write_text("x")
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    renewal = Renewal(paths, Memory, Worker(Outcome("renewed")))
    assert renewal.is_possible()
    forbidding = config.Organization(policy={"save_password": False})
    monkeypatch.setattr(config, "organization", lambda account: forbidding)
    assert not renewal.is_possible()
    assert renewal(OLD) is None


@pytest.mark.parametrize("text", ["exit 1", "echo nonsense", "kill -9 $$"])
def test_a_process_that_fails_is_tried_later(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The mount continues, and gets the kind of failure."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setattr("zonedrive.logon.renewal.sys.executable", str(program))
    found = in_a_process(paths, RenewalRequest("", True))
    assert found.result == "later"
    assert "failed" in found.message


def test_a_lock_that_cannot_be_opened_is_named(paths: AccountPaths) -> None:
    """For example after a command that ran as root."""
    paths.renewal_lock.mkdir()
    found = in_a_process(paths, RenewalRequest("", True))
    assert found.message == f"{paths.renewal_lock}: Is a directory"


def test_requests_wait_for_the_end_of_a_renewal() -> None:
    """Otherwise a request fails as if the logon had ended."""
    assert TURN_SECONDS > PROCESS_SECONDS
