"""Stores of a daemon, opened and recovered."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import trio

from tests.crash import damage
from tests.unit.logon.test_bearer_auth import PickyService, ask
from tests.unit.logon.test_secrets import Ring
from tests.unit.state.disk import SILENT
from zonedrive.cipher import Clear
from zonedrive.config import Settings
from zonedrive.daemon.compose import Parts, build, open_state
from zonedrive.errors import StoreError
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, save_bearer
from zonedrive.logon.renewal import Outcome, RenewalRequest
from zonedrive.logon.secrets import KeyringLocked, open_store
from zonedrive.paths import AccountPaths
from zonedrive.state import repair
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.repair import REPAIR


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Return an account with a logon, and a password that the renewal process can use."""
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME"):
        monkeypatch.setenv(f"XDG_{name}", os.fspath(tmp_path))
    found = Account(
        name="default", base_url="https://zones.example", username="alice", keeps_password=True
    )
    found.save(AccountPaths("default"))
    return found


def find_keyrings(monkeypatch: pytest.MonkeyPatch, find: Callable[[bool], Ring | None]) -> None:
    """Let `find` return the desktop's keyring; its argument is True if a prompt is allowed."""
    for module in ("zonedrive.logon.secrets", "zonedrive.daemon.data_key"):
        monkeypatch.setattr(
            f"{module}.desktop_keyring", lambda *, may_prompt=True: find(may_prompt)
        )


def close(parts: Parts) -> None:
    """Close the databases."""
    parts.state.cache._index.close()
    parts.state.database.close()


def test_a_daemon_uses_the_store_of_a_later_logon(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged secrets file is moved away, as its error says; the next logon uses a keyring."""
    found: list[Ring] = []
    find_keyrings(monkeypatch, lambda _: found[0] if found else None)
    paths = AccountPaths("default")
    save_bearer(open_store(paths), Bearer("old", "session"))
    parts = build(account, Settings(encrypt=False), paths)
    paths.secrets_file.rename(tmp_path / "away")
    found.append(Ring())
    save_bearer(open_store(paths), Bearer("new", "session"))
    assert ask(parts.auth, PickyService("new")) == 200

    def renewed(_paths: AccountPaths, _request: RenewalRequest) -> Outcome:
        save_bearer(open_store(paths), Bearer("renewed", "session"))
        return Outcome("renewed")

    parts.renewal._run = renewed
    assert parts.renewal(Bearer("new", "session")) == Bearer("renewed", "session")
    close(parts)


def test_the_start_of_a_mount_lets_the_user_unlock_the_keyring(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without encryption, the logon is the only secret that the mount needs."""
    locked = True

    class Prompting(Ring):
        """Keyring that the user unlocks when a prompt is allowed."""

        may_prompt = True

        def get_password(self, service: str, username: str) -> str | None:
            """Return the stored secret if the keyring is unlocked."""
            nonlocal locked
            locked = locked and not self.may_prompt
            if locked:
                raise KeyringLocked("the keyring is locked")
            return super().get_password(service, username)

    loud, quiet = Prompting(), Prompting()
    quiet.may_prompt, quiet.kept = False, loud.kept
    find_keyrings(monkeypatch, lambda may_prompt: loud if may_prompt else quiet)
    paths = AccountPaths("default")
    save_bearer(open_store(paths), Bearer("good", "token"))
    parts = build(account, Settings(encrypt=False), paths)
    assert parts.auth.usable() == Bearer("good", "token")
    close(parts)


@pytest.mark.parametrize("what", ["page", "row"])
def test_damage_that_a_recovery_meets_is_repaired_by_the_next_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A large database is not checked completely before the mount."""
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME"):
        monkeypatch.setenv(f"XDG_{name}", os.fspath(tmp_path))
    monkeypatch.setattr(repair, "SMALL", 0)
    paths = AccountPaths("default")

    def mounted() -> LocalState:
        return open_state(paths, Settings(), SILENT, (Clear(), None), "alice")

    state = mounted()
    with state.transaction():
        zone = state.inodes.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        for number in range(200):
            folder = state.inodes.add(
                zone.ino, f"{number}", Kind.FOLDER, zone="z", remote_id=f"{number}"
            )
            file = state.inodes.add(folder.ino, "a", Kind.FILE, zone="z", remote_id=f"{number}-a")
        if what == "row":  # above a change that waits
            state.inodes.update(file, generation=7)  # whose bytes are missing
            state.send_content(file, None, due_ns=0)
            state.database.execute("UPDATE inodes SET kind = 77 WHERE ino = ?", (folder.ino,))
    state.cache._index.close()
    state.database.close()
    if what == "page":
        damage.flatten(paths.database)
        pages = damage.pages_of(paths.database, "inodes")
        damage.overwrite(paths.database, *pages[len(pages) // 2])
    with pytest.raises(StoreError, match="is damaged") as refused:
        mounted()
    assert refused.value.remedy == REPAIR
    state = mounted()
    assert len(state.inodes.children(zone.ino)) > 100
    assert not repair.has_fault(paths.database)
    state.cache._index.close()
    state.database.close()


def keep_files(account: Account, settings: Settings, pinned: slice) -> list[Inode]:
    """Store a large tree whose files are cached, pin some of them, and return all files."""
    paths = AccountPaths("default")
    save_bearer(open_store(paths), Bearer("good", "token"))
    parts = build(account, settings, paths)
    state = parts.state
    with state.transaction():
        zone = state.inodes.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        files = [
            state.inodes.add(zone.ino, f"{number}", Kind.FILE, zone="z", remote_id=f"{number}")
            for number in range(400)
        ]
    parts.files.pins.add(*files[pinned])
    for each in files:
        state.cache.put(each.ino, "1", bytes(100))
    close(parts)
    return files


def damage_database(path: Path, what: str, ino: int) -> None:
    """Damage the row of an inode that a listing would restore, or the page with that row."""
    damage.flatten(path)
    if what == "row":
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE inodes SET kind = 77 WHERE ino = ?", (ino,))
    else:
        pages = damage.pages_of(path, "inodes")
        damage.overwrite(path, *pages[len(pages) // 2])


@pytest.mark.parametrize("what", ["page", "row"])
def test_damage_that_the_pins_meet_is_repaired_by_the_next_mount(
    account: Account, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The start of a large database reads more than `open_sound` has checked.

    A start that fails leaves the cache to the next one.
    """
    monkeypatch.setattr(repair, "SMALL", 0)
    paths, settings = AccountPaths("default"), Settings(encrypt=False)
    files = keep_files(account, settings, slice(100, 300))
    damage_database(paths.database, what, files[200].ino)
    with pytest.raises(StoreError, match="is damaged") as refused:
        build(account, settings, paths)
    assert refused.value.remedy == REPAIR
    parts = build(account, settings, paths)
    assert len(parts.files.pins.roots()) > 100
    assert not repair.has_fault(paths.database)
    assert parts.state.cache._index.is_open
    close(parts)


@pytest.mark.parametrize("what", ["page", "row"])
def test_a_daemon_evicts_content_although_the_tree_is_damaged(
    account: Account, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Content is kept if a damaged row hides whether it is pinned; other content is evicted."""
    monkeypatch.setattr(repair, "SMALL", 0)
    paths, settings = AccountPaths("default"), Settings(encrypt=False)
    files = keep_files(account, settings, slice(1))
    damage_database(paths.database, what, files[200].ino)
    parts = build(account, msgspec.structs.replace(settings, cache_size=1), paths)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(parts.files.run)
            nursery.cancel_scope.cancel()

    trio.run(run)
    left = set(parts.state.cache.inos())
    assert {files[0].ino} < left
    assert len(left) < len(files) / 2
    close(parts)
