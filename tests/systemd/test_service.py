"""Mount as a service of a real `systemd --user`: start, stop, failures and messages."""

from tests.harness import world
from tests.harness.deployment import Deployment, RemoteZone
from tests.harness.waiting import eventually
from tests.systemd.conftest import DROP_IN, Unit
from tests.systemd.systemd_machine import HOME, SECONDS, SystemdMachine

DONE = "everything is on the service"


def test_a_started_unit_is_a_mount_that_answers(unit: Unit, zone_there: RemoteZone) -> None:
    """`start` returns when files can be read; an edit makes a version; the status shows the
    mount."""
    unit.done("start")
    assert unit.machine.read(f"{unit.folder}/notes.txt") == world.SEED["notes.txt"].decode()
    assert unit.status()["state"] == "online"
    assert unit.show("WatchdogUSec") == "2min"
    unit.wait_line("online; ", DONE)
    assert f'Status: "online; {DONE}"' in unit.done("status")
    unit.machine.write(f"{unit.folder}/notes.txt", "edited\n")
    unit.sync()
    assert zone_there.read("notes.txt") == b"edited\n"
    assert len(zone_there.versions("notes.txt")) == 2
    unit.wait_line("online; ", DONE)


def test_a_stop_waits_for_the_outbox(
    unit: Unit, zone_there: RemoteZone, deployment: Deployment
) -> None:
    """A file written a moment before is on the service when `stop` returns."""
    unit.settings(DROP_IN.replace("STOP_SECONDS=2", "STOP_SECONDS=60"))
    unit.done("enable")
    unit.start()
    deployment.fault(latency_ms=300)
    unit.machine.write(f"{unit.folder}/late.txt", "at the last moment\n")
    unit.done("stop")
    deployment.heal()
    assert zone_there.read("late.txt") == b"at the last moment\n"
    assert (unit.show("ActiveState"), unit.show("Result")) == ("inactive", "success")
    assert unit.show("StatusText") == f"unmounted; {DONE}"
    assert not unit.is_mounted()


def test_a_stop_without_the_service_names_pending_changes(
    unit: Unit, zone_there: RemoteZone, deployment: Deployment
) -> None:
    """The stop ends within its limit with a message, and the next start sends the changes."""
    unit.done("enable")
    unit.start()
    deployment.fault(down=True)
    unit.machine.write(f"{unit.folder}/waits.txt", "ten bytes!")
    unit.wait_line("offline", "1 file to upload, 0 bytes of 10 bytes")
    before = len(unit.said())
    unit.done("stop")
    assert (unit.show("ActiveState"), unit.show("Result")) == ("inactive", "success")
    assert "1 file (10 bytes) is not on the service yet" in unit.show("StatusText")
    assert "1 file (10 bytes) not on the service yet; kept here" in unit.said()[before:]
    deployment.heal()
    unit.start()
    unit.sync()
    assert zone_there.read("waits.txt") == b"ten bytes!"
    unit.wait_line("online; ", DONE)


def test_a_killed_daemon_is_restarted_without_loss(
    unit: Unit, zone_there: RemoteZone, deployment: Deployment
) -> None:
    """The dead mount is gone; another daemon serves the folder and sends pending changes once."""
    unit.start()
    deployment.fault(down=True)
    unit.machine.write(f"{unit.folder}/notes.txt", "before the end\n")
    pid = unit.pid
    unit.done("kill", "--kill-whom=main", "--signal=KILL")
    unit.wait_other(pid)
    assert unit.machine.read(f"{unit.folder}/notes.txt") == "before the end\n"
    mounts = unit.machine.read("/proc/mounts")
    assert mounts.count(f" {unit.mountpoint} fuse") == 1
    deployment.heal()
    unit.sync()
    assert zone_there.read("notes.txt") == b"before the end\n"
    assert len(zone_there.versions("notes.txt")) == 2


def test_a_daemon_that_hangs_is_replaced(unit: Unit, zone_there: RemoteZone) -> None:
    """The manager's watchdog detects a hanging daemon; waiting programs continue after the
    restart."""
    unit.settings(f"{DROP_IN}WatchdogSec=8\n")
    unit.start()
    unit.machine.write(f"{unit.folder}/notes.txt", "before it hung\n")
    pid = unit.pid
    unit.done("kill", "--kill-whom=main", "--signal=STOP")
    unit.wait_other(pid)
    assert unit.machine.read(f"{unit.folder}/notes.txt") == "before it hung\n"
    unit.sync()
    assert zone_there.read("notes.txt") == b"before it hung\n"


def test_a_restart_keeps_all_files(unit: Unit, deployment: Deployment) -> None:
    """A new process shows the same files, even those that are not uploaded yet."""
    unit.start()
    pid = unit.pid
    deployment.fault(down=True)
    unit.machine.write(f"{unit.folder}/new.txt", "kept\n")
    unit.done("restart")
    assert unit.pid not in (0, pid)
    assert unit.machine.read(f"{unit.folder}/new.txt") == "kept\n"


def test_a_logon_that_ends_is_a_state_and_no_restart(
    unit: Unit, zone_there: RemoteZone, deployment: Deployment
) -> None:
    """The mount stays, even over a restart, and names the command that is enough to send all
    changes."""
    unit.machine.log_on(deployment, unit.account, "--session-only")
    unit.start()
    pid = unit.pid
    deployment.tell({"expire_sessions": True})
    unit.machine.write(f"{unit.folder}/notes.txt", "without a logon\n")
    unit.wait_line(
        f"logon required, run: zonedrive logon {deployment.base_url} --username",
        f"--account {unit.account} --session-only; 1 file to upload",
    )
    assert unit.machine.read(f"{unit.folder}/notes.txt") == "without a logon\n"
    assert (unit.pid, unit.show("NRestarts"), unit.is_active()) == (pid, "0", True)
    unit.done("restart")
    pid = unit.pid
    unit.wait_line("logon required, run: ", "; 1 file to upload")
    assert unit.machine.read(f"{unit.folder}/notes.txt") == "without a logon\n"
    unit.machine.log_on(deployment, unit.account, "--session-only")
    unit.wait_line("online; ", DONE)
    assert (unit.pid, unit.show("NRestarts")) == (pid, "0")
    there = deployment.fresh_person("bob").zone(unit.folder.rpartition("/")[2])
    assert there.read("notes.txt") == b"without a logon\n"


def test_without_a_logon_the_unit_fails_once(unit: Unit, deployment: Deployment) -> None:
    """The unit is not restarted repeatedly; after a logon `start` is sufficient."""
    unit.machine.done("zonedrive", "logoff", "--account", unit.account)
    before = len(unit.said())
    assert unit.systemctl("start").returncode != 0
    assert (unit.show("ActiveState"), unit.show("ExecMainStatus")) == ("failed", "3")
    assert unit.show("NRestarts") == "0"
    said = unit.said()[before:]
    assert f"the account '{unit.account}' is not logged on; run zonedrive logon" in said
    assert unit.show("StatusText").startswith(f"the account '{unit.account}' is not logged on; run")
    assert "Traceback" not in said
    unit.machine.log_on(deployment, unit.account)
    unit.start()


def test_a_start_waits_for_its_keyring_and_can_be_stopped(unit: Unit) -> None:
    """A missing keyring causes neither a failure nor a restart, and is reported; a stop ends the
    wait."""
    state = f"{HOME}/.local/state/zonedrive/{unit.account}"
    unit.machine.done("mv", f"{state}/secrets.json", f"{state}/in-keyring")
    unit.done("enable")
    unit.done("start", "--no-block")
    unit.wait_line("waiting: the keyring that holds this account's secrets is not available")
    assert (unit.show("ActiveState"), unit.show("NRestarts")) == ("activating", "0")
    unit.done("stop")
    assert (unit.show("ActiveState"), unit.show("Result")) == ("inactive", "success")
    unit.machine.done("mv", f"{state}/in-keyring", f"{state}/secrets.json")
    unit.start()


def test_a_boot_without_the_service_ends_in_a_mount(
    unit: Unit, deployment: Deployment, zone_there: RemoteZone
) -> None:
    """Cached files can be read, and writes are pending; no second start is necessary."""
    unit.done("enable")
    unit.start()
    deployment.fault(down=True)
    unit.machine.boot_again()
    assert unit.is_active()
    pid = unit.pid
    unit.wait_line("offline", DONE)
    assert unit.machine.read(f"{unit.folder}/notes.txt") == world.SEED["notes.txt"].decode()
    unit.machine.write(f"{unit.folder}/notes.txt", "offline\n")
    deployment.heal()
    unit.wait_line("online; ", DONE)
    assert zone_there.read("notes.txt") == b"offline\n"
    assert unit.pid == pid


def test_a_dead_mount_does_not_prevent_the_start(unit: Unit) -> None:
    """A dead mount of a daemon that was started from a shell does not prevent the start."""
    unit.machine.done("mkdir", "-p", unit.mountpoint)
    unit.machine.done("zonedrive", "mount", unit.mountpoint, "--account", unit.account)
    pid = str(unit.status()["pid"])
    unit.machine.done("kill", "-KILL", pid)
    eventually(lambda: unit.machine.person("ls", unit.mountpoint).returncode != 0, SECONDS)
    unit.start()


def test_a_frozen_mount_is_reported_and_unchanged(unit: Unit) -> None:
    """A start at a frozen mount fails with a remedy; the frozen daemon continues unharmed later."""
    unit.machine.done("mkdir", "-p", unit.mountpoint)
    unit.machine.done("zonedrive", "mount", unit.mountpoint, "--account", unit.account)
    pid = str(unit.status()["pid"])
    unit.machine.done("kill", "-STOP", pid)
    try:
        unit.done("start", "--no-block")
        command = f"run 'zonedrive unmount --now {unit.mountpoint}'"
        eventually(lambda: command in unit.said(), SECONDS, what="the journal says what to do")
        unit.done("stop")
        assert unit.show("ActiveState") in ("inactive", "failed")
    finally:
        unit.machine.done("kill", "-CONT", pid)
    assert unit.machine.read(f"{unit.folder}/notes.txt")
    unit.machine.done("zonedrive", "unmount", unit.mountpoint)
    unit.start()


def test_a_unit_that_fails_at_once_is_tried_five_times(unit: Unit) -> None:
    """The restarts are limited; once the cause is gone, the two documented commands start the
    unit."""
    unit.settings(DROP_IN.replace("StartLimitIntervalSec=0", ""))
    unit.machine.done("mkdir", "-p", unit.mountpoint)
    unit.machine.write(f"{unit.mountpoint}/stray", "in the way")
    unit.done("start", "--no-block")
    eventually(lambda: unit.show("ActiveState") == "failed", SECONDS, what="it has given up")
    assert unit.show("NRestarts") == "5"
    assert unit.said().count("is not empty; mount on an empty folder") == 5
    assert unit.show("StatusText") == f"{unit.mountpoint} is not empty; mount on an empty folder"
    unit.machine.done("rm", f"{unit.mountpoint}/stray")
    unit.done("reset-failed")
    unit.start()


def test_the_limits_are_those_of_the_unit_as_it_is_installed(unit: Unit) -> None:
    """The installed unit has the intended limits, some of which are shorter in the other tests.

    A stop has time for its uploads, a daemon ends before the manager's timeout, other users can
    read neither core dumps nor files, and five starts are possible.
    """
    asked = ("TimeoutStopUSec", "TimeoutStartUSec", "RestartUSec",
             "StartLimitBurst", "StartLimitIntervalUSec", "RestartPreventExitStatus", "LimitCORE",
             "UMask", "Restart", "KillMode", "Environment")  # fmt: skip
    show = [f"--property={name}" for name in asked]
    said = unit.machine.systemctl(*show, "show", "zonedrive@untouched.service").stdout
    found = dict(line.split("=", 1) for line in said.splitlines())
    assert "STOP_SECONDS=60" in found.pop("Environment").split()
    assert found == {
        "TimeoutStopUSec": "1min 40s",
        "TimeoutStartUSec": "2min 30s",
        "RestartUSec": "5s",
        "StartLimitBurst": "5",
        "StartLimitIntervalUSec": "5min",
        "RestartPreventExitStatus": "2 3",
        "LimitCORE": "0",
        "UMask": "0077",
        "Restart": "on-failure",
        "KillMode": "mixed",
    }


def test_an_unmount_by_hand_is_the_end_and_no_failure(unit: Unit) -> None:
    """The unit is stopped, not failed, and does not mount again by itself."""
    unit.start()
    unit.machine.done("zonedrive", "unmount", unit.mountpoint)
    eventually(lambda: unit.show("ActiveState") == "inactive", SECONDS, what="it is stopped")
    assert (unit.show("Result"), unit.show("NRestarts")) == ("success", "0")
    assert not unit.is_mounted()


def test_a_user_can_mask_a_unit_that_is_enabled_for_all(_machine: SystemdMachine) -> None:
    """`disable` does not turn it off, although it succeeds."""
    name = "zonedrive@everyone.service"
    assert _machine.root("systemctl", "--global", "enable", name).returncode == 0
    try:
        assert _machine.systemctl("disable", name).returncode == 0
        assert _machine.systemctl("is-enabled", name).returncode == 0
        assert _machine.systemctl("mask", name).returncode == 0
        assert _machine.systemctl("is-enabled", name).returncode == 1
    finally:
        _machine.systemctl("unmask", name)
        _machine.root("systemctl", "--global", "disable", name)
