"""Account data that a logon stores for later commands."""

import errno
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import zonedrive.paths
from zonedrive import config
from zonedrive.doctor import folders
from zonedrive.doctor.facts import DoctorFacts
from zonedrive.errors import ConfigError, ForeignFolder, NotLoggedOn, StoreError
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import Backlog, destroy, forget_data
from zonedrive.logon.secrets import FileStore, Secret
from zonedrive.paths import AccountPaths

ALICE = Account(name="work", base_url="https://zones.example", username="alice", user_id="a@acme")


def test_saving_and_loading(paths: AccountPaths) -> None:
    """The file is readable only by its owner."""
    ALICE.save(paths)
    assert Account.load(paths) == ALICE
    assert paths.account_file.stat().st_mode & 0o777 == 0o600
    ALICE.delete(paths)
    ALICE.delete(paths)
    with pytest.raises(NotLoggedOn, match="work"):
        Account.load(paths)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"name":1}', b"\xff"])
def test_a_damaged_file_is_reported(paths: AccountPaths, text: bytes) -> None:
    """The error names the file if its copy is damaged, too."""
    ALICE.save(paths)
    paths.account_file.write_bytes(text)
    assert Account.load(paths) == ALICE  # it is kept twice
    paths.account_copy.write_bytes(text)
    with pytest.raises(ConfigError, match=r"account\.json"):
        Account.load(paths)


def test_a_missing_file_has_a_copy(paths: AccountPaths) -> None:
    """Otherwise, the account could not be logged off any more."""
    ALICE.save(paths)
    paths.account_file.unlink()
    assert Account.load(paths) == ALICE


def test_a_file_that_was_edited_to_http_is_refused(paths: AccountPaths) -> None:
    """The token is never sent over a plain connection."""
    ALICE.save(paths)
    text = paths.account_file.read_bytes().replace(b"https:", b"http:")
    paths.account_file.write_bytes(text)
    with pytest.raises(ConfigError, match="plain HTTP"):
        Account.load(paths)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("base", ["CONFIG", "STATE", "CACHE"])
def test_an_account_in_a_folder_of_another_user_is_refused(
    paths: AccountPaths, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's account would send this user's password to a service of that user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ALICE.save(paths)
    folder = tmp_path / base.lower() / "zonedrive"
    folder.mkdir(exist_ok=True, parents=True)
    for each in (folder, *folder.iterdir()):
        os.chown(each, 4711, 4711)
    with pytest.raises(ForeignFolder, match="belongs to another user") as refused:
        Account.load(paths)
    assert str(folder) in refused.value.message
    assert "su -" in refused.value.remedy and f"XDG_{base}_HOME" in refused.value.remedy
    found = folders.home(DoctorFacts(paths, dict))
    assert found is not None and not found.ok and found.here == refused.value.line()


@pytest.mark.usefixtures("as_root")
def test_a_policy_folder_of_another_user_is_refused(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may have created this user's folder below the policy's folder for caches."""
    ALICE.save(paths)
    own = tmp_path / "policy" / str(os.geteuid())
    own.mkdir(parents=True)
    monkeypatch.setattr(zonedrive.paths, "policy_folders", lambda: {"cache_dir": own.parent})
    assert Account.load(paths) == ALICE
    os.chown(own, 4711, 4711)
    with pytest.raises(ForeignFolder, match="is not a folder of this user"):
        Account.load(paths)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("is_own", [True, False])
def test_the_remedy_for_a_folder_of_another_user(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """In the user's own home, the folder is the user's of before; elsewhere, the shell is wrong.

    The variable HOME is no evidence, and the remedy of each check is the same.
    """
    home = tmp_path if is_own else tmp_path / "other"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(home)))
    ALICE.save(paths)
    for folder in (paths.state.parent, paths.state, paths.outgoing):
        folder.mkdir(exist_ok=True)
        os.chown(folder, 4711, 4711)
    with pytest.raises(ForeignFolder) as refused:
        Account.load(paths)
    remedy = refused.value.remedy
    assert ("sudo chown -R" in remedy, "su -" in remedy) == (is_own, not is_own)
    assert ("as 'su'" in refused.value.message) is not is_own
    facts = DoctorFacts(paths, dict)
    assert [check and check.remedy for check in (folders.home(facts), folders.state(facts))] == [
        remedy, remedy,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"username": "Alice", "profile": "sandbox"}, True),
        ({"user_id": "A@acme"}, True),
        ({"user_id": "b@acme"}, False),
        ({"base_url": "https://other.example"}, False),
        ({"user_id": ""}, True),
        ({"user_id": "", "username": "Alice"}, True),
        ({"user_id": "", "username": "bob"}, False),
    ],
)
def test_the_owner_of_the_data(other: dict[str, str], same: bool) -> None:
    """The service's id of the user decides, if the id is known."""
    fields = {name: getattr(ALICE, name) for name in Account.__struct_fields__} | other
    assert ALICE.same_owner(Account(**fields)) is same


def fill(paths: AccountPaths) -> FileStore:
    """Store data of every kind."""
    store = FileStore(paths.secrets_file)
    store.set("bearer", Secret("b"))
    store.set("key", Secret("k"))
    ALICE.save(paths)
    for folder in (paths.content, paths.outgoing):
        folder.mkdir(parents=True)
        (folder / "bytes").write_bytes(b"x")
    for suffix in ("", "-wal", "-shm", ".logged"):
        paths.database.with_name(paths.database.name + suffix).write_bytes(b"x")
    return store


def test_another_users_data_is_forgotten_and_the_logon_kept(paths: AccountPaths) -> None:
    """Key, cache, tree and outgoing bytes are deleted."""
    store = fill(paths)
    forget_data(paths, store)
    assert store.get("key") is None
    assert store.get("bearer") == Secret("b")
    assert not paths.cache.exists()
    assert sorted(file.name for file in paths.state.iterdir()) == [
        "account.copy.json",
        "account.json",
        "secrets.json",
    ]
    forget_data(paths, store)


def test_a_logoff_leaves_nothing(paths: AccountPaths) -> None:
    """Neither folders nor secrets remain; a second logoff has no effect."""
    store = fill(paths)
    destroy(paths, store)
    assert not paths.cache.exists()
    assert not paths.state.exists()
    destroy(paths, store)


@contextmanager
def undeletable(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[Path, int | None], bool]
) -> Iterator[None]:
    """Let the removal of some files fail with EIO in the `with` block, in the order of names.

    `fails` gets the path, and the descriptor of the folder if the path is relative to it.
    """
    delete, scandir = os.unlink, os.scandir

    @contextmanager
    def by_name(folder: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as found:
            yield iter(sorted(found, key=lambda each: each.name))

    def unlink(path: str | Path, *, dir_fd: int | None = None) -> None:
        if fails(Path(path), dir_fd):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        delete(path, dir_fd=dir_fd)

    with monkeypatch.context() as failing:
        failing.setattr(os, "unlink", unlink)
        failing.setattr(os, "scandir", by_name)
        yield


@pytest.mark.parametrize("stays", ["outgoing", "database"])
def test_a_logoff_that_fails_midway_can_be_repeated(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch, stays: str
) -> None:
    """While data is left, the account is known, so that another logoff can delete the rest."""
    store = fill(paths)
    outgoing = paths.outgoing.stat().st_ino

    def fails(path: Path, folder: int | None) -> bool:
        if stays == "database":
            return path.name == paths.database.name
        return folder is not None and os.fstat(folder).st_ino == outgoing

    with undeletable(monkeypatch, fails), pytest.raises(OSError, match="Input/output"):
        destroy(paths, store)
    assert getattr(paths, stays).exists()
    assert Account.load(paths) == ALICE
    destroy(paths, store)
    assert not paths.state.exists()


def test_a_backlog_reads_well() -> None:
    assert str(Backlog(1, 7)) == "1 file (7 bytes)"
    assert str(Backlog(2, 7)) == "2 files (7 bytes)"
    changes = "(new folders, renames, removals)"
    assert str(Backlog(3, 7, 1)) == f"2 files (7 bytes) and 1 change {changes}"
    assert str(Backlog(2, 0, 2)) == f"2 changes {changes}"


def test_the_remedy_names_the_same_sign_on() -> None:
    """After a sign-on in a browser, the remedy is the same sign-on, not a password."""
    browser = msgspec.structs.replace(ALICE, sign_on=("--idp", "branch office"))
    assert browser.logon_command(session_only=True) == (
        "zonedrive logon https://zones.example --idp 'branch office' --account work --session-only"
    )
    assert "--username alice" in ALICE.logon_command()


def test_a_logoff_with_a_lost_keyring(paths: AccountPaths) -> None:
    """With --discard the other data are deleted; otherwise nothing changes."""

    class Lost(FileStore):
        def delete(self, name: str) -> None:
            raise StoreError("the keyring is not there")

    fill(paths)
    store = Lost(paths.secrets_file)
    with pytest.raises(StoreError):
        destroy(paths, store)
    assert paths.database.exists()
    assert destroy(paths, store, lost=True) == "the keyring is not there"
    assert not paths.state.exists()
    assert not paths.cache.exists()


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({}, "zonedrive logon https://zones.example --username alice --account work"),
        ({"name": "default"}, "zonedrive logon https://zones.example --username alice"),
        (
            {"username": "a b;rm -rf", "keeps_password": True},
            "zonedrive logon https://zones.example --username 'a b;rm -rf' --account work"
            " --save-password",
        ),
    ],
)
def test_the_command_to_log_on_again_can_be_pasted(fields: dict[str, str], command: str) -> None:
    """The command works in any shell, whatever the names are."""
    kept = {name: getattr(ALICE, name) for name in Account.__struct_fields__} | fields
    assert Account(**kept).logon_command() == command


def test_the_command_to_log_on_again_saves_no_password_against_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A logon with --save-password would be refused."""
    forbidding = config.Organization(policy={"save_password": False})
    monkeypatch.setattr(config, "organization", lambda account: forbidding)
    kept = msgspec.structs.replace(ALICE, keeps_password=True)
    assert kept.logon_command() == ALICE.logon_command()
