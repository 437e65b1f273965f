"""Complete logon: its checks, and the stored data."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trustme

from tests.unit.logon.browser.test_signon import CORP, BrowserPrompt, prepared
from tests.unit.logon.conftest import (
    BASE,
    GOOD,
    PASSWORD,
    SESSION,
    TOKEN,
    Desk,
    Person,
    refuse,
    say,
)
from tests.unit.logon.test_bearer_auth import Memory
from zonedrive import errors
from zonedrive.logon import bearer_auth
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import Backlog, LocalData
from zonedrive.logon.api import LogonApi
from zonedrive.logon.logon import Logon, LogonRequest
from zonedrive.logon.previous_account import LocalDataQueries
from zonedrive.logon.secrets import CredentialsStore, FileStore, KeyringTimeout, Secret, SecretStore
from zonedrive.paths import AccountPaths
from zonedrive.remote.profiles import load

pytestmark = pytest.mark.usefixtures("no_pauses")


NAMELESS = {name: value for name, value in GOOD.items() if name != "userId"}


class Office:
    """Runner of one account's logons at a simulated service."""

    def __init__(self, desk: Desk, paths: AccountPaths) -> None:
        self.desk, self.paths = desk, paths
        self.store: SecretStore = FileStore(paths.secrets_file)
        self.backlog = Backlog()
        self.running = self.sealed = False
        self.lost = self.wanted = 0
        self.meanwhile = Backlog()  # saved by another daemon while this one logs on
        self.told: list[str] = []
        self.opened: list[tuple[str, str | None]] = []
        self.person = Person()
        self.at_terminal: BrowserPrompt | None = None
        self.kept = ""

    @asynccontextmanager
    async def opening(self, base: str, ca_file: str | None) -> AsyncIterator[LogonApi]:
        """Open the access endpoints, and record the address."""
        self.opened.append((base, ca_file))
        yield self.desk.access()

    @contextmanager
    def _hold(self, paths: AccountPaths) -> Iterator[None]:
        self.backlog = self.meanwhile
        yield

    async def log_on(
        self, url: str = BASE, username: str = "alice", *, token: str = "", **more: Any
    ) -> Account:
        """Log on once."""
        enrolment = Logon(
            self.paths,
            LogonRequest(url=url, username=username, **more),
            self.person,
            queries=LocalDataQueries(
                local_data=lambda paths: LocalData(
                    self.backlog, lost=self.lost, wanted=self.wanted
                ),
                running=lambda paths: self.running,
                needs_key=lambda paths: self.sealed,
                hold=self._hold,
                forbidden=lambda paths: None,
            ),
            tell=self.told.append,
            store=lambda paths: self.store,
            access=self.opening,
            person=self.at_terminal,
            token=Secret(token) if token else None,
        )
        account = await enrolment.run()
        self.kept = enrolment.kept
        return account

    def bearer(self) -> bearer_auth.Bearer:
        """Return the stored bearer, which must exist."""
        found = bearer_auth.load_bearer(self.store)
        assert found is not None
        return found


@pytest.fixture
def office(desk: Desk, paths: AccountPaths) -> Office:
    """Return a new account."""
    return Office(desk, paths)


def say_user(name: str) -> httpx.Response:
    """Return a logon answer for this user."""
    return say(200, GOOD | {"userId": {"name": name}})


async def test_a_logon_keeps_a_token_and_the_account(office: Office) -> None:
    """The token lasts 90 days by default; the session is ended, the password is stored nowhere."""
    account = await office.log_on(f"{BASE}/")
    assert account == Account.load(office.paths)
    assert (account.base_url, account.user_id, account.profile) == (
        BASE, "alice@acme.example", "published",
    )  # fmt: skip
    assert (office.bearer().secret, office.bearer().kind) == (TOKEN, "token")
    assert office.kept == "by token until 2030-01-01 00:00 UTC"
    (body,) = office.desk.bodies("/api/tokens")
    assert body["validity"] == 90 * 86400
    assert body["tokenName"].startswith("zonedrive on ")
    for file in office.paths.state.iterdir():
        assert PASSWORD not in file.read_text()
    assert any("no keyring" in line for line in office.told)


@pytest.mark.parametrize("username", ["", "Alice", "ALICE@acme.example"])
async def test_an_answer_without_the_user_id(office: Office, username: str) -> None:
    """The service may leave out the user id; the one of the previous logon stays."""
    before = await office.log_on()
    office.desk.answer("POST /api/access/logon", say(200, NAMELESS))
    again = await office.log_on(username=username or before.username)
    assert again.user_id == before.user_id == "alice@acme.example"
    assert again.same_owner(before)


async def test_another_user_and_an_answer_without_the_user_id(office: Office) -> None:
    """The user name was typed at the prompt: the files of the previous user are not sent."""
    await office.log_on()
    office.backlog = Backlog(files=3)
    office.desk.answer("POST /api/access/logon", say(200, NAMELESS))
    office.at_terminal = BrowserPrompt()
    office.at_terminal.name = "bob@acme.example"
    with pytest.raises(errors.ConfigError, match="3 files"):
        await office.log_on(username="")
    assert Account.load(office.paths).username == "alice"


@pytest.mark.parametrize("username", ["alice", "Alice"])
async def test_the_user_id_comes_with_a_later_logon(office: Office, username: str) -> None:
    """The first logon had no user id: the same user name belongs to the same user."""
    office.desk.answer("POST /api/access/logon", say(200, NAMELESS))
    await office.log_on()
    await office.log_on()
    office.backlog = Backlog(files=3)
    office.desk.answer("POST /api/access/logon", say(200, GOOD))
    again = await office.log_on(username=username)
    assert (again.username, again.user_id) == (username, "alice@acme.example")
    office.desk.answer("POST /api/access/logon", say_user("bob@acme.example"))
    with pytest.raises(errors.ConfigError, match="3 files"):
        await office.log_on()


async def test_the_user_id_comes_later_for_a_name_typed_at_the_prompt(office: Office) -> None:
    office.at_terminal = BrowserPrompt()
    office.at_terminal.name = "alice"
    office.desk.answer("POST /api/access/logon", say(200, NAMELESS))
    await office.log_on(username="")
    office.backlog = Backlog(files=3)
    office.desk.answer("POST /api/access/logon", say(200, GOOD))
    again = await office.log_on(username="")
    assert (again.username, again.user_id) == ("alice", "alice@acme.example")


@pytest.mark.parametrize("former", ["alice", "alice@acme.example"])
async def test_another_user_signs_on_in_the_browser(office: Office, former: str) -> None:
    """The typed user name is no credential there: the files of the previous user are not sent."""
    office.desk.answer("POST /api/access/logon", say_user(former))
    await office.log_on(username=former, profile="sandbox")
    office.backlog = Backlog(files=3)
    office.at_terminal = BrowserPrompt(CORP)
    prepared(office.desk, office.at_terminal)
    office.desk.answer(
        "GET /api/access/authorizationrequirements",
        say(200, {"organizationName": "Acme", "idpData": [{"name": CORP.name}]}),
    )
    office.desk.answer("POST /api/access/logon", say_user("bob"))
    with pytest.raises(errors.ConfigError, match=f"3 files .* of {former} at"):
        await office.log_on(username=former)
    assert office.at_terminal.asked == [("bob", former)]
    assert Account.load(office.paths).username == former


async def test_another_life_of_the_token(office: Office) -> None:
    """The lifetime is given in days and sent in seconds."""
    await office.log_on(token_days=7)
    assert office.desk.bodies("/api/tokens")[0]["validity"] == 7 * 86400


async def test_a_token_that_was_made_elsewhere(office: Office) -> None:
    """The token is checked with one request and stored; no other credentials are asked for."""
    account = await office.log_on(username="ci@acme.example", token=TOKEN)
    assert account == Account.load(office.paths)
    assert (account.username, account.user_id) == ("ci@acme.example", "ci@acme.example")
    assert office.desk.routes() == ["GET /api/access/authorizationrequirements", "GET /api/zones"]
    assert office.desk.asked[-1][3] == f"Bearer {TOKEN}"
    assert office.bearer() == bearer_auth.Bearer(TOKEN, "token")
    assert office.kept == "by token"
    assert office.person.wanted == []


async def test_a_token_for_the_user_of_the_previous_logon(office: Office) -> None:
    """The service's name for the user stays; the previous token is ended or reported as usual."""
    before = await office.log_on()
    again = await office.log_on(token="another")
    assert again.user_id == before.user_id == "alice@acme.example"
    assert any("your previous token" in line for line in office.told)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refuse(401, "AUTHORIZATION_FAILED"), "does not accept the token"),
        (refuse(403, "NOT_ALLOWED"), "the token gives no access to zones"),
    ],
)
async def test_a_token_that_is_refused(office: Office, answer: httpx.Response, said: str) -> None:
    """An earlier logon stays as it was."""
    before = await office.log_on()
    kept = {file.name: file.read_bytes() for file in office.paths.state.iterdir()}
    office.desk.answer("GET /api/zones", answer)
    with pytest.raises(errors.CredentialsRefused, match=said):
        await office.log_on(token="another")
    assert Account.load(office.paths) == before
    assert {file.name: file.read_bytes() for file in office.paths.state.iterdir()} == kept


@pytest.mark.parametrize("answer", [say(500), httpx.ConnectError("x")])
async def test_a_token_of_which_nothing_is_known(
    office: Office, answer: httpx.Response | Exception
) -> None:
    """An unknown token is not stored."""
    office.desk.answer("GET /api/zones", answer)
    with pytest.raises(errors.RemoteError) as found:
        await office.log_on(token=TOKEN)
    assert not isinstance(found.value, errors.CredentialsRefused)
    assert not office.paths.state.exists()


async def test_a_token_that_was_made_elsewhere_is_not_ended(office: Office) -> None:
    """The token remains valid at the service if another user's changes wait here."""
    await office.log_on()
    office.backlog = Backlog(files=1, bytes=1)
    del office.desk.asked[:]
    with pytest.raises(
        errors.ConfigError, match=r"1 file \(1 byte\) of .* that is not uploaded yet"
    ) as refused:
        await office.log_on(username="bob", token="another")
    assert "if that service is gone, copy what you need" in refused.value.remedy
    assert refused.value.remedy.endswith("run 'zonedrive logoff --discard --account work'")
    assert "GET /api/access/logoff" not in office.desk.routes()


async def test_the_session_alone(office: Office) -> None:
    """No token is requested, and the session, which was checked, is not ended."""
    await office.log_on(token_days=None)
    assert office.desk.routes() == [
        "GET /api/access/authorizationrequirements", "POST /api/access/logon", "GET /api/zones",
    ]  # fmt: skip
    bearer = office.bearer()
    assert (bearer.secret, bearer.kind) == (SESSION, "session")
    assert bearer.expires_ns > 0


@pytest.mark.parametrize(
    "answer", [refuse(403, "NOT_ALLOWED"), httpx.ConnectError("x"), say(500), say(201, {})]
)
async def test_where_no_token_is_given_the_session_is_kept(
    office: Office, answer: httpx.Response | Exception
) -> None:
    """The session is kept, and the user gets a message."""
    office.desk.answer("POST /api/tokens", answer)
    await office.log_on()
    assert office.bearer().kind == "session"
    assert office.kept.startswith("by session")
    assert any("token" in line for line in office.told)
    assert any("session is used" in line for line in office.told)
    assert "GET /api/access/logoff" not in office.desk.routes()


@pytest.mark.parametrize("answer", [httpx.ConnectError("x"), say(500)])
async def test_a_token_of_which_nothing_is_known_after_the_session_is_kept(
    office: Office, answer: httpx.Response | Exception
) -> None:
    """The service has accepted the token before the session ended."""
    office.desk.answer("GET /api/zones", say(200, []), answer)
    await office.log_on()
    assert office.bearer().secret == TOKEN


@pytest.mark.parametrize("days", [None, 90])
async def test_a_session_that_is_not_accepted_is_no_logon(office: Office, days: int | None) -> None:
    """The logon is refused, whatever the service answered before, and no data are stored."""
    office.desk.answer("POST /api/tokens", refuse(401, "AUTHORIZATION_FAILED"))
    office.desk.answer("GET /api/zones", refuse(401, "AUTHORIZATION_FAILED"))
    with pytest.raises(errors.CredentialsRefused, match="the session that it has just given"):
        await office.log_on(token_days=days)
    assert not office.paths.state.exists()
    assert office.told == []


@pytest.mark.parametrize("answer", [say(500), refuse(403, "NOT_ALLOWED"), httpx.ConnectError("x")])
async def test_a_session_of_which_nothing_is_known_is_kept(
    office: Office, answer: httpx.Response | Exception
) -> None:
    """If the service creates no tokens or is unreachable, the session does not count as refused."""
    office.desk.answer("POST /api/tokens", refuse(401, "AUTHORIZATION_FAILED"))
    office.desk.answer("GET /api/zones", answer)
    await office.log_on()
    assert (office.bearer().secret, office.bearer().kind) == (SESSION, "session")


@pytest.mark.parametrize(
    "answer", [refuse(401, "AUTHORIZATION_FAILED"), say(500), httpx.ConnectError("refused")]
)
async def test_until_a_yes_nothing_changes_here(
    office: Office, answer: httpx.Response | Exception
) -> None:
    """A mistyped password leaves an earlier logon unchanged."""
    before = await office.log_on()
    content = {file.name: file.read_bytes() for file in office.paths.state.iterdir()}
    office.desk.answer("POST /api/access/logon", answer)
    with pytest.raises(errors.RemoteError):
        await office.log_on(profile="sandbox")
    assert Account.load(office.paths) == before
    assert {file.name: file.read_bytes() for file in office.paths.state.iterdir()} == content


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://zones.example"},
        {"url": f"{BASE}/path"},
        {"profile": "nothing"},
        {"profile": "/nowhere/x.toml"},
        {"ca_file": "/nowhere/ca.pem"},
    ],
)
async def test_a_mistake_is_found_before_anybody_is_asked(
    office: Office, options: dict[str, str]
) -> None:
    """Mistakes are reported before the user types a password."""
    with pytest.raises(errors.ConfigError):
        await office.log_on(**options)
    assert office.person.wanted == []
    assert office.desk.asked == []


async def test_another_server_at_the_address(office: Office) -> None:
    """Another kind of web server is detected before the password is requested."""
    route = "GET /api/access/authorizationrequirements"
    office.desk.answer(route, httpx.Response(200, content=b"<html>"))
    with pytest.raises(errors.BadAnswer, match="does not answer like"):
        await office.log_on()
    office.desk.answer(route, say(404))
    with pytest.raises(errors.BadAnswer, match="does not answer like"):
        await office.log_on()
    assert office.person.wanted == []


async def test_the_authority_is_copied_and_kept(office: Office, tmp_path: Path) -> None:
    """The file is copied without a private key in it, and is used by a later logon."""
    authority = trustme.CA()
    file = tmp_path / "both.pem"
    file.write_bytes(authority.private_key_pem.bytes() + authority.cert_pem.bytes())
    account = await office.log_on(ca_file=str(file), profile="sandbox")
    assert account.ca_file == str(office.paths.state / "ca.pem")
    kept = Path(account.ca_file).read_bytes()
    assert b"PRIVATE" not in kept
    assert kept.strip() == authority.cert_pem.bytes().strip()
    assert Path(account.ca_file).stat().st_mode & 0o777 == 0o600
    file.unlink()
    again = await office.log_on()
    assert (again.ca_file, again.profile) == (account.ca_file, "sandbox")
    assert office.opened[-1] == (BASE, account.ca_file)
    elsewhere = await office.log_on("https://other.example")
    assert (elsewhere.ca_file, elsewhere.profile) == (None, "published")


async def test_a_profile_file_is_kept_by_its_whole_path(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored path is absolute, because a daemon has another working directory."""
    (tmp_path / "ours.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert (await office.log_on(profile="ours.toml")).profile == str(tmp_path / "ours.toml")


async def test_bytes_that_wait_are_not_left_to_another_service(office: Office) -> None:
    """The logon is refused before a password is typed, with the number of pending files."""
    await office.log_on()
    office.backlog = Backlog(2, 77)
    wanted = len(office.person.wanted)
    with pytest.raises(errors.ConfigError, match=r"2 files \(77 bytes\)") as refused:
        await office.log_on("https://other.example")
    assert "zonedrive sync" in refused.value.line() and "--account NAME" in refused.value.line()
    assert len(office.person.wanted) == wanted
    assert Account.load(office.paths).base_url == BASE


async def test_bytes_that_wait_are_not_left_to_another_user(office: Office) -> None:
    """The service reports the user; then the new session is ended."""
    await office.log_on()
    kept = office.bearer()
    office.backlog = Backlog(1, 7)
    office.desk.answer("POST /api/access/logon", say_user("bob@acme.example"))
    with pytest.raises(errors.ConfigError, match="1 file"):
        await office.log_on(username="bob")
    assert office.desk.routes()[-1] == "GET /api/access/logoff"
    assert office.bearer() == kept


async def test_the_same_user_may_always_log_on_again(office: Office) -> None:
    """A new logon of the same user keeps outbox, key and cache."""
    await office.log_on()
    office.store.set("key", Secret("k"))
    office.paths.cache.mkdir(parents=True)
    office.backlog, office.running = Backlog(2, 77), True
    await office.log_on(username="ALICE")
    assert office.store.get("key") == Secret("k")
    assert office.paths.cache.exists()


async def test_another_user_gets_no_old_data(office: Office) -> None:
    """The former user's cached data cannot be read."""
    await office.log_on()
    office.store.set("key", Secret("k"))
    office.paths.cache.mkdir(parents=True)
    office.paths.database.write_bytes(b"x")
    office.desk.answer("POST /api/access/logon", say_user("bob@acme.example"))
    await office.log_on(username="bob")
    assert office.store.get("key") is None
    assert not office.paths.cache.exists()
    assert not office.paths.database.exists()
    assert "the local data of alice at https://zones.example is deleted" in office.told[-2]


async def test_files_saved_during_the_logon_stay(office: Office) -> None:
    """Files that a mount saved during the logon are kept."""
    await office.log_on()
    kept = office.bearer()
    office.paths.database.write_bytes(b"x")
    office.meanwhile = Backlog(1, 7)
    office.desk.answer("POST /api/tokens", say(201, {"id": "t2", "token": "bobs", "expiry": 1}))
    office.desk.answer("POST /api/access/logon", say_user("bob@acme.example"))
    with pytest.raises(errors.ConfigError, match="1 file"):
        await office.log_on(username="bob")
    assert office.paths.database.exists()
    assert office.bearer() == kept
    assert Account.load(office.paths).username == "alice"


async def test_a_logon_in_another_terminal_is_noticed(office: Office) -> None:
    """Files that the new user saved meanwhile are not given to a user with a slower logon."""
    await office.log_on()
    bob = msgspec.structs.replace(Account.load(office.paths), username="bob", user_id="bob")

    class DaemonTimeout(Person):
        def password(self) -> Secret:
            bob.save(office.paths)
            office.paths.database.write_bytes(b"x")
            return super().password()

    office.person, office.meanwhile = DaemonTimeout(), Backlog(1, 7)
    with pytest.raises(errors.ConfigError, match=r"1 file .* of bob at"):
        await office.log_on()
    assert Account.load(office.paths) == bob


async def test_files_without_names_are_not_left_to_another_user(office: Office) -> None:
    """Files in lost+found exist nowhere else."""
    await office.log_on()
    office.lost = 2
    office.desk.answer("POST /api/access/logon", say_user("bob@acme.example"))
    with pytest.raises(errors.ConfigError, match=r"2 files in lost\+found"):
        await office.log_on(username="bob")
    office.lost, office.wanted = 0, 1
    with pytest.raises(errors.ConfigError, match="1 file of local_only"):
        await office.log_on(username="bob")


async def test_bytes_without_an_owner_are_not_left_to_anybody(office: Office) -> None:
    """If the account files and the database are lost, the next mount shows the bytes that wait."""
    await office.log_on()
    office.paths.account_file.unlink()
    office.paths.account_copy.unlink()
    office.lost = 1
    kept = office.bearer()
    with pytest.raises(errors.ConfigError, match=r"the owner of 1 file in lost\+found"):
        await office.log_on(username="bob")
    assert office.bearer() == kept
    assert not office.paths.account_file.exists()
    office.lost = 0
    await office.log_on(username="bob")


async def test_the_owner_is_known_with_a_damaged_file(office: Office) -> None:
    """The same user can log on, another one does not get the pending files."""
    await office.log_on()
    office.paths.database.write_bytes(b"x")
    office.paths.account_file.write_bytes(b"\0" * 40)
    office.backlog = Backlog(1, 7)
    await office.log_on()
    office.paths.account_file.unlink()
    office.desk.answer("POST /api/access/logon", say_user("bob@acme.example"))
    with pytest.raises(errors.ConfigError, match="of alice at"):
        await office.log_on(username="bob")
    office.paths.account_copy.unlink()
    with pytest.raises(errors.ConfigError, match="the owner of 1 file"):
        await office.log_on(username="bob")
    office.backlog = Backlog()
    await office.log_on(username="bob")
    assert not office.paths.database.exists()


async def test_a_mounted_account_is_not_taken_over(office: Office) -> None:
    """The daemon still works with the former user's data."""
    await office.log_on()
    office.running = True
    with pytest.raises(errors.ConfigError, match="mounted"):
        await office.log_on("https://other.example")


class Ring(Memory):
    """Keyring that may be locked."""

    kind = "keyring"


async def test_a_keyring_is_used_silently(office: Office) -> None:
    office.store = Ring()
    await office.log_on()
    assert office.told == []
    assert not office.paths.secrets_file.exists()


async def test_a_file_replaces_a_locked_keyring(office: Office) -> None:
    """A warning is printed once the logon has worked."""
    ring = Ring()
    ring.fail = KeyringTimeout("locked")
    office.store = ring
    await office.log_on()
    assert office.paths.secrets_file.exists()
    assert len(office.told) == 1


@pytest.mark.parametrize("file", ["database", "keyring_mark"])
async def test_a_locked_keyring_with_secrets_of_the_account_is_waited_for(
    office: Office, file: str
) -> None:
    """A new place would have a new key, and make the outbox unreadable.

    The former token and the saved password would stay in the keyring, even after a logoff. Over
    SSH, the keyring may be out of reach.
    """
    await office.log_on()
    getattr(office.paths, file).write_bytes(b"x")
    ring = Ring()
    ring.fail = KeyringTimeout("locked")
    office.store = ring
    with pytest.raises(KeyringTimeout) as refused:
        await office.log_on()
    assert refused.value.remedy.endswith("; if you cannot, use another --account")


async def test_a_token_of_systemd_is_not_replaced(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before a password is typed."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    credential = tmp_path / "zonedrive.work.bearer"
    credential.write_text("x")
    office.store = CredentialsStore("work", office.store)
    with pytest.raises(errors.StoreError, match="systemd"):
        await office.log_on()
    assert office.person.wanted == []
    credential.rename(credential.with_name("zonedrive.work.password"))
    await office.log_on()  # a password alone is no logon yet
    assert office.bearer().secret == TOKEN


async def test_a_password_is_kept_where_that_was_asked_for(office: Office) -> None:
    """The password is stored if the logon requests it, until a later logon does not request it."""
    account = await office.log_on(save_password=True)
    assert account.keeps_password
    assert Account.load(office.paths) == account
    assert office.store.get("password") == Secret(PASSWORD)
    assert "--save-password" in account.logon_command()
    assert not (await office.log_on()).keeps_password
    assert office.store.get("password") is None


async def test_a_logon_clears_an_earlier_refusal(office: Office) -> None:
    """After a logon the password counts as untried again."""
    office.store.set("refused", Secret("{}"))
    await office.log_on(save_password=True)
    assert office.store.get("refused") is None


async def test_an_organization_may_forbid_to_keep_the_password(office: Office) -> None:
    """The logon continues without storing the password, and says so."""
    office.desk.answer(
        "GET /api/access/authorizationrequirements", say(200, {"canSavePassword": False})
    )
    account = await office.log_on(save_password=True)
    assert not account.keeps_password
    assert office.store.get("password") is None
    assert any("not saved" in line and "forbids" in line for line in office.told)
    assert office.bearer().secret == TOKEN


async def test_without_a_keyring_the_place_of_the_password_is_reported(office: Office) -> None:
    """The message says that the file is next to the token, readable only by its owner."""
    await office.log_on(save_password=True)
    assert any("the password beside it" in line for line in office.told)
    for file in office.paths.state.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


async def test_a_default_authority_that_cannot_be_read_prevents_no_logon(office: Office) -> None:
    """The user is warned, and the system's authorities are used; a policy would be closed."""
    account = await office.log_on(default_ca_file="/nonexistent/ca.pem")
    assert account.ca_file is None
    assert office.opened == [(BASE, None)]
    assert any(
        line.startswith("/nonexistent/ca.pem does not exist; ask the administrator")
        for line in office.told
    )


async def test_the_previous_profile_is_used_again_unless_it_is_published(office: Office) -> None:
    """An account from the time before the organization had a profile gets this profile."""
    assert (await office.log_on(profile="published")).profile == "published"
    assert (await office.log_on(default_profile="sandbox")).profile == "sandbox"
    assert (await office.log_on(default_profile="published")).profile == "sandbox"


async def test_a_profile_file_that_is_not_used_is_named(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packaged profile of the same name is used."""
    monkeypatch.setattr(load, "SYSTEM_FOLDER", tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "sandbox.toml").touch()
    await office.log_on(profile="sandbox")
    assert any("sandbox.toml is not used, because" in line for line in office.told)
