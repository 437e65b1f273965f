"""Revocation of a bearer that was replaced or cannot be stored."""

import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from importlib import import_module
from pathlib import Path

import httpx
import pytest
import trustme
from click.testing import CliRunner

from tests.unit.logon.conftest import BASE, GOOD, SESSION, TOKEN, Desk, Person, refuse, say
from tests.unit.logon.test_bearer_auth import Memory
from tests.unit.logon.test_logon import Office, say_user
from zonedrive import errors
from zonedrive.logon import bearer_auth
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import Backlog
from zonedrive.logon.account_lock import locked
from zonedrive.logon.api import LogonApi
from zonedrive.logon.secrets import FileStore, Secret
from zonedrive.paths import AccountPaths, write_private

logoff_command = import_module("zonedrive.cli.logoff")
REVOKE = "DELETE /api/sandbox/tokens/t1"


@pytest.fixture
def office(desk: Desk, paths: AccountPaths) -> Office:
    """Return a new account."""
    return Office(desk, paths)


def ended(office: Office) -> list[tuple[str, str]]:
    """Return the requests that end a bearer, with the bearer that they sent."""
    return [
        (f"{method} {path}", (bearer or "").removeprefix("Bearer "))
        for method, path, _, bearer in office.desk.asked
        if method == "DELETE" or path.endswith("/logoff")
    ]


OTHER = "https://other.example"


def log_on_elsewhere(office: Office) -> None:
    """Store a session at another service, as a logon in another terminal does."""
    with locked(office.paths):
        Account(name="work", base_url=OTHER, username="alice").save(office.paths)
        bearer_auth.save_bearer(office.store, bearer_auth.Bearer("others", "session"))


@pytest.mark.parametrize("profile", ["sandbox", "published"])
async def test_the_previous_token_is_revoked(office: Office, profile: str) -> None:
    """The former token is revoked if the profile can; otherwise its id and expiry are reported."""
    await office.log_on(profile=profile)
    office.desk.answer("POST /api/tokens", say(201, {"id": "t2", "token": "new", "expiry": 0}))
    office.desk.answer(REVOKE, say(204))
    office.desk.asked.clear()
    office.told.clear()
    await office.log_on(profile=profile)
    told = "your previous token (t1) remains valid at the service until 2030-01-01 00:00 UTC"
    assert ((REVOKE, TOKEN) in ended(office)) == (profile == "sandbox")
    assert any(line.startswith(told) for line in office.told) == (profile == "published")
    assert office.bearer().secret == "new"


async def test_the_previous_session_is_ended(office: Office) -> None:
    """A logon to another service ends the session at the former service, too."""
    await office.log_on(token_days=None)
    for before, url in (("first", BASE), ("second", "https://other.example")):
        bearer_auth.save_bearer(office.store, bearer_auth.Bearer(before, "session"))
        office.desk.asked.clear()
        await office.log_on(url, token_days=None)
        assert ended(office) == [("GET /api/access/logoff", before)]
        assert office.bearer().secret == SESSION
    assert [base for base, _ in office.opened][-2:] == ["https://other.example", BASE]


async def test_a_session_of_another_terminal_is_ended_at_its_own_service(office: Office) -> None:
    """Otherwise the service of the slower logon would receive the other service's session."""
    await office.log_on(token_days=None)

    def answer() -> httpx.Response:
        log_on_elsewhere(office)
        return say(200, GOOD)

    office.desk.answer("POST /api/access/logon", answer)
    office.desk.asked.clear()
    office.opened.clear()
    await office.log_on(token_days=None)
    assert ended(office) == [("GET /api/access/logoff", "others")]
    assert [base for base, _ in office.opened] == [BASE, OTHER]
    assert Account.load(office.paths).base_url == BASE


@pytest.mark.parametrize("lost", ["account.json", "ca.pem"])
async def test_a_previous_token_whose_service_cannot_be_asked_is_reported(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The account file is missing after a logon as another user that was killed."""
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(trustme.CA().cert_pem.bytes())
    former = await office.log_on(ca_file=str(ca_file))
    if lost == "account.json":
        former.delete(office.paths)
    else:
        opening = office.opening

        @asynccontextmanager
        async def failing(base: str, ca_file: str | None) -> AsyncIterator[LogonApi]:
            if ca_file is not None:
                raise errors.ConfigError(f"{ca_file} cannot be read")
            async with opening(base, ca_file) as access:
                yield access

        monkeypatch.setattr(office, "opening", failing)
    office.desk.answer("POST /api/tokens", say(201, {"id": "t2", "token": "new", "expiry": 0}))
    office.told.clear()
    await office.log_on("https://other.example")
    told = "your previous token (t1) remains valid at the service until 2030-01-01 00:00 UTC"
    assert any(line.startswith(told) for line in office.told)


class Full(Memory):
    """Store that accepts no secrets."""

    def set(self, name: str, value: Secret) -> None:
        """Raise StoreError."""
        raise errors.StoreError("it is full")


@pytest.mark.parametrize("profile", ["sandbox", "published"])
@pytest.mark.parametrize("what", ["store", "account"])
async def test_a_token_that_cannot_be_kept_is_not_left_behind(
    office: Office, what: str, profile: str
) -> None:
    """The token is revoked and not stored; if it cannot be revoked, the user gets a message."""
    office.desk.answer(REVOKE, say(204))
    if what == "store":
        office.store = Full()
    else:
        office.paths.account_file.mkdir(parents=True, mode=0o700)
    with pytest.raises((errors.StoreError, OSError)):
        await office.log_on(profile=profile)
    if profile == "sandbox":
        assert ended(office)[-1] == (REVOKE, TOKEN)
    else:
        assert "the new token (t1) remains valid at the service until 2030" in office.told[-1]
    assert not office.paths.secrets_file.exists()


async def test_a_keyring_that_fails_for_a_moment_loses_no_secret(office: Office) -> None:
    """The secrets of the former logon cannot be read, but could be deleted afterwards."""
    await office.log_on(save_password=True)
    office.store = Failing(office.paths.secrets_file)
    with pytest.raises(errors.StoreError, match="locked"):
        await office.log_on()
    office.store = FileStore(office.paths.secrets_file)
    assert office.bearer().secret == TOKEN and office.store.get("password")


async def test_a_logon_that_is_cancelled_while_it_waits_for_the_lock_leaves_no_token(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may hold the lock while it waits for the keyring."""

    def interrupted(_paths: AccountPaths) -> AbstractContextManager[None]:
        raise KeyboardInterrupt

    monkeypatch.setattr("zonedrive.logon.logon.locked", interrupted)
    office.desk.answer(REVOKE, say(204))
    with pytest.raises(KeyboardInterrupt):
        await office.log_on(profile="sandbox")
    assert ended(office)[-1] == (REVOKE, TOKEN)


async def test_a_logon_that_the_user_cancelled_meanwhile_leaves_no_token(office: Office) -> None:
    """The user clicks "Cancel" while the service creates the token."""
    await office.log_on(profile="sandbox")
    before = office.bearer()

    def create() -> httpx.Response:
        office.person.has_cancelled = True
        return say(201, {"id": "t2", "token": "new", "expiry": 0})

    office.desk.answer("POST /api/tokens", create)
    office.desk.answer("DELETE /api/sandbox/tokens/t2", say(204))
    with pytest.raises(errors.CredentialsRefused, match="cancelled"):
        await office.log_on(profile="sandbox")
    assert ended(office)[-1] == ("DELETE /api/sandbox/tokens/t2", "new")
    assert office.bearer() == before


@pytest.mark.parametrize("profile", ["sandbox", "published"])
async def test_a_logon_that_the_user_cancelled_creates_no_token(
    office: Office, profile: str
) -> None:
    """With the published profile, nobody could revoke the token."""

    def log_on() -> httpx.Response:
        office.person.has_cancelled = True
        return say(200, GOOD)

    office.desk.answer("POST /api/access/logon", log_on)
    with pytest.raises(errors.CredentialsRefused, match="cancelled"):
        await office.log_on(profile=profile)
    assert not [path for _, path, *_ in office.desk.asked if path == "/api/tokens"]
    assert ended(office) == [("GET /api/access/logoff", SESSION)]


async def test_the_same_token_stays_stored_if_the_account_cannot_be_saved(office: Office) -> None:
    """The token still works at the service, so the former logon remains usable."""
    await office.log_on()
    before = office.bearer()
    office.paths.account_file.unlink()
    office.paths.account_file.mkdir(mode=0o700)
    with pytest.raises(OSError, match="directory"):
        await office.log_on(token=TOKEN)
    assert office.bearer() == before
    assert ended(office) == [("GET /api/access/logoff", SESSION)]


@pytest.mark.parametrize("save", [True, False])
@pytest.mark.parametrize("file", ["ca.pem", "account.json", "account.copy.json"])
async def test_a_logon_that_cannot_be_saved_leaves_the_former_one_whole(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, save: bool
) -> None:
    """A token or a password of the other service would be sent to the former one, or vice versa."""
    first, second = tmp_path / "first.pem", tmp_path / "second.pem"
    first.write_bytes(trustme.CA().cert_pem.bytes())
    second.write_bytes(trustme.CA().cert_pem.bytes())
    await office.log_on(ca_file=str(first), save_password=True)
    office.store.set("refused", Secret("{}"))
    state = office.paths.state
    before = {each.name: each.read_bytes() for each in state.iterdir()}
    office.desk.answer("POST /api/tokens", say(201, {"id": "t2", "token": "new", "expiry": 0}))
    office.person = Person("another password")

    failing = [file]

    def write(path: Path, data: bytes) -> None:
        """Store the file, and fail once when the folder is flushed, as on a failing disk."""
        write_private(path, data)
        if path.name in failing:
            failing.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(path))

    for module in ("logon", "account"):
        monkeypatch.setattr(f"zonedrive.logon.{module}.write_private", write)
    with pytest.raises(OSError, match="Input/output"):
        await office.log_on("https://other.example", ca_file=str(second), save_password=save)
    after = {each.name: each.read_bytes() for each in state.iterdir()}
    assert json.loads(after.pop("secrets.json")) == json.loads(before.pop("secrets.json"))
    assert after == before


class Failing(FileStore):
    """Store that can be read once, and then only delete secrets."""

    reads = 0

    def get(self, name: str) -> Secret | None:
        """Return a secret."""
        self.reads += 1
        if self.reads > 1:
            raise errors.StoreError("it is locked")
        return super().get(name)

    def set(self, name: str, value: Secret) -> None:
        """Raise StoreError."""
        raise errors.StoreError("it is locked")


class Watching(FileStore):
    """Store that records the account file's content while a bearer is stored."""

    def __init__(self, paths: AccountPaths) -> None:
        super().__init__(paths.secrets_file)
        self._file, self.seen = paths.account_file, list[str]()

    def set(self, name: str, value: Secret) -> None:
        """Store a secret."""
        self.seen.append(self._file.read_text("utf-8") if self._file.exists() else "")
        super().set(name, value)


async def test_a_logon_that_is_killed_leaves_no_token_for_another_service(office: Office) -> None:
    """A mount would send the new token to the service in the account file."""
    await office.log_on()
    office.store = store = Watching(office.paths)
    await office.log_on("https://other.example")
    assert BASE not in "".join(store.seen)


async def test_a_cancelled_logon_leaves_no_session(office: Office) -> None:
    """After Ctrl-C, the token that may have been created is reported."""
    office.desk.answer("POST /api/tokens", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        await office.log_on()
    assert ended(office) == [("GET /api/access/logoff", SESSION)]
    assert "may have been created" in office.told[-1]
    assert not office.paths.secrets_file.exists()


async def test_a_logon_that_is_cancelled_while_the_session_ends_leaves_nothing(
    office: Office,
) -> None:
    """After Ctrl-C in the request that ends the session, the session and the new token end."""
    office.desk.answer("GET /api/access/logoff", KeyboardInterrupt(), say(204))
    office.desk.answer(REVOKE, say(204))
    with pytest.raises(KeyboardInterrupt):
        await office.log_on(profile="sandbox")
    end = ("GET /api/access/logoff", SESSION)
    assert ended(office) == [end, (REVOKE, TOKEN), end]
    assert not office.paths.secrets_file.exists()


@pytest.mark.parametrize("profile", ["sandbox", "published"])
@pytest.mark.parametrize("wrong", [httpx.ConnectError("x"), refuse(403, ""), KeyboardInterrupt()])
async def test_a_new_token_whose_check_fails_is_not_left_behind(
    office: Office, wrong: httpx.Response | BaseException, profile: str
) -> None:
    """The session is stored instead, or ended at a Ctrl-C; the token is revoked or reported."""
    is_interrupted = isinstance(wrong, KeyboardInterrupt)

    def check() -> httpx.Response:
        if office.desk.asked[-1][3] != f"Bearer {TOKEN}":
            return say(200, [])
        if is_interrupted:  # once
            office.desk.answer("GET /api/zones", say(200, []))
        if isinstance(wrong, BaseException):
            raise wrong
        return wrong

    office.desk.answer("GET /api/zones", check)
    office.desk.answer(REVOKE, say(204))
    with pytest.raises(KeyboardInterrupt) if is_interrupted else nullcontext():
        await office.log_on(profile=profile)
        assert office.bearer().secret == SESSION
    said = " ".join(office.told)
    assert ((REVOKE, TOKEN) in ended(office)) == (profile == "sandbox")
    assert ("the token (t1) remains valid" in said) == (profile == "published")
    assert ("the new token is not used" in said) == (not is_interrupted)
    assert "create" not in said


async def test_a_session_that_is_not_used_is_reported_if_it_cannot_be_ended(
    office: Office,
) -> None:
    """Another user's changes wait here, so that the new session is of no use."""
    await office.log_on()
    office.backlog = Backlog(1, 7)
    office.desk.answer("POST /api/access/logon", say_user("bob@acme.example"))
    office.desk.answer("GET /api/access/logoff", httpx.ConnectError("x"))
    with pytest.raises(errors.ConfigError, match="1 file"):
        await office.log_on(username="bob")
    assert "the session remains valid at the service until" in office.told[-1]


async def test_a_token_in_an_unusable_answer_is_reported(office: Office) -> None:
    """The token exists at the service although its secret is unknown here."""
    office.desk.answer("POST /api/tokens", say(201, {"id": "t1", "token": "a b"}))
    await office.log_on()
    assert "may have been created" in office.told[1]


@pytest.mark.parametrize("kind", ["session", "token"])
async def test_a_logoff_ends_a_logon_whose_profile_is_wrong(
    office: Office,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The session is ended; for a token, the message also has the error of the profile."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profile = tmp_path / "ours.toml"
    profile.write_text('description = "Ours."\n', "utf-8")
    account = await office.log_on(
        profile=str(profile), token_days=None if kind == "session" else 90
    )
    profile.write_text("[nonsense]\n", "utf-8")
    office.desk.asked.clear()
    monkeypatch.setattr(logoff_command, "open_access", office.opening)
    await logoff_command._end_at_service(account, office.store)
    assert ended(office) == [("GET /api/access/logoff", SESSION if kind == "session" else TOKEN)]
    assert ("unknown operation 'nonsense'" in capsys.readouterr().err) == (kind == "token")


async def test_a_logoff_revokes_the_token_with_the_profile_of_the_settings(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile of the logon is not used if the settings name another one, as in a mount."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    account = await office.log_on()
    (tmp_path / "config" / "zonedrive").mkdir(parents=True)
    (tmp_path / "config" / "zonedrive" / "config.toml").write_text('profile = "sandbox"\n')
    office.desk.answer(REVOKE, say(204))
    office.desk.asked.clear()
    monkeypatch.setattr(logoff_command, "open_access", office.opening)
    await logoff_command._end_at_service(account, office.store)
    assert ended(office) == [(REVOKE, TOKEN)]


def test_a_logoff_does_not_end_a_logon_to_another_service(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logon in another terminal finished while the logoff waited for the uploads."""
    Account(name="work", base_url=BASE, username="alice").save(office.paths)
    bearer_auth.save_bearer(office.store, bearer_auth.Bearer("first", "session"))
    monkeypatch.setattr(logoff_command, "_stop_daemon", lambda _paths: log_on_elsewhere(office))
    monkeypatch.setattr(logoff_command, "open_access", office.opening)
    wrong = CliRunner().invoke(logoff_command.logoff, ["--account", "work"]).exception
    assert isinstance(wrong, errors.ZonedriveError)
    assert OTHER in wrong.message and "log off again" in wrong.remedy
    assert office.opened == []
    assert Account.load(office.paths).base_url == OTHER
    assert office.bearer() == bearer_auth.Bearer("others", "session")


async def test_a_previous_token_that_was_revoked_elsewhere_is_not_called_valid(
    office: Office,
) -> None:
    """The service is asked, because a token from another program has no known end."""
    await office.log_on(token="first")
    office.desk.answer("GET /api/zones", say(200, []), refuse(401, "AUTHORIZATION_FAILED"))
    office.told.clear()
    await office.log_on(token="second")
    assert not [line for line in office.told if "remains valid" in line]
