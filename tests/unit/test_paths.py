"""Folders that a policy of the organization puts outside of the home folders, and private files."""

import errno
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from zonedrive import config, paths
from zonedrive.cli import control_client, error_messages
from zonedrive.daemon.lock import Lock
from zonedrive.errors import ConfigError, NoHomeDirectory
from zonedrive.paths import (
    AccountPaths,
    not_moved,
    note_state_dir,
    own_subfolder,
    policy_folders,
    require_policy_folders,
    sync_file_system,
    write_private,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[policy]\nstate_dir = "/var/lib/z"\ncache_dir = "/z"', ["state_dir", "cache_dir"]),
        ('[policy]\nencrypt = "perhaps"\nstate_dir = "/var/lib/z"', ["state_dir"]),
        ('[policy]\nstate_dir = "relative"\ncache_dir = 1', []),
        ('[policy]\nstate_dir = "/a\\u0000b"\ncache_dir = "/a\\u0000b"', []),
        ('state_dir = "/var/lib/z"', []),
        ("policy = 1", []),
        ("[policy", []),
        ("", []),
    ],
)
def test_a_policy_names_the_folders(tmp_path: Path, text: str, found: list[str]) -> None:
    """Only absolute paths in [policy] count, whatever else in the file is wrong."""
    (tmp_path / "config.toml").write_text(text)
    assert list(policy_folders(tmp_path / "config.toml")) == found
    system = config.organization("default", tmp_path)
    assert {name for name in system.policy if name.endswith("_dir")} == set(found)


def test_without_a_file_there_is_no_such_policy(tmp_path: Path) -> None:
    """The XDG variables and the home folder apply."""
    assert policy_folders(tmp_path / "config.toml") == {}
    os.mkfifo(tmp_path / "pipe")  # it would never end
    assert policy_folders(tmp_path / "pipe") == {}


def test_a_folder_for_all_users_is_like_tmp(tmp_path: Path) -> None:
    """A folder that is missing, or in which users can replace each other's, is refused."""
    folder = tmp_path / "all"
    with pytest.raises(ConfigError, match="state_dir of the organization, does not exist"):
        require_policy_folders({"state_dir": folder})
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="replace each other's folders"):
        require_policy_folders({"cache_dir": folder})
    folder.chmod(0o1777)
    require_policy_folders({"state_dir": folder, "cache_dir": folder})


def test_a_folder_for_all_users_in_which_one_cannot_have_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The administrator is asked, unless the administrator has created the user's folder."""
    folder = tmp_path / "all"
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, _mode: path != folder)
    with pytest.raises(ConfigError, match=r"cache_dir .* cannot have a folder of") as refused:
        require_policy_folders({"cache_dir": folder})
    assert f"'install -d -m 1777 {folder}'" in refused.value.line()
    (folder / str(os.geteuid())).mkdir()
    require_policy_folders({"cache_dir": folder})


@pytest.mark.parametrize("kind", ["foreign", "link", "file"])
def test_a_subfolder_that_another_user_has_created(tmp_path: Path, kind: str) -> None:
    """A user's subfolder is refused if another user has created it, or if it is no folder."""
    own = tmp_path / str(os.geteuid())
    assert own_subfolder(tmp_path) == own
    own.mkdir()
    assert own_subfolder(tmp_path) == own
    own.rmdir()
    if kind == "link":
        own.symlink_to(tmp_path)
    elif kind == "file":
        own.touch()
    else:
        assert os.geteuid() == 0, "run the tests as root or with sudo: another user is needed"
        own.mkdir()
        os.chown(own, 65534, 65534)
    with pytest.raises(NoHomeDirectory, match="is not a folder of this user"):
        own_subfolder(tmp_path)


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_private_file_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    """The content is synced before the rename, and the name after the rename."""
    file, synced, fsync = tmp_path / "secrets.json", [], os.fsync
    if before is not None:
        file.write_bytes(before)

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        content = file.read_bytes() if file.exists() else None
        synced.append((os.path.isdir(descriptor), content))  # noqa: PTH112 - a descriptor

    monkeypatch.setattr(os, "fsync", noted)
    write_private(file, b"new")
    assert synced == [(False, before), (True, b"new")]


def test_a_file_system_is_flushed(tmp_path: Path) -> None:
    """The flush of a file system succeeds; that of a missing folder fails."""
    sync_file_system(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_file_system(tmp_path / "missing")


@pytest.mark.parametrize("policy", ['state_dir = "{b}"', "", "encrypt = true"])
def test_an_account_stays_where_the_former_policy_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Otherwise, another logon would hide its pending changes; a broken policy decides nothing."""
    etc, a, b = (tmp_path / name for name in ("etc", "a", "b"))
    etc.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(paths, "SYSTEM_FOLDER", etc)
    monkeypatch.setattr(
        paths, "policy_folders", lambda: policy_folders.__wrapped__(etc / "config.toml")
    )
    account = AccountPaths("default")

    def set_policy(text: str) -> None:
        (etc / "config.toml").write_text(text)

    set_policy(f'[policy]\nstate_dir = "{a}"\n')
    write_private(account.account_file, b"{}")
    for _ in range(2):
        note_state_dir()
    assert not_moved(account) is None
    former = account.state
    set_policy("[policy]\n" + policy.format(b=b))
    moved = not_moved(account)
    assert moved is not None
    assert f"is in {former}, and" in moved.message
    assert f"mv {former} {account.state}'" in moved.line()
    assert not_moved(AccountPaths("other")) is None
    for broken in ("[policy", '[policy]\nstate_dir = "relative"', "policy = 1"):
        set_policy(broken)
        assert not_moved(account) is None
    set_policy("")
    account.state.parent.mkdir(parents=True, exist_ok=True)
    former.rename(account.state)
    assert not_moved(account) is None


def test_a_daemon_from_before_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the folder and socket of the running daemon; later, the account must move."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(paths, "SYSTEM_FOLDER", tmp_path / "etc")
    monkeypatch.setattr(paths, "policy_folders", dict)
    before = AccountPaths("default")
    write_private(before.account_file, b"{}")
    daemon = Lock(before.lock, "default")
    daemon.take(None)
    monkeypatch.setattr(paths, "policy_folders", lambda: {"state_dir": tmp_path / "all"})
    during = AccountPaths("default")
    assert (during.state, during.control) == (before.state, before.control)
    assert not_moved(during) is None
    assert [each.account for each in control_client.accounts()] == ["default"]
    daemon.release()
    assert during.state == before.state  # a logoff goes on after it has ended the daemon
    after = AccountPaths("default")
    assert after.state == tmp_path / "all" / str(os.geteuid()) / "default"
    assert not_moved(after) is not None
    assert control_client.accounts() == []


def test_a_home_without_a_list_of_state_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home folder that cannot be written prevents nothing."""
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(paths, "policy_folders", lambda: {"state_dir": tmp_path / "state"})
    note_state_dir()
    assert not_moved(AccountPaths("default")) is None


def test_an_account_whose_folder_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its paths are known, it does not count as logged off, and other accounts can be used."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("default", "work"):
        write_private(AccountPaths(name).account_file, b"{}")
    closed, real = AccountPaths("default").state, os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if closed in Path(path).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    account = AccountPaths("default")
    assert account.lock == closed / "daemon.lock"
    assert account.is_logged_on
    assert [each.account for each in control_client.accounts()] == ["default", "work"]
    assert control_client.serving(tmp_path) is None
    with pytest.raises(control_client.NoDaemon):
        control_client.ask(account, {"command": "status"})


def test_a_limit_of_file_sizes_is_not_a_full_disk(tmp_path: Path) -> None:
    """The error of a short write is that of the next write."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as wrong:
            paths.require_room(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "ulimit -f" in error_messages.line(wrong.value)
