"""Results of checks in states that a test cannot produce on a real machine."""

import errno
import os
import resource
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zonedrive import __version__, config, doctor, paths
from zonedrive.cipher import Clear
from zonedrive.cli.doctor import doctor as doctor_command
from zonedrive.config import Settings
from zonedrive.daemon import local_data
from zonedrive.daemon.lock import Holder
from zonedrive.db import Database
from zonedrive.doctor import account, folders, machine, mount, report
from zonedrive.doctor.facts import CheckResult, DoctorFacts, age, local_remedy
from zonedrive.errors import (
    BadAnswer,
    NoTls,
    ProxyFailed,
    StoreError,
    TimedOut,
    Unreachable,
    ZonedriveError,
)
from zonedrive.fuse import mountpoint
from zonedrive.logon.account_data import Backlog
from zonedrive.paths import AccountPaths
from zonedrive.remote import probe
from zonedrive.remote.probe import ProbeResult
from zonedrive.remote.profiles import load
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import IntentTable
from zonedrive.state.schema import SCHEMAS

NOBODY = DoctorFacts(AccountPaths("nobody"), dict)


def facts(**known: Any) -> Any:
    """Return an object with only these facts."""
    return SimpleNamespace(**known)


def disk(free: int, total: int = 1 << 40) -> SimpleNamespace:
    """Return a result of statvfs."""
    return SimpleNamespace(
        f_frsize=1, f_bavail=free, f_blocks=total, f_flag=0, f_files=9, f_favail=9
    )


@pytest.fixture
def home(tmp_path: Path) -> Any:
    """Return the facts of an account with private folders."""
    for name in ("state", "cache", "cache/content"):
        (tmp_path / name).mkdir(mode=0o700)
    paths = SimpleNamespace(
        state=tmp_path / "state", cache=tmp_path / "cache", content=tmp_path / "cache/content",
        database=tmp_path / "state/tree.db", outgoing=tmp_path / "state/outgoing",
        account="default", option="", log=tmp_path / "state/daemon.log",
        lock=tmp_path / "state/daemon.lock", control=tmp_path / "default.sock",
    )  # fmt: skip
    return facts(
        paths=paths, settings=Settings(), account=object(), running=True, holder=None,
        other_mountpoints=set(), forbidden=None, vitals=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ahead", "ok"), [(0.0, True), (59.0, True), (-61.0, False), (3600.0, False)]
)
def test_a_clock_may_differ_a_little(ahead: float, ok: bool) -> None:
    """One-time codes work within a minute."""
    found = account.clock(facts(probe_result=ProbeResult(0.1, ahead, 100)))
    assert found is not None and found.ok == ok


def test_the_clock_difference_from_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole seconds of the Date header and the duration of the request do not count."""
    monkeypatch.setattr(time, "time", lambda: 1_000_000_000.9)
    date = "Sun, 09 Sep 2001 01:46:40 GMT"
    assert probe._ahead(date, 0.1) == 0.0
    assert probe._ahead("Sun, 09 Sep 2001 01:45:00 GMT", 0.1) == pytest.approx(100.9)
    assert probe._ahead("yesterday", 0.1) is None


@pytest.mark.parametrize(("days", "ok"), [(90.0, True), (3.0, False)])
def test_a_certificate_that_expires_soon(days: float, ok: bool) -> None:
    """A certificate is reported while there is time to renew it."""
    found = account.certificate(facts(probe_result=ProbeResult(0.1, 0.0, days)))
    assert found is not None and found.ok == ok


@pytest.mark.parametrize("kind", [TimedOut, Unreachable, ProxyFailed, NoTls, BadAnswer])
def test_the_result_for_an_unreachable_service_has_no_host_name(
    kind: type[ZonedriveError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of the error contains the host."""
    monkeypatch.setenv("https_proxy", "http://proxy.example.org")
    service = SimpleNamespace(base_url="https://example.org")
    found = account.reachable(facts(probe_result=kind("example.org"), account=service))
    assert found is not None
    assert not found.ok
    assert "example" not in found.detail + found.remedy


@pytest.mark.parametrize(
    ("problem", "new", "existing"),
    [
        ("full", "make room on the disk of the state folder, or set XDG_STATE_HOME to a folder on",
         "make room on the disk of the state folder"),
        ("nfs4", "set XDG_STATE_HOME to a folder on a disk", "move FOLDER to a folder on a disk"),
        ("locks", "set XDG_STATE_HOME to a folder on a disk", "move FOLDER to a folder on a disk"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_new", [True, False])
def test_no_remedy_leaves_the_data_of_an_account_behind(
    home: Any, monkeypatch: pytest.MonkeyPatch, problem: str, new: str, existing: str, is_new: bool
) -> None:
    """In another state folder, the account would not be logged on, nor its changes be uploaded."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if problem == "full":
        monkeypatch.setattr(os, "statvfs", lambda path: disk(free=20 << 20))
    elif problem == "locks":
        monkeypatch.setattr("fcntl.flock", flock)
    else:
        around = mountpoint.Mount(home.paths.state.parent, problem, "server:/home")
        monkeypatch.setattr(mountpoint, "mounts", lambda: [around])
    if is_new:
        home.paths.state.rmdir()
    found = folders.state(home)
    assert found is not None and not found.ok
    assert found.remedy.startswith(new if is_new else existing)
    assert is_new or not found.remedy.endswith("on another one")
    assert problem != "nfs4" or "nfs4" in found.detail


def test_a_disk_with_an_error(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error at a write to the state folder or the cache folder is reported with its cause."""

    def require_room(_folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(folders, "require_room", require_room)
    for found in (folders.state(home), folders.cache(home)):
        assert found is not None and not found.ok
        assert found.detail == "it cannot be written (Input/output error)"
        assert found.remedy == paths.FAULTY


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EIO, paths.FAULTY), (errno.EACCES, paths.CLOSED)]
)
def test_a_logon_on_a_disk_with_an_error(
    home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """The remedy is to check the disk or the permissions, not to log on again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "zonedrive").mkdir(mode=0o700)

    def read_bytes(_path: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    found = account.logon(DoctorFacts(AccountPaths("default"), dict))
    assert found is not None and not found.ok
    assert (found.detail, found.remedy) == ("it cannot be read", remedy)
    assert found.here.endswith(f"; {remedy}")


def test_a_cache_folder_that_cannot_be_created(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is for the user or, if a policy sets the folder, for the administrator."""
    above = home.paths.cache.parent
    home.paths.content.rmdir()
    home.paths.cache.rmdir()
    assert folders.cache(home) is None
    monkeypatch.setattr(os, "access", lambda path, *_, **__: path != above)
    found = folders.cache(home)
    assert found is not None and not found.ok
    assert found.remedy.startswith("make FOLDER writable, or set XDG_CACHE_HOME")
    monkeypatch.setattr(folders, "policy_folders", lambda: {"cache_dir": above, "state_dir": above})
    monkeypatch.setattr("zonedrive.paths.is_irreplaceable", lambda _path: True)
    found = folders.cache(home)
    assert found is not None and not found.ok
    assert found.remedy.startswith("ask the administrator")
    assert found.here.startswith(f"{above}, the policy cache_dir of the organization, cannot have")
    assert str(above) not in found.detail + found.remedy


@pytest.mark.parametrize("name", ["state", "cache"])
def test_a_folder_that_is_out_of_reach(
    home: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The remedy is that of a folder that cannot be created."""
    real, folder = os.stat, getattr(home.paths, name)

    def stat(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(folder)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "access", lambda path, *_, **__: False)
    found = getattr(folders, name)(home)
    assert found is not None and not found.ok
    assert found.remedy.startswith(f"make FOLDER writable, or set XDG_{name.upper()}_HOME")
    assert found.names == {"FOLDER": folder.parent}


@pytest.mark.parametrize(
    ("vitals", "limit"), [(None, "10 GiB"), ({}, "10 GiB"), ({"cache_size": 3 << 20}, "3.0 MiB")]
)
def test_the_limit_of_the_cache_is_that_of_the_mount(home: Any, vitals: Any, limit: str) -> None:
    """An option of the mount replaces the setting; a daemon of an earlier version does not tell."""
    home.vitals = vitals
    found = folders.cache(home)
    assert found is not None
    assert f"of at most {limit} used" in found.detail


def test_a_small_disk_limits_the_cache(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache leaves 5 % of the disk free, which is not a problem."""
    monkeypatch.setattr(os, "statvfs", lambda path: disk(free=2 << 30, total=4 << 30))
    found = folders.cache(home)
    assert found is not None and found.ok
    assert "the disk has 1.8 GiB" in found.detail


def test_a_runtime_folder_behind_a_link_is_in_use(
    home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG_RUNTIME_DIR may contain links, as its folder is the user's own."""
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "link"))
    found = folders.runtime(home)
    assert (found.ok, found.detail) == (True, "not created yet")


def test_a_runtime_folder_that_others_can_change_is_not_in_use(
    home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may be the user's own, so the check does not say that it is another user's."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    found = folders.runtime(home)
    assert found.ok and "XDG_RUNTIME_DIR is not private" in found.detail
    assert "mode 700" in found.remedy


def test_every_table_of_the_database_is_checked(home: Any) -> None:
    """Damage in a table that counts no pending changes is reported."""
    database = Database.open(home.paths.database, SCHEMAS)
    with database.transaction():
        tree = Inodes.open(database, Clear())
        for number in range(2000):
            tree.add(ROOT, f"Zone {number}", Kind.ZONE, zone="z", remote_id=str(number))
    database.close()
    found = folders.database(home)
    assert found is not None and found.ok
    with sqlite3.connect(home.paths.database) as connection:
        (page,) = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'inodes' AND pagetype = 'leaf' LIMIT 1"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with home.paths.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\0" * size)
    found = folders.database(home)
    assert found is not None and not found.ok
    assert not found.here  # which would name no account
    assert found.remedy.startswith("run 'zonedrive unmount DIR' and 'zonedrive mount DIR'")
    home.running = False
    found = folders.database(home)
    assert found is not None and found.remedy.startswith("run 'zonedrive mount DIR'")


def test_a_database_of_a_newer_version_is_not_repaired(home: Any) -> None:
    """Also the public remedy says what helps: a mount fails."""
    Database.open(home.paths.database, SCHEMAS).close()
    with sqlite3.connect(home.paths.database) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    found = folders.database(home)
    assert found is not None and (found.ok, found.remedy) == (False, "upgrade zonedrive")
    assert "newer zonedrive" in found.here


def test_an_earlier_damaged_database_is_reported(home: Any) -> None:
    """The current one is sound; the user may still need data from the damaged one."""
    home.paths.database.touch(0o600)
    home.paths.database.with_name("tree.db.damaged-1").touch(0o600)
    home.paths.database.with_name("tree.db.damaged-1-wal").touch(0o600)
    found = folders.database(home)
    assert found is not None and found.ok
    assert "1 damaged" in found.detail


def test_a_helper_without_setuid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only root can mount without it."""
    (tmp_path / "fusermount3").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert not machine.fusermount(facts()).ok
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert machine.fusermount(facts()).ok


@pytest.mark.parametrize(
    ("vitals", "ok"),
    [
        ({"waiting": 0, "failed": 0, "tries": 0, "state": "online"}, True),
        ({"waiting": 5, "failed": 0, "tries": 1, "state": "online"}, True),
        ({"waiting": 5, "failed": 0, "tries": 40, "state": "offline"}, True),
        ({"waiting": 5, "failed": 0, "tries": 40, "state": "online"}, False),
        ({"waiting": 5, "failed": 1, "tries": 1, "state": "online"}, False),
    ],
)
def test_repeated_failures_count_while_the_service_answers(
    home: Any, vitals: dict[str, Any], ok: bool
) -> None:
    """Waiting for an unreachable service is normal."""
    home.vitals = vitals
    found = mount.outbox(home)
    assert found is not None and found.ok == ok


@pytest.mark.parametrize(("days", "held", "ok"), [(0, 0, True), (3, 0, False), (3, 1, True)])
def test_changes_that_wait_for_days(home: Any, days: int, held: int, ok: bool) -> None:
    """Old changes are reported, unless a program has the file open; the content of local-only
    files does not count."""
    database = Database.open(home.paths.database, SCHEMAS)
    with database.transaction():
        IntentTable(database).content(2, generation=1, size=5, base=None, held=False, due_ns=0)
    database.close()
    home.paths.outgoing.mkdir()
    for name, age_days in (("2-1.sealed", days), ("3-1.sealed", 30)):
        (home.paths.outgoing / name).touch()
        os.utime(home.paths.outgoing / name, (0, time.time() - age_days * 86_400 - 60))
    home.vitals = {"waiting": 1, "held": held, "failed": 0, "tries": 1, "state": "offline"}
    found = mount.outbox(home)
    assert found is not None and found.ok == ok
    assert ok or "the oldest for 3 days" in found.detail
    home.vitals["paused"] = True
    found = mount.outbox(home)
    assert found is not None and found.ok == ok
    assert "uploads are paused" in found.detail
    assert found.remedy == "run 'zonedrive resume'"
    home.running, home.vitals, home.key = False, None, ""
    found = mount.outbox(home)
    assert found is not None and found.ok == (days == 0)
    assert found.ok or "the oldest for 3 days" in found.detail


@pytest.mark.parametrize("content", [None, b""])
def test_outgoing_bytes_beside_a_database_without_rows(home: Any, content: bytes | None) -> None:
    """They are not on the service, although no change is pending."""
    if content is not None:
        home.paths.database.write_bytes(content)
    home.running, home.vitals, home.key = False, None, ""
    home.paths.outgoing.mkdir()
    for is_used in (False, True):
        if is_used:
            (home.paths.outgoing / "2-1.sealed").touch()
        outbox, database = mount.outbox(home), folders.database(home)
        assert outbox is not None and outbox.ok == (not is_used)
        assert (database is None or database.ok) == (not is_used)
    assert outbox is not None
    assert outbox.detail == "1 file in lost+found is only on this machine"
    assert "zonedrive mount" in outbox.remedy


@pytest.mark.parametrize("account", [None, object()])
def test_pending_changes_in_a_damaged_database(home: Any, account: object) -> None:
    """Changes that cannot be counted are reported, with and without a logon."""
    home.paths.database.write_bytes(b"no database" * 500)
    home.account, home.running, home.vitals = account, False, None
    found = mount.outbox(home)
    assert found is not None and not found.ok
    assert "cannot be counted" in found.detail and "is damaged" in local_remedy(home, found)


def test_conflict_copies_are_counted(home: Any) -> None:
    """Conflict copies are not a problem, but the user should look at them."""
    home.vitals = {"waiting": 0, "failed": 0, "tries": 0, "state": "online", "conflicts": 2}
    found = mount.outbox(home)
    assert found is not None and found.ok
    assert (found.detail[:17], found.remedy) == ("2 conflict copies", "see 'zonedrive conflicts'")


@pytest.mark.parametrize(
    ("damaged", "lost", "said", "remedy"),
    [
        (False, False, "nothing is lost", ""),
        (False, True, "files lost their names", "copy what you need from lost+found"),
        (True, False, "the database of names is damaged", "run 'zonedrive unmount DIR'"),
        (True, True, "the database of names is damaged", "run 'zonedrive unmount DIR'"),
        (None, True, "files lost their names", "copy what you need from lost+found"),
    ],
)
def test_damage_is_repaired_before_lost_files_are_copied(
    home: Any, damaged: bool | None, lost: bool, said: str, remedy: str
) -> None:
    """A daemon of an older version reports `lost` only."""
    home.vitals = {"lost": lost} | ({} if damaged is None else {"damaged": damaged})
    found = mount.lost_found(home)
    assert found is not None and found.ok == (not (damaged or lost))
    assert found.detail.startswith(said) and found.remedy.startswith(remedy)


def test_a_daemon_that_does_not_answer(home: Any) -> None:
    """The remedy ends the daemon, because a new mount would be refused."""
    home.vitals, home.holder = None, Holder(4711, Path("/home/me/My Zones"))
    found = mount.answering(home)
    assert found is not None and not found.ok
    assert "does not answer" in found.detail
    assert "run 'zonedrive unmount --now '/home/me/My Zones'', which ends it" in local_remedy(
        home, found
    )
    assert "My Zones" not in found.remedy


def test_an_unmounted_folder_that_is_still_in_use(home: Any) -> None:
    """A container, for example, may still use an unmounted folder."""
    home.account = SimpleNamespace(base_url="https://account.example")
    home.holder = Holder(4711, home.paths.state / "Zones", home.paths.control)
    found = mount.mounted(home)
    assert found is not None and not found.ok
    assert f"run 'zonedrive unmount {home.paths.state}/Zones', which ends it" in local_remedy(
        home, found
    )
    home.holder = Holder(4711, Path("/proc"), home.paths.control)
    found = mount.mounted(home)
    assert found is not None and found.ok


@pytest.mark.parametrize(("version", "ok"), [(__version__, True), ("0.0.9", False), (None, False)])
def test_a_daemon_of_an_older_version(home: Any, version: str | None, ok: bool) -> None:
    """The remedy is to mount again."""
    home.vitals = {"state": "online"} | ({"version": version} if version else {})
    found = mount.answering(home)
    assert found is not None and found.ok == ok
    assert ok or (__version__ in found.detail and "zonedrive unmount" in found.remedy)


def test_a_failed_check_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a failed check does not contain the text of the error."""

    def store(facts: DoctorFacts) -> CheckResult:
        raise StoreError("/home/alice is damaged")

    def system(facts: DoctorFacts) -> CheckResult:
        raise OSError(errno.EACCES, "Permission denied", "/home/alice")

    def bug(facts: DoctorFacts) -> CheckResult:
        raise KeyError("alice")

    def good(facts: DoctorFacts) -> CheckResult:
        return CheckResult(True, "well")

    def nothing(facts: DoctorFacts) -> None:
        return None

    checks = (("a", store), ("b", system), ("c", bug), ("d", nothing), ("e", good))
    monkeypatch.setattr(doctor, "CHECKS", checks)
    found = list(doctor.examine(NOBODY))
    assert [(each["name"], each["ok"]) for each in found] == [
        ("a", False), ("b", False), ("c", False), ("e", True),
    ]  # fmt: skip
    assert "alice" not in str(found)


def test_a_hanging_check_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check may hang on a dead network folder, for example."""
    over = threading.Event()

    def hung(facts: DoctorFacts) -> CheckResult:
        over.wait()
        return CheckResult(True, "late")

    checks = (("a", hung), ("b", lambda facts: CheckResult(True, "well")))
    monkeypatch.setattr(doctor, "CHECKS", checks)
    monkeypatch.setattr(doctor, "SECONDS", 0.5)
    looking = doctor.examine(NOBODY)
    found = [next(looking)]
    monkeypatch.setattr(doctor, "SECONDS", 60.0)
    found += looking
    over.set()
    assert [each["ok"] for each in found] == [False, True]
    assert "did not answer" in str(found[0]["detail"])


def test_the_remedy_for_a_lost_account_file_names_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the local user sees the path."""
    monkeypatch.setattr(local_data, "backlog", lambda paths: Backlog(1, 5))
    found = mount.outbox(NOBODY)
    assert found is not None and not found.ok
    assert found.remedy == "restore account.json from a backup; pending changes are kept"
    path = NOBODY.paths.account_file
    assert local_remedy(NOBODY, found) == f"restore {path} from a backup; pending changes are kept"


def test_ages_have_one_unit() -> None:
    """An age is shown in its largest unit."""
    ages = [age(seconds) for seconds in (5, 60, 7200, 86_400 * 40)]
    assert ages == ["less than a minute", "1 minute", "2 hours", "40 days"]


@pytest.mark.parametrize("is_valid", [True, False])
def test_the_profile_of_the_organization_is_not_named(
    is_valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name often is that of the organization; only the local user sees the path."""
    monkeypatch.setattr(load, "SYSTEM_FOLDER", tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "acme.toml").write_text("" if is_valid else "[nonsense]", "utf-8")
    found = account.profile(facts(settings=Settings(profile="acme"), account=object()))
    assert found is not None and found.ok == is_valid
    assert "acme" not in found.detail + found.remedy


def test_a_folder_that_another_user_created_is_reported_without_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The detail has no path, which contains the number of the user; the report is possible."""
    own = tmp_path / str(os.geteuid())
    own.symlink_to(tmp_path)
    monkeypatch.setattr(paths, "policy_folders", lambda: {"state_dir": tmp_path})
    found = folders.home(NOBODY)
    assert found is not None and not found.ok
    assert str(own) in found.here
    assert str(tmp_path) not in found.detail + found.remedy
    written = report.text(DoctorFacts(AccountPaths("nobody"), dict), [])
    assert "running: unknown" in written
    assert str(tmp_path) not in written


def test_a_report_that_cannot_be_written_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or a limit of file sizes does not empty the file."""
    monkeypatch.setattr(doctor, "examine", lambda facts: [])
    monkeypatch.setattr(report, "text", lambda *_: "x" * 100_000)
    file = tmp_path / "report.txt"
    file.write_text("the former report")
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, former[1]))
    try:
        with pytest.raises(ZonedriveError, match=f"{file} cannot be written: File too large"):
            doctor_command.main(["--report", str(file)], standalone_mode=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [
        (file, "the former report")
    ]


def test_a_profile_with_the_name_of_a_packaged_one_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packaged profile is used, so the administrator must rename the file."""
    monkeypatch.setattr(load, "SYSTEM_FOLDER", tmp_path)
    profile = facts(settings=Settings(profile="sandbox"), account=object())
    found = account.profile(profile)
    assert found is not None and found.ok
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "sandbox.toml").touch()
    found = account.profile(profile)
    assert found is not None and not found.ok
    assert found.remedy == "ask the administrator of this computer to rename the file"


def test_a_state_folder_of_a_policy_is_corrected_by_the_administrator(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG_STATE_HOME has no effect on the folder."""
    home.paths.state = home.paths.state / "new"
    monkeypatch.setattr(folders, "_is_writable", lambda folder: False)
    found = folders.state(home)
    assert found is not None and "XDG_STATE_HOME" in found.remedy
    policy: dict[str, object] = {"state_dir": "/x"}
    monkeypatch.setattr(config, "organization", lambda account: config.Organization(policy=policy))
    found = folders.state(home)
    assert found is not None
    assert found.remedy == "ask the administrator of this computer to correct the policy state_dir"
