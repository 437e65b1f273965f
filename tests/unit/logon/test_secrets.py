"""Storage of secrets, and their protection."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from zonedrive.errors import StoreError
from zonedrive.logon.secrets import (
    CredentialsStore,
    FileStore,
    Keyring,
    KeyringStore,
    KeyringTimeout,
    Secret,
    SecretStore,
    open_store,
)
from zonedrive.paths import AccountPaths

HUSH = Secret("hunter2")


class Ring:
    """Keyring in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        """Return the stored secret."""
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Store the secret."""
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Delete the secret."""
        del self.kept[service, username]


def nothing() -> Keyring | None:
    """Return no keyring."""
    return None


def test_a_secret_does_not_show_itself() -> None:
    """The secret is not in a log, in the values of a traceback or in a format string."""
    assert "hunter2" not in f"{HUSH} {HUSH!r} {[HUSH]} {{'a': HUSH}}"
    assert Secret("hunter2") == HUSH
    assert len({HUSH, Secret("hunter2")}) == 1
    assert HUSH != "hunter2"


@pytest.mark.parametrize("kind", ["file", "keyring", "credentials"])
def test_every_store_keeps_replaces_and_destroys(
    kind: str, paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each store keeps secrets by name, and separate for each account."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    beside = FileStore(paths.secrets_file)
    stores: dict[str, SecretStore] = {
        "file": beside,
        "keyring": KeyringStore(Ring(), "work", paths.keyring_mark),
        "credentials": CredentialsStore("work", beside),
    }
    store = stores[kind]
    assert store.kind == kind
    assert store.get("bearer") is None
    store.set("bearer", HUSH)
    store.set("key", Secret("k"))
    store.set("bearer", Secret("new"))
    assert store.get("bearer") == Secret("new")
    store.delete("bearer")
    store.delete("bearer")
    assert store.get("bearer") is None
    assert store.get("key") == Secret("k")


def test_the_file_is_its_owners_alone(paths: AccountPaths) -> None:
    """The file has mode 0600 in a 0700 folder, from its creation on."""
    mask = os.umask(0)
    try:
        FileStore(paths.secrets_file).set("bearer", HUSH)
    finally:
        os.umask(mask)
    assert paths.secrets_file.stat().st_mode & 0o777 == 0o600
    assert paths.secrets_file.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_of_another_user_is_refused(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other user knows its content; the remedy keeps the data key."""
    store = FileStore(paths.secrets_file)
    store.set("bearer", Secret("x"))
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(StoreError, match="belongs to another user") as refused:
        store.get("bearer")
    assert refused.value.remedy == "log in with 'su -' or 'sudo -i'"


def test_a_file_that_others_can_read_is_refused(paths: AccountPaths) -> None:
    store = FileStore(paths.secrets_file)
    store.set("bearer", HUSH)
    paths.secrets_file.chmod(0o640)
    with pytest.raises(StoreError, match="others") as refused:
        store.get("bearer")
    assert "chmod 600" in refused.value.line()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"bearer": 5}', b"\xff hunter2", b'{"bearer": "\\ud800"}', b"[" * 10**5],
)
def test_a_damaged_file_is_not_quoted(paths: AccountPaths, text: bytes) -> None:
    """The message does not contain the content."""
    store = FileStore(paths.secrets_file)
    store.set("bearer", HUSH)
    paths.secrets_file.write_bytes(text)
    with pytest.raises(StoreError, match="damaged") as refused:
        store.get("bearer")
    assert "hunter2" not in refused.value.line()
    assert refused.value.remedy.startswith("move it away")  # it may contain the data key


def test_systemds_credentials_are_read_and_never_written(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret that the unit does not have (the data key) is in our file."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "zonedrive.work.bearer").write_text("hunter2\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    store = open_store(paths, find_keyring=nothing)
    assert store.kind == "credentials"
    assert store.get("bearer") == HUSH
    with pytest.raises(StoreError, match="systemd"):
        store.set("bearer", Secret("new"))
    store.set("key", Secret("k"))
    store.delete("bearer")
    again = open_store(paths, find_keyring=Ring)
    assert (again.get("bearer"), again.get("key")) == (HUSH, Secret("k"))
    assert AccountPaths("other") != paths
    assert open_store(AccountPaths("other"), find_keyring=nothing).kind == "file"


def test_the_keyring_is_preferred_to_a_new_file(paths: AccountPaths) -> None:
    """An existing file has the secrets of the logon, so it is used further."""
    assert open_store(paths, find_keyring=nothing).kind == "file"
    assert open_store(paths, find_keyring=Ring).kind == "keyring"
    FileStore(paths.secrets_file).set("bearer", HUSH)
    assert open_store(paths, find_keyring=Ring).kind == "file"


def test_a_keyring_keeps_the_state_folders_of_a_user_apart(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account of the same name in another state folder does not share any secret."""
    ring = Ring()
    open_store(paths, find_keyring=lambda: ring).set("key", HUSH)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    other = open_store(paths, find_keyring=lambda: ring)
    assert other.get("key") is None
    other.set("key", Secret("k"))
    assert open_store(paths, find_keyring=lambda: ring).get("key") == Secret("k")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = open_store(paths, find_keyring=lambda: ring)
    assert store.get("key") == HUSH
    other.delete("key")
    assert store.get("key") == HUSH
    store.set("key", Secret("new"))
    assert len(ring.kept) == 1


def test_a_store_follows_a_later_logon(paths: AccountPaths) -> None:
    """Two stores that were opened before the first secret was stored use the same names."""
    ring = Ring()
    first, second = (open_store(paths, find_keyring=lambda: ring) for _ in range(2))
    first.set("bearer", HUSH)
    assert second.get("bearer") == HUSH
    second.set("bearer", Secret("new"))
    assert first.get("bearer") == Secret("new")
    assert len(ring.kept) == 1


def test_the_secrets_of_an_earlier_version_stay_in_use(paths: AccountPaths) -> None:
    """An empty mark stands for names without an id."""
    ring = Ring()
    ring.set_password("zonedrive", "work/key", "hunter2")
    paths.state.mkdir(parents=True)
    paths.keyring_mark.touch()
    store = open_store(paths, find_keyring=lambda: ring)
    assert store.get("key") == HUSH
    store.set("key", Secret("new"))
    assert ring.kept == {("zonedrive", "work/key"): "new"}
    store.delete("key")
    assert ring.kept == {}


def test_a_mark_that_cannot_be_read_hides_no_secret(paths: AccountPaths) -> None:
    """An error is not the same as a missing secret, which would be created again."""
    paths.keyring_mark.mkdir(parents=True)
    store = open_store(paths, find_keyring=Ring)
    with pytest.raises(StoreError, match="in-keyring cannot be read"):
        store.get("key")


def test_a_password_of_systemd_beside_other_secrets(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other secrets are in the keyring, where the logon stored them."""
    ring = Ring()
    open_store(paths, find_keyring=lambda: ring).set("key", HUSH)
    (tmp_path / "zonedrive.work.password").write_text("given\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    store = open_store(paths, find_keyring=lambda: ring)
    assert store.kind == "credentials"
    assert (store.get("password"), store.get("key")) == (Secret("given"), HUSH)
    with pytest.raises(StoreError, match="not available"):
        open_store(paths, find_keyring=nothing).get("key")


def test_a_password_is_in_a_separate_file(paths: AccountPaths) -> None:
    """A request for the token does not load the password into memory."""
    store = FileStore(paths.secrets_file)
    store.set("bearer", Secret("b"))
    store.set("password", HUSH)
    assert "hunter2" not in paths.secrets_file.read_text()
    kept = paths.state / "password.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.chmod(0o644)
    with pytest.raises(StoreError, match="others"):
        store.get("password")
    kept.chmod(0o600)
    store.delete("password")
    assert not kept.exists()


KILLED = """
import os, sys
from pathlib import Path
from zonedrive.logon.secrets import FileStore, Secret
Path.replace = lambda *_: os._exit(9)
FileStore(Path(sys.argv[1])).set(sys.argv[2], Secret("hunter2"))
"""


@pytest.mark.parametrize("name", ["bearer", "password"])
@pytest.mark.parametrize("again", [False, True])
def test_a_killed_process_leaves_no_secret(paths: AccountPaths, name: str, again: bool) -> None:
    """A deleted password or token would stay in a temporary file that nothing else removes."""
    command = [sys.executable, "-c", KILLED, str(paths.secrets_file), name]
    assert subprocess.run(command, check=False).returncode == 9
    store = FileStore(paths.secrets_file)
    if again:
        store.set(name, Secret("new"))
    else:
        store.delete(name)
    assert not [each for each in paths.state.iterdir() if "hunter2" in each.read_text()]


def test_a_link_is_not_followed(paths: AccountPaths, tmp_path: Path) -> None:
    """The target of a link is not protected by our folder."""
    other = tmp_path / "other.json"
    other.write_text('{"bearer": "planted"}')
    other.chmod(0o600)
    paths.state.mkdir(parents=True)
    paths.secrets_file.symlink_to(other)
    with pytest.raises(StoreError, match="cannot be read"):
        FileStore(paths.secrets_file).get("bearer")


def test_opening_writes_nothing(paths: AccountPaths) -> None:
    """A read-only command writes no files."""
    open_store(paths, find_keyring=nothing)
    assert not paths.state.exists()


def test_a_locked_keyring_does_not_hang(paths: AccountPaths) -> None:
    """An unlock dialog waits for the user, but our call returns, and is not repeated meanwhile."""
    door = threading.Event()
    asked: list[str] = []

    class Waiting(Ring):
        def get_password(self, service: str, username: str) -> str | None:
            asked.append(username)
            door.wait(60)
            return "open"

    paths.state.mkdir(parents=True)
    paths.keyring_mark.write_text("0a")
    store = KeyringStore(Waiting(), "work", paths.keyring_mark, seconds=0.05)
    for _ in range(3):
        with pytest.raises(KeyringTimeout):
            store.get("bearer")
    eventually(lambda: asked == ["work/0a/bearer"], what="it is asked")
    door.set()
    assert store._last is not None
    store._last.result(60)
    store._seconds = 60.0
    assert store.get("bearer") == Secret("open")


def test_a_broken_keyring_is_one_line(paths: AccountPaths) -> None:
    """The text of the exception could contain the secret."""

    class Broken(Ring):
        def get_password(self, service: str, username: str) -> str | None:
            raise RuntimeError("hunter2")

    with pytest.raises(StoreError, match="RuntimeError") as refused:
        KeyringStore(Broken(), "work", paths.keyring_mark).get("bearer")
    assert "hunter2" not in refused.value.line()


class Refusing(Ring):
    """Keyring whose prompt the user dismisses when a secret is stored."""

    def set_password(self, service: str, username: str, password: str) -> None:
        """Refuse the secret."""
        raise RuntimeError("dismissed")


def test_a_keyring_that_refuses_the_first_secret_is_not_required_later(paths: AccountPaths) -> None:
    """The keyring has no secret of the account, so a logon over SSH may use a file."""
    with pytest.raises(StoreError):
        open_store(paths, find_keyring=Refusing).set("bearer", HUSH)
    assert open_store(paths, find_keyring=nothing).kind == "file"


def test_a_keyring_that_refuses_a_later_secret_has_the_earlier_ones(paths: AccountPaths) -> None:
    """A new logon must not create a second data key in a file."""
    ring, refusing = Ring(), Refusing()
    open_store(paths, find_keyring=lambda: ring).set("key", HUSH)
    refusing.kept = ring.kept
    with pytest.raises(StoreError):
        open_store(paths, find_keyring=lambda: refusing).set("bearer", Secret("b"))
    assert open_store(paths, find_keyring=nothing).kind == "keyring"
    assert open_store(paths, find_keyring=lambda: ring).get("key") == HUSH


def test_a_keyring_that_may_store_the_first_secret_later_stays_in_use(paths: AccountPaths) -> None:
    """The user may answer its prompt after the logon has failed."""
    door, ring = threading.Event(), Ring()

    class Waiting(Ring):
        def set_password(self, service: str, username: str, password: str) -> None:
            door.wait(60)
            ring.set_password(service, username, password)

    store = KeyringStore(Waiting(), "work", paths.keyring_mark, seconds=0.05)
    with pytest.raises(KeyringTimeout):
        store.set("key", HUSH)
    door.set()
    assert store._last is not None
    store._last.result(60)
    assert open_store(paths, find_keyring=lambda: ring).get("key") == HUSH
