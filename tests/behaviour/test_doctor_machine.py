"""`zonedrive doctor` on machines with a real defect names the remedy."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Machine, Mounted
from tests.harness.surroundings import NAMELESS, WITHOUT_DEVICE, Person, stand_in
from zonedrive.doctor import folders
from zonedrive.doctor.facts import DoctorFacts
from zonedrive.fuse import mountpoint
from zonedrive.paths import AccountPaths


@pytest.fixture
def person(shell: Machine) -> Person:
    """Return a logged-on user other than root."""
    return Person(shell)


def bad(person: Person, **how: Any) -> dict[str, str]:
    """Return the failed checks by name, each with its remedy."""
    ended = person.run("doctor", "--json", **how)
    assert ended.stderr == ""
    found = {
        check["name"]: f"{check['detail']}; {check['remedy']}"
        for check in json.loads(ended.stdout)["checks"]
        if not check["ok"]
    }
    assert ended.returncode == (1 if found else 0)
    return found


@pytest.mark.parametrize("program", [False, True])
def test_an_ordinary_user_is_in_order(shell: Machine, program: bool) -> None:
    """On an ordinary machine all checks pass, so that the failures below have the tested cause."""
    assert bad(Person(shell, starts_programs=program)) == {}


def test_no_device(person: Person) -> None:
    """Without /dev/fuse, without permission for users, or with another file in its place."""
    found = bad(person, lacking=WITHOUT_DEVICE)
    assert set(found) == {"fuse device"}
    assert "no /dev/fuse; run 'modprobe fuse' as root" in found["fuse device"]
    found = bad(person, lacking=WITHOUT_DEVICE + "touch /dev/fuse; chmod 600 /dev/fuse")
    assert "not open to you; run 'chmod 666 /dev/fuse'" in found["fuse device"]
    for other in ("chmod 666 /dev/fuse", "mount --bind /dev/null /dev/fuse"):
        found = bad(person, lacking=f"{WITHOUT_DEVICE}touch /dev/fuse; {other}")
        assert "is not the kernel's FUSE device" in found["fuse device"]
    nodev = "mount --bind /dev/fuse dev2; mount -o remount,bind,nodev dev2; mount --move dev2"
    found = bad(person, lacking=f"touch dev2; {nodev} /dev/fuse")
    assert "not open to you" in found["fuse device"]


def test_a_container_that_may_not_mount(person: Person) -> None:
    """The device can be opened, but a mount would be refused, for users and for root."""
    fewer = ("--bounding-set=-sys_admin",)
    assert "--cap-add SYS_ADMIN" in bad(person, how=fewer)["fusermount3"]
    ended = subprocess.run(
        ["setpriv", *fewer, COMMAND, "doctor"], env=person.machine.environment,
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert "BAD  fusermount3: may not mount" in ended.stdout


def test_no_helper(person: Person) -> None:
    """fusermount3 is missing, as the kernel sees it."""
    hide = f"mount --bind /dev/null {Path(str(shutil.which('fusermount3'))).resolve()}"
    found = bad(person, lacking=hide)
    assert set(found) == {"fusermount3"}
    assert "install the package fuse3" in found["fusermount3"]


def test_a_helper_without_its_bit(person: Person) -> None:
    """fusermount3 exists without its setuid bit; the user sees the exact command to run."""
    copy = stand_in(person.machine, "fusermount3")
    copy.chmod(0o755)
    assert "not setuid root" in bad(person)["fusermount3"]
    assert f"chmod u+s {copy}" in person.run("doctor").stdout
    copy.chmod(0o4755)
    assert bad(person) == {}


def test_a_helper_without_privileges(person: Person) -> None:
    """Under NoNewPrivileges, and on a file system that is mounted nosuid, the bit has no effect."""
    assert "NoNewPrivileges" in bad(person, how=("--no-new-privs",))["fusermount3"]
    copy = stand_in(person.machine, "fusermount3")
    copy.chmod(0o4755)
    nosuid = f"mount --bind {copy.parent} {copy.parent}; mount -o remount,bind,nosuid {copy.parent}"
    assert "nosuid" in bad(person, lacking=nosuid)["fusermount3"]


def test_a_user_without_a_name(shell: Machine) -> None:
    """Doctor gives the remedy, where fusermount3 would only say that it cannot determine the
    user."""
    nameless = Person(shell, NAMELESS)
    assert "useradd --uid NUMBER" in bad(nameless)["user"]
    assert f"useradd --uid {NAMELESS}" in nameless.run("doctor").stdout


def test_a_runtime_folder_of_another_user(person: Person) -> None:
    """A runtime folder that `su` left is reported, but passes, because another folder replaces
    it."""
    theirs = person.machine.folders["RUNTIME_DIR"]
    shutil.chown(theirs, 0, 0)
    assert bad(person) == {}
    assert "is not private: another user owns it" in person.run("doctor").stdout


LISTEN = """
import socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1])
door.listen()
print("open", flush=True)
sys.stdin.read()
"""


def test_a_socket_of_another_user(person: Person) -> None:
    """Doctor reports before a mount that another user listens on the path of the socket."""
    folder = person.machine.folders["RUNTIME_DIR"] / "zonedrive"
    folder.mkdir()
    folder.chmod(0o777)
    person.machine.folder.chmod(0o755)
    folder.parent.chmod(0o755)
    person.give(folder)
    become = ["setpriv", f"--reuid={NAMELESS}", f"--regid={NAMELESS}", "--clear-groups"]
    command = [*become, "/usr/bin/python3", "-c", LISTEN, str(folder / "default.sock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        found = bad(person)
        assert set(found) == {"runtime folder"}
        assert "the control socket belongs to another user" in found["runtime folder"]
        assert f"sudo rm -r {folder}/default.sock" in person.run("doctor").stdout
        other.communicate(b"")
    shutil.chown(folder, 0, 0)
    assert (
        "the folder of the control socket belongs to another user" in bad(person)["runtime folder"]
    )


def test_a_disk_of_no_known_kind(shell: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chroot without the disk in the mount table, doctor names no file system type."""
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.folders["STATE_HOME"]))
    facts = DoctorFacts(AccountPaths("default"), dict)
    found = folders.state(facts)
    assert found is not None and found.detail.startswith("private, on ")
    monkeypatch.setattr(mountpoint, "mounts", list)
    found = folders.state(facts)
    assert found is not None and found.detail.startswith("private; there is room for ")


def test_a_state_folder_that_cannot_be_written(person: Person) -> None:
    """The remedy names the state folder in which files cannot be locked or created.

    The disk became read-only, or the files there belong to another user.
    """
    state = person.machine.folders["STATE_HOME"]
    read_only = f"mount --bind {state} {state}; mount -o remount,bind,ro {state}"
    assert "cannot be written" in bad(person, lacking=read_only)["state folder"]
    (person.machine.state / "account.json").chmod(0o644)
    assert "others can read" in bad(person)["state folder"]
    (person.machine.state / "account.json").chmod(0o600)
    (person.machine.state / "daemon.log").touch(0o600)  # root's
    assert "another user owns" in bad(person)["state folder"]
    assert f"chown -R 65534 {person.machine.state}" in person.run("doctor").stdout


def test_a_full_disk(person: Person) -> None:
    """Doctor reports full disks of the state folder and of the cache."""
    state, cache = (person.machine.folders[name] for name in ("STATE_HOME", "CACHE_HOME"))
    (cache / "zonedrive/default/content").mkdir(parents=True, mode=0o700)
    for each in (cache / "zonedrive/default/content").parents[:2]:
        each.chmod(0o700)
    person.give(cache)
    small = "cp -a {0} kept; mount -t tmpfs -o size=1m,mode=700 none {0}; cp -a kept/. {0}\n"
    fill = "head -c 2m /dev/zero >{0}/fill 2>&- || :\n"
    found = bad(person, lacking=(small + fill).format(state))
    assert "room for 0 bytes of what you save; make room" in found["state folder"]
    found = bad(person, lacking=(small + fill).format(cache))
    assert set(found) == {"cache folder"}
    assert "make room on the disk of the cache folder" in found["cache folder"]


def test_a_mount_of_another_user_is_ignored(mounted: Mounted) -> None:
    """Another user's mount of the same service, alive or dead, does not affect our checks."""
    other = Machine(mounted.machine.folder / "other")
    other.copy_account(mounted.machine)
    mounted.machine.folder.chmod(0o755)
    for ours in ("daemon.lock", "daemon.run"):
        (other.state / ours).unlink()
    mounted.kill()
    assert bad(Person(other)) == {}


def test_a_folder_to_mount_on(person: Person) -> None:
    """Doctor reports beforehand why `mount` would refuse, and reveals no names."""
    folder = person.machine.folder / "Zones"
    assert "does not exist; run 'mkdir -p" in person.run("doctor", folder).stdout
    folder.mkdir()
    person.give(folder)
    assert "ok   mount point: yours, and empty\n" in person.run("doctor", folder).stdout
    (folder / "secret").touch()
    assert f"{folder} is not empty" in person.run("doctor", folder).stdout
    said = person.run("doctor", "--json", folder)
    assert said.returncode == 1
    assert "Zones" not in said.stdout and "secret" not in said.stdout


def test_a_clock_that_is_wrong(proxy: FaultProxy, machine: Machine) -> None:
    """The date in the service's answers reveals a wrong clock, in both directions."""
    machine.log_on(proxy, profile="published")
    said = ["Sat, 01 Jan 2000 00:00:00 GMT"]

    def alter(answer: Answer) -> None:
        answer.headers["Date"] = said[-1]

    proxy.about, proxy.alter = lambda asked: True, alter
    person = Person(machine)
    found = bad(person)
    assert set(found) == {"clock"}
    assert "s ahead of the service's; run 'timedatectl set-ntp true'" in found["clock"]
    said.append("Thu, 01 Jan 2099 00:00:00 GMT")
    assert "s behind the service's" in bad(person)["clock"]


@pytest.fixture
def settings(shell: Machine) -> Iterator[Path]:
    """Yield the path of the settings file."""
    path = shell.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    path.parent.mkdir(exist_ok=True)
    yield path


def test_mistakes_in_files_are_named_by_line(shell: Machine, settings: Path) -> None:
    """The shared report has only the line; the user sees the file, the mistake and the
    correction."""
    settings.write_text("settle = 2\nrefesh = 5\n")
    ended = shell.run("doctor")
    assert f"{settings}:2: there is no setting 'refesh'; did you mean refresh?" in ended.stdout
    assert "config.toml cannot be used (line 2); " in bad(Person(shell))["settings"]
    profile = shell.folder / "secret-deployment.toml"
    profile.write_text('[delete]\nmethod = "DELETE"\npath = "https://evil.example/{entry}"\n')
    settings.write_text(f'profile = "{profile}"\n')
    person = Person(shell)
    assert "a file of your own cannot be used (line 3)" in bad(person)["profile"]
    assert f"{profile}, line 3: " in person.run("doctor").stdout


def test_an_expired_token(machine: Machine, deployment: Deployment) -> None:
    """An expired token is detected without a request, and the full command is shown."""
    machine.log_on(deployment, profile="sandbox")
    kept = machine.state / "secrets.json"
    secrets = json.loads(kept.read_bytes())
    bearer = json.loads(secrets["bearer"]) | {"expires_ns": 1_000_000_000 * 10**9}
    kept.write_text(json.dumps(secrets | {"bearer": json.dumps(bearer)}))
    person = Person(machine)
    with deployment.faulty(down=True):
        found = bad(person)
    assert set(found) == {"logon", "service"}
    assert "has expired, on 2001-09-09" in found["logon"]
    command = f"zonedrive logon {deployment.base_url} --username alice@{world.DOMAIN}"
    assert f"run '{command}'" in person.run("doctor").stdout
