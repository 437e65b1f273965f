"""`mount` and `unmount` without a service."""

import errno
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.stand_in import URL, command, daemon, log_on, run
from tests.unit.fuse.mounted import MemoryMount
from zonedrive import config, paths
from zonedrive.cli.control_client import ask, resolve, serving
from zonedrive.cli.mount import _account_of, mount, unmount
from zonedrive.cli.sandbox import sandbox
from zonedrive.daemon import daemonize, last_run, protocol
from zonedrive.daemon.last_run import Run
from zonedrive.daemon.lock import Lock, holder
from zonedrive.errors import (
    AlreadyRunning,
    ConfigError,
    ForeignFolder,
    MountEnded,
    MountError,
    NotLoggedOn,
    StoreError,
    ZonedriveError,
)
from zonedrive.formatting import local_time
from zonedrive.fuse import mountpoint
from zonedrive.logon.account import Account
from zonedrive.paths import AccountPaths
from zonedrive.remote import profiles
from zonedrive.state.pause import PauseSwitch


def test_a_mounting_point_that_cannot_be_used_is_one_line(home: Path) -> None:
    """A missing folder, a file and a non-empty folder: exit code 1 and one line with the cause."""
    log_on()
    (home / "file").touch()
    for name, cause in (("missing", "does not exist"), ("file", "not a folder"), (".", "empty")):
        failed = run("mount", name)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr.count("\n") == 1
        assert cause in failed.stderr


@pytest.mark.parametrize(
    ("option", "cause"),
    [
        ("settel=1", "-o settel is unknown; did you mean settle?"),
        ("close=never", "-o: close cannot be 'never'; use background or"),
        ("auto_unmount", "must fail, not look like an empty folder"),
        ("max_read=x", "-o max_read: 'x' is not a number of bytes"),
        ("profile=/nowhere.toml", "-o profile: the profile /nowhere.toml does not exist"),
        ("profile=nothing", "-o profile: there is no profile 'nothing'"),
    ],
)
@pytest.mark.parametrize("foreground", [True, False])
def test_a_wrong_option_is_one_line(home: Path, option: str, cause: str, foreground: bool) -> None:
    """The line is the same in the background and in the foreground."""
    log_on()
    (home / "Z").mkdir()
    failed = run("mount", "Z", "-o", option, *(["-f"] if foreground else []))
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.count("\n") == 1, failed.stderr
    assert cause in failed.stderr
    assert mountpoint.at(home / "Z") is None


def test_the_mount_helper_names_what_hides_the_accounts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a missing folder of the policy nor a former one looks like a missing logon."""
    log_on()
    assert _account_of(URL, None).account == "default"
    monkeypatch.setattr(paths, "policy_folders", lambda: {"state_dir": home / "all"})
    with pytest.raises(ConfigError, match="state_dir of the organization, does not exist"):
        _account_of(URL, None)
    (home / "all").mkdir()
    (home / "all").chmod(0o1777)
    monkeypatch.setattr(paths, "is_irreplaceable", lambda _path: True)
    with pytest.raises(NotLoggedOn, match="the account 'default' is in "):
        _account_of(URL, None)
    with pytest.raises(ConfigError, match="nobody is logged on"):
        _account_of(URL, "work")


def test_a_profile_that_was_moved_is_one_line(home: Path) -> None:
    """The path is that of the logon; the remedy gives a new one, and does so in this form."""
    (home / "Z").mkdir()
    old = home / "old/ours.toml"
    account = Account(name="default", base_url=URL, username="alice", profile=str(old))
    account.save(AccountPaths("default"))
    failed = run("mount", "Z")
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert f"the profile {old} does not exist" in failed.stderr
    assert f"run 'zonedrive logon {URL} --username alice --profile FILE'" in failed.stderr
    assert "-o profile=FILE" in failed.stderr


def test_a_mount_says_that_the_policy_has_no_such_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mount begins with the published operations."""
    log_on()
    (home / "Z").mkdir()
    started: list[Path] = []
    monkeypatch.setattr(daemonize, "start", lambda paths, where, serve: started.append(where))
    shared = config.Organization(profile="nope", policy={"profile": "nope"})
    monkeypatch.setattr(config, "organization", lambda account: shared)
    assert mount.callback is not None
    mount.callback(str(home / "Z"), None, False, ())
    assert started == [home / "Z"]
    assert "there is no profile 'nope'" in capsys.readouterr().err


def test_the_path_of_a_profile_may_have_any_character(home: Path) -> None:
    """A comma and a backslash are special in options, for the daemon as for the command."""
    log_on()
    (home / "Z").mkdir()
    shutil.copy(Path(profiles.__path__[0]) / "sandbox.toml", home / "a,b\\c.toml")
    assert run("mount", "Z", "-o", r"profile=a\,b\\c.toml").stderr == ""
    assert run("unmount", "--now", "Z").returncode == 0


def test_a_failed_mount_does_not_change_when_the_last_daemon_died(home: Path) -> None:
    """A warning in the log is not the last activity of that daemon."""
    account = log_on()
    Run(account).begin(home / "Z")
    account.log.touch()
    for path in (account.log, account.run_record):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    few_files = ["sh", "-c", 'ulimit -n 200 && exec "$@"', "sh", *command("mount", "missing")]
    failed = subprocess.run(few_files, capture_output=True, encoding="utf-8", timeout=60)
    assert "does not exist" in failed.stderr
    assert "ulimit" in account.log.read_text()
    died = last_run.recorded(account)
    assert died is not None and died.at == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize("foreground", [True, False])
def test_an_unknown_account_leaves_no_folder(home: Path, foreground: bool) -> None:
    """A mistyped --account: exit code 3, and no folder of that name is created."""
    (home / "Z").mkdir()
    failed = run("mount", "Z", "--account", "nosuch", *(["-f"] if foreground else []))
    assert failed.returncode == 3 and failed.stderr.count("\n") == 1
    assert "'nosuch' is not logged on" in failed.stderr
    assert [found.name for found in home.rglob("*")] == ["Z"]


@pytest.mark.parametrize("foreground", [True, False])
def test_the_account_can_be_an_option(home: Path, foreground: bool) -> None:
    """`-o account=work` mounts that account, as a line of fstab does."""
    log_on("work")
    more = ["-f"] if foreground else []
    for account in ([], ["--account", "work"]):
        failed = run("mount", "missing", "-o", "ro,account=work", *account, *more)
        assert failed.returncode == 1
        assert "missing does not exist" in failed.stderr  # otherwise, nobody is logged on


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (["--account", "default", "-o", "account=work"], "--account default and -o account=work"),
        (["-o", "setuid=me"], "-o setuid is for mount(8) only"),
        (["-o", "account=Work"], "'Work' is not an account name"),
    ],
)
def test_a_mount_of_another_account_than_requested_is_refused(
    home: Path, options: list[str], cause: str
) -> None:
    """The service manager shows the line as well, and does not try again after exit code 2."""
    log_on()
    log_on("work")
    failed = run("mount", "missing", *options)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith(f"zonedrive: {cause}") and failed.stderr.count("\n") == 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(home / "manager"))
        again = run("mount", "missing", "-f", *options, NOTIFY_SOCKET=str(home / "manager"))
        assert (again.returncode, again.stderr) == (2, failed.stderr)
        said = manager.recv(4096, socket.MSG_DONTWAIT).decode()
    assert said == f"STATUS={failed.stderr.removeprefix('zonedrive: ').rstrip()}"


def test_a_wrong_setting_names_its_file(home: Path) -> None:
    """`mount` reports a mistake in config.toml."""
    log_on()
    (home / "Z").mkdir()
    config = home / "config_home" / "zonedrive" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("settel = 3\n")
    failed = run("mount", "Z")
    assert failed.returncode == 1
    assert str(config) in failed.stderr and "settle" in failed.stderr


def test_mount_8_finds_the_account_by_the_address() -> None:
    """mount(8) passes only the address; if several accounts have it, -o selects one."""
    log_on("one", "https://a.example")
    log_on("two", "https://b.example")
    log_on("three", "https://b.example")
    assert _account_of("https://A.example/", None).account == "one"
    assert _account_of("https://b.example", "three").account == "three"
    with pytest.raises(ConfigError, match=r"several accounts.*three, two"):
        _account_of("https://b.example", None)
    with pytest.raises(ConfigError, match="nobody is logged on"):
        _account_of("https://c.example", None)


def test_mount_8_names_the_account_without_a_logon() -> None:
    """The error names the logon command of the requested account, not of another one."""
    log_on()
    with pytest.raises(ConfigError) as refused:
        _account_of(URL, "work")
    assert refused.value.line().startswith(f"the account 'work' is not logged on at {URL}; run")
    assert f"'zonedrive logon {URL} --account work'" in refused.value.remedy
    assert "account=default" in refused.value.remedy
    with pytest.raises(ConfigError, match="nobody") as refused:
        _account_of("https://elsewhere.example", "work")
    assert "https://elsewhere.example --account work'" in refused.value.remedy


def test_a_folder_in_a_remedy_is_quoted(home: Path) -> None:
    """The remedy quotes a name with a space and a quotation mark."""
    folder = home / "My Zones (Bob's)"
    with pytest.raises(MountError) as refused:
        mountpoint.check(str(folder))
    command = refused.value.remedy.removeprefix("run '").removesuffix("'")
    assert shlex.split(command) == ["mkdir", "-p", str(folder)]


def test_allow_other_needs_permission_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the missing setting and the command that adds it."""
    monkeypatch.setattr(mountpoint, "FUSE_CONF", tmp_path / "fuse.conf")
    mountpoint.check_sharing(tmp_path, ["allow_other"])  # root needs no permission
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    mountpoint.check_sharing(tmp_path, ["ro"])
    with pytest.raises(MountError, match="allow_root only allowed if 'user_allow_other'") as no:
        mountpoint.check_sharing(tmp_path, ["ro", "allow_root"])
    assert "run 'echo user_allow_other >>/etc/fuse.conf' as root" in no.value.remedy
    (tmp_path / "fuse.conf").write_text("user_allow_other\n")
    mountpoint.check_sharing(tmp_path, ["allow_other"])


def test_the_form_of_mount_8_is_understood(home: Path) -> None:
    """`zonedrive URL DIR -o opts` mounts, without a subcommand; the address may be in capitals."""
    log_on()
    failed = run(URL, "missing", "-o", "rw,noauto,user,dev,suid")
    assert failed.returncode == 1
    assert "missing does not exist" in failed.stderr
    assert "nobody is logged on" in run("HTTPS://ELSEWHERE", "x").stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("default", f"is the base URL of the logon, {URL}\n"),
        ("zonedrive", f"is the base URL of the logon, {URL}\n"),
        ("zonedrive#default", f"is the base URL of the logon, {URL}\n"),
        ("work", "is the base URL of the logon, https://b.example, with the option account=work\n"),
        ("zonedrive#work", "https://b.example, with the option account=work\n"),
        ("b.example", f"is the base URL of the logon, {URL}\n"),
    ],
)
def test_mount_8_with_a_wrong_source_names_the_right_one(
    home: Path, source: str, said: str
) -> None:
    """If the first field of fstab has another text, the error gives the right address."""
    log_on()
    log_on("work", "https://b.example")
    failed = run(source, str(home), "-o", "rw,noauto,user")
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"zonedrive: {source!r} is not the address of a service; ")
    assert failed.stderr.endswith(said) and failed.stderr.count("\n") == 1


def test_mount_8_with_a_wrong_source_without_a_logon(home: Path) -> None:
    """Without a logon the error has an example address; a mistyped command is reported as such."""
    failed = run("default", str(home), "-orw")
    assert failed.stderr.endswith("is the base URL of the logon, such as https://service.example\n")
    assert "no such command 'defaults'" in run("defaults", str(home)).stderr.lower()


def test_unmounting_another_folder_is_one_line(home: Path) -> None:
    """A mistyped folder, an ordinary folder and a foreign mount: exit code 1, without an effect."""
    log_on()
    for path in ("missing", ".", "/proc"):
        failed = run("unmount", path)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr.endswith("is not a mount of zonedrive\n")


def test_unmounting_asks_the_daemon_of_the_mount(tmp_path: Path) -> None:
    """The timeout is passed to the daemon; pending changes are reported, but are no failure."""
    with daemon(log_on("work"), tmp_path / "mnt") as work, MemoryMount(tmp_path / "mnt") as served:
        work.answers["unmount"] = {"users": [], "left": {"files": 2, "bytes": 2048}}
        done = run("unmount", served.path, "--timeout", "3")
        assert work.asked == [{"command": "unmount", "timeout": 3.0, "now": False}]
        assert done.returncode == 0
        assert "2 files (2.0 KiB) not on the service yet" in done.stderr
        work.answers["unmount"] = {"users": ["vim (7)"], "left": {"files": 0, "bytes": 0}}
        done = run("unmount", served.path, "--now")
        assert work.asked[1] == {"command": "unmount", "timeout": 0, "now": True}
        assert "although vim (7) still used it" in done.stderr
        for remedy in ("", "open the keyring"):
            work.answers["unmount"] = StoreError("it is only here", remedy=remedy)
            done = run("unmount", served.path)
            said = f"it is only here{remedy and '; '}{remedy}"
            lose = "or end the mount with --now, and lose this data"
            assert done.stderr == f"zonedrive: {said}; {lose}\n"


@pytest.mark.parametrize("seconds", [None, 3600.0, -1.0])
def test_unmounting_during_a_pause(tmp_path: Path, seconds: float | None) -> None:
    """The line tells what ends the pause, unless it has ended meanwhile."""
    paths = log_on()
    with daemon(paths, tmp_path / "mnt") as still:
        switch = PauseSwitch(paths.pause)
        switch.begin(seconds)
        with MemoryMount(tmp_path / "mnt") as served:
            left = {"files": 1, "bytes": 5}
            still.answers["unmount"] = {"users": [], "left": left, "paused": True}
            done = run("unmount", served.path)
    end = local_time(switch.current.until_ns / 1e9) if switch.current else ""
    then = {
        None: "uploads are paused, and continue after the next mount and 'zonedrive resume'",
        3600.0: f"uploads are paused until {end}, and continue after that and the next mount",
        -1.0: "uploads continue at the next mount",
    }[seconds]
    assert done.stderr.endswith(f"1 file (5 bytes) not on the service yet; kept here, {then}\n")


def test_the_daemon_is_found_by_what_is_mounted(home: Path) -> None:
    """A folder above the mount point was renamed, and another account is mounted at the first path
    by a daemon of an earlier version, whose lock file has no identity of the mount."""
    first, moved = home / "first/mnt", home / "moved/mnt"
    first.mkdir(parents=True)
    one, two = log_on("one"), log_on("two")
    lock, earlier = Lock(one.lock, "one"), Lock(two.lock, "two")
    served = [MemoryMount(first)]
    try:
        found = mountpoint.at(first)
        assert found is not None
        lock.take(first)
        assert serving(first) == one  # it is starting
        lock.announce(one.control, found.identity)
        assert serving(first) == one
        first.parent.rename(moved.parent)
        assert (serving(first), serving(moved)) == (None, one)
        first.mkdir(parents=True)
        served.append(MemoryMount(first))
        earlier.take(first)
        assert (serving(first), serving(moved)) == (two, one)
        assert resolve((str(moved / "a"),), None) == (one, [str(moved / "a")])
        lock.announce(one.control, "")
        assert (serving(first), serving(moved)) == (two, None)
        who = holder(one.lock)
        assert who is not None and not who.is_mounted
    finally:
        lock.release()
        earlier.release()
        for each in served:
            each.stop()


def test_a_daemon_without_a_mount_is_not_found_at_another_mount(home: Path) -> None:
    """A daemon hangs, its mount was detached, and another account's mount has its device number."""
    first, second = home / "first", home / "second"
    first.mkdir()
    one, two = log_on("one"), log_on("two")
    locks = Lock(one.lock, "one"), Lock(two.lock, "two")
    served = MemoryMount(second)
    try:
        found = mountpoint.at(second)
        assert found is not None
        for each, folder, paths in zip(locks, (first, second), (one, two), strict=True):
            each.take(folder)
            each.announce(paths.control, found.identity)
        assert (serving(first), serving(second)) == (one, two)
        who = holder(one.lock)
        assert who is not None and (who.mountpoint, who.is_mounted) == (first, False)
        who = holder(two.lock)
        assert who is not None and (who.mountpoint, who.is_mounted) == (second, True)
    finally:
        for each in locks:
            each.release()
        served.stop()


def test_a_mount_without_a_daemon_is_removed(tmp_path: Path) -> None:
    """`zonedrive unmount` after a crash leaves an ordinary empty folder."""
    served = MemoryMount(tmp_path / "mnt")
    served.kill()
    assert run("unmount", served.path).returncode == 0
    assert os.listdir(served.path) == []
    assert mountpoint.at(served.path) is None
    served.wait()


@pytest.mark.parametrize(
    ("options", "patience"), [(["--now"], "NOW_SECONDS"), ([], "SILENT_SECONDS")]
)
def test_a_daemon_that_is_busy_is_not_killed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    patience: str,
) -> None:
    """`unmount` also works if the mount does not answer."""
    monkeypatch.setattr(f"zonedrive.cli.mount.{patience}", 2.0)
    monkeypatch.setattr("zonedrive.cli.control_client.QUIET_SECONDS", 0.5)
    with daemon(log_on(), tmp_path / "mnt"):  # which has no answer to `unmount`
        served = MemoryMount(tmp_path / "mnt")
        served.process.send_signal(signal.SIGSTOP)
        try:
            unmount.main([*options, str(tmp_path / "mnt")], standalone_mode=False)
            assert mountpoint.at(tmp_path / "mnt") is None
        finally:
            served.process.send_signal(signal.SIGCONT)
    said = capsys.readouterr().err
    assert "is detached" in said and "it is still closing" in said
    assert served.wait()[0] == "ended\n"


def test_a_daemon_that_does_not_end_after_its_unmount(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`mount` and `unmount` name a command for it, and that command ends the daemon."""
    monkeypatch.setattr("zonedrive.cli.mount.CLOSING_SECONDS", 0.0)
    paths, folder = log_on(), home / "Z"
    folder.mkdir()
    ended = list[Path]()
    monkeypatch.setattr(
        "zonedrive.daemon.lock.end_holder", lambda path, seconds: ended.append(path)
    )
    with daemon(paths, folder) as still:
        still.lock.announce(paths.control, "")
        still.answers["unmount"] = MountEnded("the mount has ended")
        with pytest.raises(AlreadyRunning, match="still serves") as refused:
            unmount.main([str(folder)], standalone_mode=False)
        assert f"unmount --now {folder}" in refused.value.remedy and not ended
        unmount.main(["--now", str(folder)], standalone_mode=False)
    assert ended == [paths.lock]
    assert "did not end" in capsys.readouterr().err


def test_a_path_is_found_without_a_look_into_a_mount(home: Path) -> None:
    """A hanging mount blocks no command, neither by its name nor through a link."""
    served = MemoryMount(home / "mnt")
    (home / "inside").symlink_to("./mnt/../mnt/folder")
    (home / "loop").symlink_to("loop")
    (home / "up").symlink_to("/../proc/./self")
    served.process.send_signal(signal.SIGSTOP)
    (home / "away").symlink_to("/proc/..")
    names = ["mnt/a/b", "mnt", "inside/c", "loop/x", "up/status", "missing/../x", "."]
    names += ["mnt/a/../b/../../away/x", "mnt/a/..", "inside/../c", f"/{home}/mnt/a"]
    look = "import sys; from zonedrive.fuse.mountpoint import absolute\n"
    look += "for each in sys.argv[1:]: print(absolute(each))"
    try:
        shown = subprocess.run(
            [sys.executable, "-c", look, *names],
            stdout=subprocess.PIPE, timeout=60, encoding="utf-8", check=True,
        ).stdout.splitlines()  # fmt: skip
    finally:
        served.process.send_signal(signal.SIGCONT)
        served.stop()
    mine = [f"{home}/mnt/a/b", f"{home}/mnt", f"{home}/mnt/folder/c", f"{home}/loop/x"]
    assert shown[:4] == mine
    assert shown[4].startswith("/proc/") and shown[4].endswith("/status")
    assert shown[5:7] == [f"{home}/x", f"{home}"]
    assert shown[7:] == ["/x", f"{home}/mnt", f"{home}/mnt/c", f"{home}/mnt/a"]


@pytest.mark.parametrize("given", [
    "link/../f", "deep/../../x", "link/inner/../../f", "loop/../x", "missing/../link", "link/",
    "..", ".", "/", "//", "/..", "//link", "///proc/../proc/self/..", "{home}/link/../f",
    "/{home}/link/../f",
])  # fmt: skip
def test_a_path_names_the_same_file_for_a_command_and_for_the_kernel(
    home: Path, given: str
) -> None:
    """A command whose path has `..` after a link, or begins with two slashes, acts on that file."""
    (home / "real" / "inner").mkdir(parents=True)
    (home / "link").symlink_to("real/inner")
    (home / "deep").symlink_to(home / "link" / "..")
    (home / "loop").symlink_to("loop")
    path = given.format(home=home)
    assert str(mountpoint.absolute(path)) == os.path.realpath(path).replace("//", "/")


def test_a_relative_path_is_found_without_a_look_at_the_working_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory may be in a network file system that does not answer."""
    looked = list[Path]()
    monkeypatch.setattr(mountpoint, "_target", looked.append)
    monkeypatch.chdir(_made(home / "remote"))
    assert mountpoint.absolute("../x") == home / "x"
    assert looked == [home / "x"]


@pytest.mark.parametrize("is_relative", [True, False])
def test_a_removed_working_directory_prevents_only_relative_paths(
    home: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    """A command with an absolute path works, and the error for a relative path names the cause."""
    monkeypatch.chdir(_made(home / "gone"))
    (home / "gone").rmdir()
    if is_relative:
        with pytest.raises(MountError, match="does not exist any more"):
            mountpoint.absolute("x")
    else:
        assert mountpoint.absolute(f"{home}/x/..") == home


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("is_own", [True, False])
def test_a_mount_of_an_unknown_daemon_is_left_alone_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """A working mount of another user, or without its state folder, needs --now."""
    served = MemoryMount(tmp_path / "mnt")
    with monkeypatch.context() as here:
        if not is_own:
            here.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(MountError) as refused:
            unmount.main([str(served.path)], standalone_mode=False)
        with pytest.raises(ZonedriveError) as other:
            resolve((str(served.path / "file"),), None)
    cause = "its state folder was moved or removed" if is_own else "a daemon that is not yours"
    assert cause in refused.value.message and "--now" in refused.value.remedy
    assert (other.value.line() == refused.value.line()) == is_own
    assert mountpoint.at(served.path) is not None
    assert run("unmount", "--now", served.path).returncode == 0
    assert served.wait()[0] == "ended\n"


@pytest.mark.usefixtures("as_root")
def test_root_with_a_users_home_is_told_to_use_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder for sockets helps only if the account is the caller's."""
    account = log_on()
    with daemon(account, home):
        monkeypatch.setattr(protocol, "is_trusted", lambda _uid: False)
        with pytest.raises(ZonedriveError, match="is a socket of user"):
            ask(account, {"command": "status"}, timeout=5)
        os.chown(account.state, 4711, 4711)
        with pytest.raises(ForeignFolder) as refused:
            ask(account, {"command": "status"}, timeout=5)
    assert "log in with 'su -' or 'sudo -i'" in refused.value.remedy


def test_a_mount_whose_state_folder_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`unmount --now` detaches the mount."""
    served, folder, iterdir = MemoryMount(tmp_path / "mnt"), paths.state_dir(), Path.iterdir

    def closed(path: Path) -> Iterator[Path]:
        if path == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(MountError, match="cannot be read"):
        unmount.main([str(served.path)], standalone_mode=False)
    unmount.main(["--now", str(served.path)], standalone_mode=False)
    assert served.wait()[0] == "ended\n"


@pytest.mark.parametrize("missing", ["trustme", "uvloop"])
@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        ("/usr/lib/python3/dist-packages", "sudo apt install python3-httptools python3-"),
        ("/home/me/.local/share/pipx/venvs/x", f"{sys.executable} -m pip install httptools "),
    ],
)
def test_missing_dependencies_of_the_sandbox(
    missing: str, place: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its dependencies, the command names them and the installer."""

    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("zonedrive.cli.sandbox.__file__", f"{place}/zonedrive/cli/sandbox.py")
    monkeypatch.setattr("zonedrive.cli.sandbox.importlib.import_module", absent)
    with pytest.raises(ConfigError) as said:
        sandbox.main(["--data", "x"], standalone_mode=False)
    assert missing in said.value.line()
    assert remedy in said.value.remedy
    for name in ("uvloop", "httptools", "trustme"):
        assert name in said.value.remedy
