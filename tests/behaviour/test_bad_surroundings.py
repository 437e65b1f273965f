"""On any machine, zonedrive works or reports in one line how to fix the problem."""

import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, has_ended
from tests.harness.surroundings import NAMELESS, Person
from tests.harness.waiting import eventually

XDG = {f"XDG_{name}_{kind}": None for name, kind in [
    ("STATE", "HOME"), ("CACHE", "HOME"), ("CONFIG", "HOME"), ("DATA", "HOME"), ("RUNTIME", "DIR"),
]}  # fmt: skip
# Python uses ASCII for these; a locale with another encoding than UTF-8 may be missing.
ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SMALL = "mount -t tmpfs -o size={},mode=755 none {}\nchown 65534 {}\n"
FILL = "head -c 8m /dev/zero >{}/fill 2>&- || :\n"


@pytest.fixture
def person(shell: Machine) -> Iterator[Person]:
    """Yield a logged-on user whose mounts end with the test."""
    yield Person(shell)
    for line in Path("/proc/self/mounts").read_bytes().splitlines():
        path = line.split(b" ")[1].decode("unicode_escape", "surrogateescape")
        if path.startswith(f"{shell.folder}/"):
            subprocess.run(["fusermount3", "-uz", path], check=False)


@pytest.fixture
def stranger(machine: Machine) -> Person:
    """Return a user who is not logged on."""
    return Person(machine)


def refused(person: Person, *arguments: str | Path, code: int = 1, **how: Any) -> str:
    """Return the single error line of a failing command."""
    ended = person.run(*arguments, **how)
    assert (ended.returncode, ended.stdout) == (code, ""), (arguments, ended)
    assert ended.stderr.startswith("zonedrive: ") and ended.stderr.count("\n") == 1, ended.stderr
    assert "internal error" not in ended.stderr
    return ended.stderr


def done(person: Person, *arguments: str | Path, **how: Any) -> str:
    """Return the output of a successful command."""
    ended = person.run(*arguments, **how)
    assert (ended.returncode, ended.stderr) == (0, ""), (arguments, ended)
    return ended.stdout


def logon(deployment: Deployment, machine: Machine) -> list[str | Path]:
    """Return the arguments of a logon with a password on the standard input."""
    authority = machine.folder / "ca.pem"
    shutil.copy(deployment.ca_file, authority)
    user = ["--username", f"alice@{world.DOMAIN}", "--password-stdin"]
    return ["logon", deployment.base_url, *user, "--ca-file", authority]


PASSWORD = world.PASSWORDS["alice"] + "\n"


@pytest.mark.parametrize(
    "command", ["status", "mount .", "unmount .", "pin x", "logon https://service.example"]
)
def test_no_home(machine: Machine, command: str) -> None:
    """Without HOME and without a home folder of the user, the error asks for a place."""
    nameless = Person(machine, NAMELESS, starts_programs=command == "status")
    said = refused(nameless, *command.split(), environment=XDG | {"HOME": None}, text="x\n")
    assert "set HOME" in said


def test_no_home_for_the_doctor(machine: Machine) -> None:
    """Doctor checks what exists, and reports the missing home folder, too."""
    nameless = Person(machine, NAMELESS, starts_programs=True)
    ended = nameless.run("doctor", environment=XDG | {"HOME": None})
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "BAD  user: your user ID has no name" in ended.stdout
    assert "BAD  home folder: there is no home folder" in ended.stdout
    assert "set HOME to a folder that you own" in ended.stdout
    for untrue in ("settings", "logon", "damaged"):
        assert f"  {untrue}: " not in ended.stdout
    assert "ok   fuse device" in ended.stdout


def test_a_home_that_is_no_folder(stranger: Person, deployment: Deployment) -> None:
    """Neither logon nor doctor recommends making such a home folder writable."""
    none = XDG | {"HOME": "/dev/null"}
    words = logon(deployment, stranger.machine)
    said = refused(stranger, *words, environment=none, text=PASSWORD)
    assert "/dev/null is no folder, where a folder is needed; set HOME" in said
    said = stranger.run("doctor", environment=none).stdout
    assert "BAD  state folder: it cannot be created: a file is in its place" in said
    assert "make /dev/null writable" not in said


def test_xdg_variables_that_are_no_paths(person: Person) -> None:
    """Empty or relative XDG variables are ignored, because their meaning depends on the program."""
    home = person.machine.folder / "home"
    shutil.copytree(person.machine.folders["STATE_HOME"], home / ".local/state")
    person.give(home)
    odd = dict.fromkeys(XDG, "relative") | {"XDG_CACHE_HOME": "", "HOME": str(home)}
    folder = home / "Zones"
    folder.mkdir()
    person.give(folder)
    done(person, "mount", folder, environment=odd)
    assert f"mounted at {folder}" in done(person, "status", environment=odd)
    assert (home / ".cache/zonedrive/default").is_dir()
    done(person, "unmount", folder, environment=odd)
    assert not (person.machine.folder / "relative").exists()


def test_a_locale_without_utf_8(person: Person, deployment: Deployment) -> None:
    """Commands and mount find names with umlauts, and report bytes that are not text."""
    folder = person.machine.folder / "Zönes"
    folder.mkdir()
    person.give(folder)
    done(person, "mount", folder, environment=ASCII)
    file = os.fsencode(folder) + os.fsencode(f"/{deployment.fresh_zone()}/Grüße.txt")
    shown = person.run("status", os.fsdecode(file), environment=ASCII)
    assert "does not exist" in shown.stderr
    write = f"umask 22; echo x >'{os.fsdecode(file)}'; exec \"$@\""
    done(person, "sync", os.fsdecode(file), shell=write, environment=ASCII)
    assert "online" in done(person, "status", os.fsdecode(file))  # another locale, the same file
    assert "Zönes" in done(person, "status", environment=ASCII)
    raw = os.fsdecode(file.replace("ü".encode(), b"\xfc"))
    assert "Gr\\udcfc" in refused(person, "status", raw, environment=ASCII)
    done(person, "unmount", folder, environment=ASCII)


def test_a_full_disk_below_the_home_folder(person: Person, deployment: Deployment) -> None:
    """Each command reports the full disk, and doctor the folder on it."""
    state = person.machine.folders["STATE_HOME"]
    full = f"cp -a {state} kept\n" + SMALL.format("1m", state, state) + f"cp -a kept/. {state}\n"
    full += FILL.format(state)
    folder = person.machine.folder / "Zones"
    folder.mkdir()
    person.give(folder)
    assert "its disk is full: make room there" in done(person, "status", lacking=full)
    done(person, "zones", lacking=full)  # which needs only the service
    for command in (["mount", "Zones"],):
        said = refused(person, *command, lacking=full)
        assert "full" in said or "No space left" in said
        assert "make room" in said or "cannot be written" in said
    words = logon(deployment, person.machine)
    assert "No space left" in refused(person, *words, lacking=full, text=PASSWORD)
    said = person.run("doctor", lacking=full).stdout
    assert f"make room on the disk of {state}/zonedrive/default" in said


def test_a_home_folder_that_cannot_be_written(stranger: Person, deployment: Deployment) -> None:
    """The error names the folder and the variable to set; a failed logon leaves no token behind."""
    home = stranger.machine.folder / "home"
    home.mkdir()
    read_only = f"mount --bind {home} {home}\nmount -o remount,bind,ro {home}\n"
    none = XDG | {"HOME": str(home)}
    words = logon(deployment, stranger.machine)
    said = refused(stranger, *words, lacking=read_only, text=PASSWORD, environment=none)
    state = home / ".local/state/zonedrive/default"
    assert f"{state}: Read-only file system; make it writable, or set XDG_STATE_HOME" in said
    said = stranger.run("doctor", lacking=read_only, environment=none).stdout
    assert "BAD  state folder: it cannot be created" in said
    assert f"make {home} writable, or set XDG_STATE_HOME" in said


def test_a_disk_that_became_read_only(person: Person) -> None:
    """No remedy recommends changing the owner of folders, and no message claims that data are
    lost."""
    state = person.machine.folders["STATE_HOME"]
    read_only = f"mount --bind {state} {state}\nmount -o remount,bind,ro {state}\n"
    said = person.run("doctor", lacking=read_only).stdout
    assert "BAD  state folder: it cannot be written: its disk is read-only" in said
    assert "chown" not in said and "StoreError" not in said
    folder = person.machine.folder / "Zones"
    folder.mkdir()
    person.give(folder)
    done(person, "mount", folder)
    done(person, "unmount", folder)
    said = person.run("doctor", lacking=read_only).stdout
    assert "cannot be looked at" not in said


@pytest.mark.parametrize("where", ["state", "state's parent", "cache", "root's"])
def test_a_logoff_that_may_not_delete(stranger: Person, deployment: Deployment, where: str) -> None:
    """Nothing ends, neither the logon nor the mount; the line has a remedy."""
    person, machine = stranger, stranger.machine
    zones = machine.folder / "Zones"
    zones.mkdir()
    person.give(zones)
    words = [*logon(deployment, machine), "--profile", "sandbox"]
    assert person.run(*words, text=PASSWORD).returncode == 0
    done(person, "mount", zones)
    state, cache = machine.state, machine.cache
    places = {"state": state, "state's parent": state.parent, "cache": cache}
    folder = places.get(where, cache / "of-root")
    if where == "root's":
        folder.mkdir(mode=0o700)
        (folder / "file").touch()
    else:
        person.do(f"chmod -R a-w {folder}")
    for option in ((), ("--discard",)):
        said = refused(person, "logoff", *option)
        assert said.startswith("zonedrive: nothing can be destroyed: you may not delete what is in")
        assert f" {folder}; make it and the folders in it readable and writable" in said
    if where == "root's":
        person.give(folder)
    person.do(f"chmod -R u+w {folder}")
    assert "everything is on the service" in done(person, "status")
    done(person, "unmount", zones)
    assert done(person, "zones", "--json") != "[]\n"
    assert "logged off" in done(person, "logoff")
    assert not machine.state.exists()


def test_a_full_runtime_folder(person: Person) -> None:
    """The error names the runtime folder, not the state folder, whose disk has room."""
    run = person.machine.folders["RUNTIME_DIR"]
    (person.machine.folder / "Zones").mkdir()
    person.give(person.machine.folder / "Zones")
    full = f"mount -t tmpfs -o nr_inodes=1,mode=700,uid=65534 none {run}\n"
    assert f"the disk of {run}/zonedrive is full" in refused(person, "mount", "Zones", lacking=full)


# Failures in a home folder on NFS: locks, if the server or its helper supports none, and sockets,
# if the server accepts no special files.
SHIM = """
#include <errno.h>
int flock(int fd, int how) { errno = ENOLCK; return -1; }
int bind(int fd, const void *address, unsigned length) { errno = EPERM; return -1; }
"""


def test_a_home_folder_without_locks_and_sockets(person: Person) -> None:
    """On some network file systems a mount is refused, because a second mount could damage its
    data."""
    machine = person.machine
    (machine.folder / "shim.c").write_text(SHIM)
    library = machine.folder / "shim.so"
    subprocess.run(["gcc", "-shared", "-o", library, machine.folder / "shim.c"], check=True)
    library.chmod(0o755)
    folder = machine.folder / "Zones"
    folder.mkdir()
    person.give(folder)
    nfs = {"LD_PRELOAD": str(library)}
    said = refused(person, "mount", folder, environment=nfs)
    state = machine.folders["STATE_HOME"] / "zonedrive"
    assert f"cannot be locked (No locks available); move {state} to a folder on a disk" in said
    assert f" {folder} " not in Path("/proc/self/mounts").read_text("utf-8", "replace")
    shown = person.run("doctor", environment=nfs).stdout
    assert "BAD  state folder: files there cannot be locked (No locks available)" in shown
    assert f"move {state} to a folder on a disk of this machine" in shown
    assert "BAD  runtime folder: no socket can be created there" in shown
    for command in ("zones", "users list"):  # operations that need neither succeed
        done(person, *command.split(), environment=nfs)


@pytest.mark.parametrize("umask", ["0", "777"])
def test_any_umask(stranger: Person, deployment: Deployment, umask: str) -> None:
    """Files are private with a permissive umask, and usable by their owner with a restrictive
    one."""
    machine = stranger.machine
    shell = f'umask {umask}; exec "$@"'
    folder = machine.folder / "Zones"
    folder.mkdir()
    stranger.give(folder)
    ended = stranger.run(*logon(deployment, machine), text=PASSWORD, shell=shell)
    assert ended.returncode == 0, ended.stderr
    done(stranger, "mount", folder, shell=shell)
    done(stranger, "zones", shell=shell)
    done(stranger, "unmount", folder, shell=shell)
    kept = [path for name in ("state", "cache") for path in (machine.folder / name).rglob("*")]
    assert len(kept) > 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o700, 0o600}
    assert "could be read" not in stranger.run("doctor").stdout


def test_a_runtime_folder_of_another_user(person: Person) -> None:
    """With a runtime folder that `su` left, commands and daemon meet in the state folder."""
    theirs = {"XDG_RUNTIME_DIR": "/root"}
    folder = person.machine.folder / "Zones"
    folder.mkdir()
    person.give(folder)
    done(person, "mount", folder, environment=theirs)
    assert "online" in done(person, "status", environment=theirs | {"XDG_RUNTIME_DIR": None})
    # Commands with another setting find the daemon, too.
    done(person, "sync")
    assert "mounted, and it answers" in person.run("doctor").stdout
    done(person, "unmount", folder)


def test_no_place_for_the_socket_leaves_no_mount(person: Person) -> None:
    """A daemon that commands could not reach does not start."""
    (person.machine.folders["RUNTIME_DIR"] / "zonedrive").touch()
    folder = person.machine.folder / "Zones"
    folder.mkdir()
    person.give(folder)
    assert "zonedrive" in refused(person, "mount", folder)
    assert f" {folder} " not in Path("/proc/self/mounts").read_text("utf-8", "replace")


@pytest.mark.parametrize("command", ["status --json", "--help", "ui --no-browser"])
def test_output_that_cannot_be_written(person: Person, command: str) -> None:
    """Output to a full disk gives an error message."""
    ended = person.run(*command.split(), shell='exec "$@" >/dev/full')
    assert ended.returncode == 1
    assert ended.stderr == ("zonedrive: the output cannot be written (No space left on device)\n")


def test_a_path_without_anything(person: Person) -> None:
    """The system's programs are found without a usable PATH."""
    nothing = {"PATH": "/nowhere"}
    folder = person.machine.folder / "Zones"
    folder.mkdir()
    person.give(folder)
    done(person, "mount", folder, environment=nothing)
    done(person, "unmount", folder, environment=nothing)
    assert done(person, "doctor", environment=nothing).endswith("everything is in order\n")


@pytest.mark.parametrize("bus", ["unix:path=/nowhere", "nonsense"])
def test_a_session_bus_that_is_not_there(
    stranger: Person, deployment: Deployment, bus: str
) -> None:
    """The secrets are stored in a file, which is reported, and everything else works."""
    broken = {"DBUS_SESSION_BUS_ADDRESS": bus}
    words = logon(deployment, stranger.machine)
    ended = stranger.run(*words, text=PASSWORD, environment=broken)
    assert ended.returncode == 0
    assert ended.stderr.startswith("zonedrive: no keyring is in use: ")
    assert ended.stderr.count("\n") == 1
    assert done(stranger, "doctor", environment=broken).endswith("everything is in order\n")


def waiting(person: Person, deployment: Deployment, *, killed: bool = False) -> Path:
    """Return the folder of a mount that ended with a file that is not uploaded."""
    folder = person.machine.folder / "Zones"
    folder.mkdir()
    person.give(folder)
    done(person, "mount", folder)
    zone = folder / deployment.fresh_zone()
    person.do(f"ls '{zone}' >/dev/null")
    with deployment.faulty(down=True):
        person.do(f"printf 12345 >'{zone}/precious.txt'")
        if not killed:
            person.run("unmount", folder, "--timeout", "0")
            return folder
        state = person.machine.state
        pid = json.loads((state / "daemon.lock").read_bytes())["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: has_ended(pid))
    subprocess.run(["fusermount3", "-uz", folder], check=True)
    (state / "tree.db-shm").unlink()
    assert (state / "tree.db-wal").stat().st_size  # the last write is only in the log
    return folder


READ_ONLY = "mount --bind {0} {0}\nmount -o remount,bind,ro {0}\n"


@pytest.mark.parametrize("killed", [False, True])
def test_pending_files_on_a_disk_that_became_read_only(
    person: Person, deployment: Deployment, killed: bool
) -> None:
    """Commands report what is pending, and no remedy hides the pending files."""
    folder = waiting(person, deployment, killed=killed)
    ro = READ_ONLY.format(person.machine.folders["STATE_HOME"])
    found = json.loads(done(person, "status", "--json", lacking=ro))
    assert found["outbox"] == {
        "pending": 1, "uploading": 0, "failed": 0, "conflicts": 0, "bytes": 5,
    }  # fmt: skip
    (upload,) = found["uploads"]
    assert upload["path"].endswith("/precious.txt") and upload["state"] == "pending"
    assert "read-only" in done(person, "status", lacking=ro)
    assert len(done(person, "zones", lacking=ro).splitlines()) > 5
    said = refused(person, "sync", lacking=ro)
    assert "1 file (5 bytes)" in said and "look at 'dmesg'" in said
    for command in (["logoff"], ["logoff", "--discard"], ["mount", "Zones"]):
        said = refused(person, *command, lacking=ro)
        assert "look at 'dmesg'" in said and "XDG_STATE_HOME" not in said
    done(person, "mount", folder)
    done(person, "sync")
    done(person, "unmount", folder)


def test_pending_files_on_a_full_disk(person: Person, deployment: Deployment) -> None:
    """Pending files are counted as usual, and an unused account can be destroyed."""
    waiting(person, deployment)
    state = person.machine.folders["STATE_HOME"]
    full = f"cp -a {state} kept\n" + SMALL.format("1m", state, state) + f"cp -a kept/. {state}\n"
    full += FILL.format(state)
    found = json.loads(done(person, "status", "--json", lacking=full))
    assert (found["outbox"]["pending"], found["outbox"]["bytes"]) == (1, 5)
    assert "make room there" in refused(person, "sync", lacking=full)
    ended = person.run("logoff", "--discard", lacking=full)
    assert ended.returncode == 0, ended.stderr
