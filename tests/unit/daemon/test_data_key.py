"""Data key of a mount, when the secret store has lost it."""

import json
import threading

import pytest
import trio
import trio.testing

from tests.unit.logon.test_bearer_auth import Memory
from tests.unit.logon.test_secrets import Ring
from zonedrive.daemon import data_key
from zonedrive.daemon.data_key import DataKey
from zonedrive.errors import StoreError
from zonedrive.logon.account_lock import locked
from zonedrive.logon.keys import kept_key
from zonedrive.logon.secrets import FileStore, KeyringLocked, KeyringStore, Secret
from zonedrive.paths import AccountPaths

KEY, OTHER = bytes(32), bytes(31) + b"1"


@pytest.fixture
def paths(paths: AccountPaths, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """Return the paths of an account with a database, without a keyring."""
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    paths.state.mkdir(parents=True)
    paths.database.touch()
    return paths


class Failing(Memory):
    """Store whose reads or writes fail."""

    def __init__(self, reading: StoreError | None = None, writing: StoreError | None = None):
        super().__init__()
        self.reading, self.writing = reading, writing

    def get(self, name: str) -> Secret | None:
        """Return the secret, or fail."""
        if self.reading:
            raise self.reading
        return super().get(name)

    def set(self, name: str, value: Secret) -> None:
        """Store the secret, or fail."""
        if self.writing:
            raise self.writing
        super().set(name, value)


async def test_a_lost_key_is_stored_again(paths: AccountPaths) -> None:
    """The other secrets stay; without secrets, the file is created again."""
    key = DataKey(paths, KEY)
    FileStore(paths.secrets_file).set("bearer", Secret("secret"))
    await key.keep()
    assert json.loads(paths.secrets_file.read_text()).keys() == {"bearer", "key"}
    paths.secrets_file.unlink()
    await key.keep()
    assert kept_key(FileStore(paths.secrets_file)) == KEY
    assert key.problem is None


async def test_without_encryption_there_is_no_key(paths: AccountPaths) -> None:
    """Nothing is stored."""
    await DataKey(paths, None).keep()
    assert not paths.secrets_file.exists()


async def test_another_key_is_not_replaced(paths: AccountPaths) -> None:
    """The problem ends when the former key is stored again."""
    key, store = DataKey(paths, KEY), FileStore(paths.secrets_file)
    await key.keep()
    before = paths.secrets_file.read_bytes()
    store.delete("key")
    other = DataKey(paths, OTHER)
    await other.keep()
    await key.keep()
    assert key.problem is not None and "another data key is stored" in key.problem.message
    assert kept_key(store) == OTHER
    paths.secrets_file.write_bytes(before)
    await key.keep()
    assert key.problem is None


@pytest.mark.parametrize("change", ["logged off", "replaced"])
async def test_a_key_is_not_stored_for_another_database(paths: AccountPaths, change: str) -> None:
    """A logoff, or another state folder at the same path, happens while the check waits."""
    key = DataKey(paths, KEY)
    async with trio.open_nursery() as nursery:
        with locked(paths):
            nursery.start_soon(key.keep)
            await trio.testing.wait_all_tasks_blocked()
            paths.state.rename(paths.state.with_name("was"))
            if change == "replaced":
                paths.state.mkdir()
                paths.database.touch()
    assert not paths.secrets_file.exists()
    assert key.problem is None


async def test_a_store_that_fails(paths: AccountPaths) -> None:
    """A locked keyring still has the key; a key that is missing and cannot be stored is lost."""
    store = Failing(KeyringLocked("the keyring is locked"))
    key = DataKey(paths, KEY, lambda paths: store)
    await key.keep()
    assert key.problem is None
    store.reading, store.writing = None, StoreError("no room", remedy="make room")
    await key.keep()
    assert key.problem is not None
    assert key.problem.line() == (
        "the account's data key is not stored, so an unmount makes the local data unreadable:"
        " no room; make room"
    )
    store.writing = None
    await key.keep()
    assert key.problem is None and kept_key(store) == KEY


async def test_an_emptied_keyring(paths: AccountPaths) -> None:
    """The key is stored again in the keyring."""
    ring = Ring()
    key = DataKey(paths, KEY, lambda paths: KeyringStore(ring, "work", paths.keyring_mark))
    await key.keep()
    kept = dict(ring.kept)
    assert len(kept) == 1
    ring.kept.clear()
    await key.keep()
    assert ring.kept == kept


async def test_a_stopped_process_with_the_lock_blocks_only_one_thread(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads that sync and upload files stay free, however long the process is stopped."""
    key, usual = DataKey(paths, KEY), trio.to_thread.current_default_thread_limiter()
    with monkeypatch.context() as patch, locked(paths):
        patch.setattr(data_key, "SECONDS", 0.01)
        await key.keep()
        before = threading.active_count()
        for _ in range(3):
            await key.keep()
        assert threading.active_count() <= before
        assert usual.borrowed_tokens == 0
    await key.keep()
    assert kept_key(FileStore(paths.secrets_file)) == KEY
