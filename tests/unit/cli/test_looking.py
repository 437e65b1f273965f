"""`status`, `sync`, `zones` and the history of files, as people and programs see them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.stand_in import DONE, STATUS, URL, ZONES, StandIn, daemon, log_on, run
from tests.unit.fuse.mounted import MemoryMount
from zonedrive import errors
from zonedrive.cipher import Clear
from zonedrive.cli import control_client, window
from zonedrive.cli.control_client import resolve
from zonedrive.cli.files import _version, require_replaceable
from zonedrive.db import Database
from zonedrive.fuse import mountpoint
from zonedrive.logon.bearer_auth import Bearer, save_bearer
from zonedrive.logon.secrets import open_store
from zonedrive.paths import AccountPaths
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import Conflict, IntentTable
from zonedrive.state.schema import SCHEMAS

AT = "2026-11-21T14:03:07+00:00"


def _answered(*arguments: str) -> Any:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_status_is_one_object(stand_in: StandIn) -> None:
    """`status --json` prints the object of the contract, and nothing else."""
    assert _answered("status", "--json") == STATUS


def test_the_text_of_status(stand_in: StandIn) -> None:
    """The text has the state, the outbox, the cache and each upload."""
    shown = run("status").stdout
    assert "mounted at /proc, online" in shown
    assert "1 pending, 1 uploading (3.3 MiB)" in shown
    assert "1.0 KiB of 10 GiB" in shown
    assert "Zone/Ünï/b.txt" in shown and "later" in shown
    assert "\x1b" not in shown


def test_status_without_a_daemon_is_the_same_object() -> None:
    """The object has every field without a mount, too."""
    log_on()
    found = _answered("status", "--json")
    assert set(found) == set(STATUS)
    assert (found["mountpoint"], found["pid"], found["state"]) == (None, None, "offline")
    assert found["outbox"] == {
        "pending": 0, "uploading": 0, "failed": 0, "conflicts": 0, "bytes": 0,
    }  # fmt: skip
    assert found["base_url"] == URL
    assert "not mounted" in run("status").stdout


def test_status_without_a_daemon_and_with_wrong_settings(home: Path) -> None:
    """Only the limit of the cache depends on the settings; one line names the mistake."""
    paths = log_on()
    (home / "config_home/zonedrive").mkdir(parents=True)
    (home / "config_home/zonedrive/config.toml").write_text("settle = 1\nclose = 5\n")
    found = _answered("status", "--json")
    assert set(found) == {*STATUS, "notice"}
    assert "config.toml:2: close" in found["notice"] and "\n" not in found["notice"]
    shown = run("status")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("everything is on the service\n")
    assert "config.toml:2: close" in shown.stdout
    assert paths.account in shown.stdout


REFUSED = [{"path": "Z/a", "error": "refused"}]


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (DONE, 0, ""),
        (DONE | {"exit": 1, "failed": REFUSED,
                 "left": {"files": 1, "bytes": 5}}, 1, "zonedrive: Z/a: refused\n"),
        (DONE | {"exit": 4, "reason": "it is away", "left": {"files": 2, "bytes": 5000}}, 4,
         "zonedrive: 2 files (4.9 KiB) not on the service yet: it is away\n"),
        (DONE | {"exit": 4, "reason": "it is away", "remedy": "wait", "failed": REFUSED,
                 "left": {"files": 3, "changes": 1, "bytes": 7}}, 4,
         "zonedrive: Z/a: refused\n"
         "zonedrive: 2 files (7 bytes) and 1 change (new folders, renames, removals) not on the"
         " service yet: it is away; wait\n"),
        (DONE | {"exit": 1, "left": {"files": 2, "changes": 2, "bytes": 0}}, 1,
         "zonedrive: 2 changes (new folders, renames, removals) not on the service yet\n"),
        (DONE | {"exit": 1, "left": {"files": 1, "bytes": 1}}, 1,
         "zonedrive: 1 file (1 byte) not on the service yet\n"),
        (errors.NotLoggedOn("log on again"), 3, "zonedrive: log on again\n"),
        (errors.Unreachable("gone"), 4, "zonedrive: gone\n"),
    ],
)  # fmt: skip
def test_exit_codes_of_sync(
    stand_in: StandIn, answer: dict[str, Any] | Exception, code: int, said: str
) -> None:
    """Each code but 0 has a line with the remedy; a removal is not counted as a file."""
    stand_in.answers["sync"] = answer
    done = run("sync", "--timeout", "7")
    assert (done.returncode, done.stderr) == (code, said)
    assert stand_in.asked == [{"command": "sync", "paths": [], "timeout": 7.0}]


def test_sync_names_a_conflict_copy_and_counts_it_as_done(stand_in: StandIn) -> None:
    """A conflict copy is reported and does not count as a failure."""
    stand_in.answers["sync"] = DONE | {"conflicts": ["Z/a (conflict).txt"]}
    done = run("sync")
    assert done.returncode == 0
    assert "Z/a (conflict).txt" in done.stdout


def test_zones_is_an_array(stand_in: StandIn) -> None:
    """`zones --json` has the contract's fields; a zone outside the mount has no path."""
    assert _answered("zones", "--json") == ZONES
    told = run("zones", "--help").stdout
    assert all(f'"{name}"' in told for name in ZONES[0])


def test_zones_are_shown_as_a_table_that_cannot_steer_the_terminal(stand_in: StandIn) -> None:
    """Control characters in a name from the service are escaped."""
    shown = run("zones").stdout
    assert "Project X" in shown and "2.0 KiB" in shown
    assert "web application only" in shown
    assert "\x1b" not in shown


def test_zones_without_a_daemon_asks_the_service() -> None:
    """Without a mount, a service that cannot be reached is an error."""
    paths = log_on()
    save_bearer(open_store(paths), Bearer("t0ken", "token"))
    failed = run("zones")
    assert (failed.returncode, failed.stdout) == (4, "")
    assert failed.stderr.count("\n") == 1 and "127.0.0.1:1" in failed.stderr
    assert "t0ken" not in failed.stderr


@pytest.mark.parametrize("name", ["zones", "trash"])
def test_a_list_comes_from_the_service_if_the_mount_ends(stand_in: StandIn, name: str) -> None:
    """The command asks the service, which is unreachable here."""
    save_bearer(open_store(AccountPaths("default")), Bearer("t0ken", "token"))
    stand_in.answers[name] = errors.MountEnded("the mount has ended")
    failed = run(name)
    assert failed.returncode == 4, failed.stderr


def test_a_restore_is_not_repeated_if_the_mount_ends(stand_in: StandIn) -> None:
    """The daemon may have restored the entry, which is then not in the trash any more."""
    save_bearer(open_store(AccountPaths("default")), Bearer("t0ken", "token"))
    stand_in.answers["restore"] = errors.MountEnded("the mount has ended")
    failed = run("restore", "old.txt")
    assert (failed.returncode, failed.stderr) == (1, "zonedrive: the mount has ended\n")


def test_conflicts_without_a_mount() -> None:
    """The conflict copies are read from the database, which a mount leaves."""
    paths = log_on()
    database = Database.open(paths.database, SCHEMAS)
    inodes, log = Inodes.open(database, Clear()), IntentTable(database).conflicts
    with database.transaction():
        copy = inodes.add(ROOT, "a (c).txt", Kind.FILE, zone="z")
        log.add(Conflict(copy.ino, copy.ino, "bob@x", 0))
    database.close()
    assert _answered("conflicts", "--json") == [
        {
            "path": "a (c).txt",
            "original": "a (c).txt",
            "by": "bob@x",
            "at": "1970-01-01T00:00:00+00:00",
        }
    ]


def test_conflicts_trash_and_restore(stand_in: StandIn) -> None:
    """The lists are tables, or arrays with --json."""
    conflict = {"path": "Z/a (c).txt", "original": "Z/a.txt", "by": "bob@x", "at": AT}
    entry = {
        "zone": "Z", "id": "e1", "name": "old.txt", "folder": False, "size": 3, "modified": AT,
        "modified_by": "bob@x",
    }  # fmt: skip
    stand_in.answers |= {
        "conflicts": {"conflicts": [conflict]},
        "trash": {"entries": [entry]},
        "restore": {"restored": [{"path": "Z/old.txt", "left": 0}, "Z/former daemon's"]},
    }
    assert _answered("conflicts", "--json") == [conflict]
    assert _answered("trash", "--json") == [entry]
    assert "Z/a (c).txt" in run("conflicts").stdout
    stand_in.answers["conflicts"] = {"conflicts": [conflict | {"original": ""}]}
    shown = run("conflicts").stdout
    assert "removed later" in shown and "deleted" not in shown
    stand_in.answers["conflicts"] = {"conflicts": [conflict | {"original": conflict["path"]}]}
    assert "replaced the version of bob@x" in run("conflicts").stdout
    assert "old.txt" in run("trash", "--zone", "Z").stdout
    assert run("restore", "old.txt", "--zone", "Z").stdout == (
        "restored Z/old.txt\nrestored Z/former daemon's\n"
    )
    assert stand_in.asked[-1] == {"command": "restore", "zone": "Z", "entries": ["old.txt"]}


def test_a_daemon_from_before_an_upgrade_is_named(stand_in: StandIn) -> None:
    """The error of a command that an old daemon does not know says how to start the new one."""
    stand_in.answers["trash"] = errors.ZonedriveError("there is no command 'trash'")
    failed = run("trash")
    assert failed.returncode == 1
    assert failed.stderr.startswith("zonedrive: the daemon of account default was started before")
    assert "run 'zonedrive unmount " in failed.stderr and failed.stderr.count("\n") == 1


@pytest.mark.parametrize("columns", ["40", "80"])
@pytest.mark.parametrize("name", ["status", "zones"])
def test_lists_fit_the_terminal(stand_in: StandIn, columns: str, name: str) -> None:
    """No line is wider than the terminal, and no text is cut off."""
    shown = run(name, COLUMNS=columns).stdout
    assert all(len(line) <= int(columns) for line in shown.splitlines())
    for word in ("Zone/a.txt", "uploading") if name == "status" else ("Project X", "application"):
        assert word in shown


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_ids_and_times_in_a_list_can_be_copied(stand_in: StandIn, columns: str) -> None:
    """`restore` asks for the id if two entries have one name."""
    number = "b37e43d4-4033-64d9-3c4a-000000000001"
    entry = {
        "zone": "Project X", "id": number, "name": "Minutes of the meeting.txt", "folder": False,
        "size": 3, "modified": "2026-11-30T18:00:00+00:00", "modified_by": "alice@acme.example",
    }  # fmt: skip
    stand_in.answers["trash"] = {"entries": [entry, entry]}
    shown = run("trash", COLUMNS=columns).stdout
    assert all(len(line) <= int(columns) for line in shown.splitlines())
    assert shown.count(number) == 2
    assert shown.count("2026-11-30") == 2


def test_a_locale_without_some_characters(stand_in: StandIn) -> None:
    """No command fails."""
    for name in ("status", "zones"):
        done = run(name, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        assert (done.returncode, done.stderr) == (0, "")


def test_a_path_finds_its_account(tmp_path: Path) -> None:
    """`status PATH` and `sync PATH` ask the daemon of the mount with the path."""
    (tmp_path / "link").symlink_to("mnt")
    with daemon(log_on("work"), tmp_path / "mnt") as work, MemoryMount(tmp_path / "mnt") as served:
        (served.path / "Zone").mkdir()
        assert run("sync", tmp_path / "link" / "Zone", tmp_path / "mnt" / "new").returncode == 0
        assert work.asked[-1]["paths"] == [str(served.path / "Zone"), str(served.path / "new")]
        assert run("status", served.path, "--account", "work").returncode == 0
        other = run("sync", served.path, "--account", "default")
        assert "belongs to account work, not default" in other.stderr
        outside = run("sync", served.path, tmp_path)
        assert (outside.returncode, outside.stdout) == (1, "")
        assert f"{tmp_path} is not in one of your zones" in outside.stderr
        assert f"mounted at {tmp_path / 'mnt'}" in outside.stderr


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("inside", ["", "Zone"])
def test_a_path_in_a_bind_mount_is_the_one_in_the_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """`status` and `sync` work, and `versions` overwrites no change, in a bind mount of a folder of
    the zones; `unmount` says what it is."""
    (tmp_path / "my bind").mkdir()
    paths, bound = log_on(), tmp_path / "my bind"
    served = MemoryMount(tmp_path / "mnt")
    try:
        (served.path / "Zone").mkdir()
        (served.path / "Zone/a").touch()
        subprocess.run(["mount", "--bind", served.path / inside, bound], check=True)
        file = bound / ("a" if inside else "Zone/a")
        refused = run("sync", file)
        expected = "is a bind mount of zones" if inside else "is unknown: its state folder"
        assert expected in refused.stderr
        with daemon(paths, served.path) as running:
            whole = mountpoint.at(served.path)
            assert whole is not None
            running.lock.announce(paths.control, whole.identity)
            assert resolve((str(file),), None) == (paths, [str(served.path / "Zone/a")])
            assert window._address("log", str(file), None) == "/a/default/log?path=Zone/a"
            place = {str(served.path / "Zone/a"): {"only_here": True}}
            monkeypatch.setattr(control_client, "ask", lambda _, asked: place[asked["path"]])
            with pytest.raises(errors.ZonedriveError, match="only on this computer"):
                require_replaceable(str(file))
            refused = run("unmount", bound)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "is a bind mount of zones" in refused.stderr
            assert f"run 'sudo umount '{bound}''" in refused.stderr
    finally:
        subprocess.run(["umount", bound], check=False)
        served.stop()


def test_a_daemon_of_an_earlier_version_prevents_no_version(tmp_path: Path) -> None:
    """A version is written to a file in a mount whose daemon cannot say whether it is uploaded."""
    with MemoryMount(tmp_path / "mnt") as served:
        (served.path / "a").write_bytes(b"x")
        with daemon(log_on(), served.path):
            require_replaceable(str(served.path / "a"))


def test_a_number_of_a_version_counts_before_an_id() -> None:
    """A service may count the ids of versions from 0, and the versions from 1."""
    found = [{"version": str(number), "id": str(number - 1)} for number in (3, 2, 1)]
    for wanted, number in (("3", "3"), ("2", "2"), ("1", "1"), ("0", "1")):
        assert _version(found, wanted)["version"] == number
    with pytest.raises(errors.NotFound, match="no version '4'; there is: 3, 2, 1"):
        _version(found, "4")
