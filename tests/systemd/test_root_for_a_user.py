"""Root mounts with `setuid=USER` from a terminal, and the user is hostile."""

import json
import os
import re
import runpy
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zonedrive
from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually
from tests.systemd import hostile
from tests.systemd.systemd_machine import HOME, ROOT, SECONDS, UID, SystemdMachine

CREW = 4712  # another group of the user
SHARED = "/srv/shared"  # the user's, and where root happens to be
NOWHERE = "https://nowhere.example"
MOUNT = "mount -t fuse.zonedrive -o setuid=person"
PYTHON = f"{sys.base_prefix}/bin/python3"

# A zonedrive as a package installs it: on a Python that knows users' site packages.
COMMAND = f"""#!{PYTHON}
import sys
sys.path += {[sysconfig.get_path("purelib"), str(Path(zonedrive.__file__).parents[1])]!r}
from zonedrive.__main__ import main
main()
"""

# Names of modules that the helper imports, or Python itself.
PLANTED = ("sitecustomize", "usercustomize", "subprocess", "getopt", "pwd", "click", "zonedrive")
PLANT = 'import os\nif os.geteuid() == 0: open("/srv/shared/ran-as-root", "w")\n'

SESSION = """
import ctypes, os, sys
number = int(sys.argv[1])
libc = ctypes.CDLL(None)
libc.syscall(number, 1, None)
libc.syscall(number - 2, b"user", b"zonedrive-test", b"key of root", 11, -3)
os.setgroups([0, 6])
os.execvp("sh", ["sh"])
"""


def keyctl() -> int:
    """Return the number of keyctl(2), as the helper has it."""
    helper = runpy.run_path(str(ROOT / "packaging" / "mount.fuse.zonedrive"))
    return int(helper["KEYCTL"][os.uname().machine])


class Shell:
    """Shell of root at a terminal, with secrets of root."""

    def __init__(self, machine: SystemdMachine) -> None:
        self.machine = machine
        self.terminal = machine.terminal_of_root(
            PYTHON, "-Ic", SESSION, str(keyctl()), PYTHONPATH=SHARED, TOKEN="of root",
        )  # fmt: skip
        self.terminal.until("# ")

    def type(self, line: str) -> None:
        """Type a line."""
        self.terminal.type(line)

    def code(self) -> int:
        """Return the exit code that the line typed last prints as `code=N.`."""
        while (found := re.search(r"code=(\d+)\.", self.terminal.shown)) is None:
            assert self.terminal.until_more(), self.terminal.shown
        return int(found[1])

    def report(self) -> str:
        """Return the report that the user's code has written so far."""
        return self.machine.root("cat", str(hostile.REPORT)).stdout

    def stolen(self) -> dict[str, Any]:
        """Return the report of the user's code, once it exists."""

        def there() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(self.report() or "{}")
            return found

        return eventually(there, SECONDS, what="the user's code reports")

    def end_process(self) -> None:
        """Kill the process that the user's code reported."""
        if report := self.report():
            self.machine.root("kill", "-KILL", str(json.loads(report)["pid"]))

    def without_hook(self) -> None:
        """Restore the original command."""
        self.machine.root("sh", "-c", "cd /usr/local/bin; [ ! -e kept ] || mv kept zonedrive")

    def has(self, path: str) -> bool:
        """Return True if the file exists."""
        return self.machine.root("test", "-e", path).returncode == 0


@pytest.fixture
def shell(_machine: SystemdMachine) -> Iterator[Shell]:
    """Yield a shell of root in a folder of the user, whose Python runs hostile code."""
    site = _machine.done(PYTHON, "-m", "site", "--user-site").strip()
    _machine.write(f"{site}/usercustomize.py", Path(hostile.__file__).read_text())
    setup = f"""
        grep -q crew /etc/group || echo crew:x:{CREW}:person >>/etc/group
        umask 022; cd /usr/local/bin; mv zonedrive kept; cat >zonedrive; chmod 755 zonedrive
        mkdir -p /root; install -d -o {UID} {SHARED} {HOME}/Work
        (umask 077; echo secret >/root/secret); rm -f /root/injected /root/typed {hostile.REPORT}
    """
    _machine.root("sh", "-euc", setup, text=COMMAND)
    for name in PLANTED:
        _machine.write(f"{SHARED}/{name}.py", PLANT)
    made = Shell(_machine)
    yield made
    made.end_process()
    made.type("exit")
    made.terminal.end()
    _machine.root("rm", "-rf", site, SHARED, str(hostile.MODE))
    made.without_hook()


def test_a_user_gets_nothing_of_root(shell: Shell) -> None:
    """The user gets no terminal, keystroke, file, folder, variable, key or group; errors are
    readable."""
    shell.machine.write(str(hostile.MODE), f"steal {keyctl()}")
    shell.type(f"cd {SHARED}; exec 9</root/secret; umask 0")
    # The second line waits in the terminal while the first one runs.
    attack = f"{MOUNT} {NOWHERE} {HOME}/Work; echo code=$?."
    shell.type(f"{attack}\necho this was typed >/root/typed")
    assert shell.code() == 1
    found = shell.stolen()
    variables = found.pop("variables")
    assert found == {
        "pid": found["pid"],
        "terminals": [],
        "injected": [],
        "typed": [],
        "controlling terminal": 0,
        "session is its own": True,
        "descriptors": {},
        "content": [],
        "standard input": "/dev/null",
        "output is a pipe": [True, True],
        "folder": "/",
        "groups": [UID, CREW],
        "users": [UID] * 6,
        "capabilities": [],
        "umask": 0o022,
        "core": 0,
        "memory of the parent": None,
        "files of the parent": None,
        "key": "",
    }
    eventually(lambda: shell.has("/root/typed"), SECONDS, what="root's next line runs")
    shell.type("echo code=7.")
    assert shell.code() == 7  # whatever was typed before has run
    assert not shell.has("/root/injected")
    assert not shell.has(f"{SHARED}/ran-as-root")
    variables.pop("LC_CTYPE", "")  # Python's own doing
    assert variables == {
        "HOME": HOME,
        "USER": "person",
        "LOGNAME": "person",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "XDG_RUNTIME_DIR": f"/run/user/{UID}",
    }


def test_the_output_of_the_user_is_plain_and_short_at_roots_terminal(shell: Shell) -> None:
    """Output has no control characters and a limited size; zonedrive's own line is the last."""
    shell.machine.write(str(hostile.MODE), f"steal {keyctl()}")
    shell.type(f"{MOUNT} {NOWHERE} {HOME}/Work; echo code=$?.")
    assert shell.code() == 1
    shown = shell.terminal.shown
    assert not re.search(r"[\x07\x9b\u202e]|\x1b\[2J|\x1b\]", shown)
    assert len(shown) < 8192
    lines = [line for line in shown.splitlines() if line.startswith("mount.fuse.zonedrive: ")]
    assert lines[-1].startswith(f"mount.fuse.zonedrive: nobody is logged on at {NOWHERE}; run ")


@pytest.mark.parametrize("mode", ["polite", "stubborn"])
def test_ctrl_c_of_root_ends_a_mount_for_a_user(shell: Shell, mode: str) -> None:
    """Ctrl-C works even if the user's process ignores signals."""
    shell.machine.write(str(hostile.MODE), f"{mode} 0")
    shell.type(f"{MOUNT} {NOWHERE} {HOME}/Work")
    pid = shell.stolen()["pid"]
    shell.terminal.press("\x03")
    eventually(lambda: not shell.has(f"/proc/{pid}"), SECONDS, what="the user's process ended")
    shell.type("echo code=7.")
    assert shell.code() == 7


def test_a_mount_for_a_user_that_hangs_is_killed(shell: Shell) -> None:
    """A user's process that never ends delays root, or the boot, only for a limited time."""
    shell.machine.write(str(hostile.MODE), "stubborn 0")
    impatient = (
        "import runpy, sys; helper = runpy.run_path(sys.argv[1]);"
        "helper['follow'].__globals__['SECONDS'] = 1;"
        "sys.exit(helper['main'](sys.argv[2:]))"
    )
    helper = ["/sbin/mount.fuse.zonedrive", NOWHERE, f"{HOME}/Work", "-o", "setuid=person"]
    ended = shell.machine.root(PYTHON, "-ISc", impatient, *helper)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "did not come to an end within" in ended.stderr
    assert shell.has(f"/proc/{shell.stolen()['pid']}") is False


def test_the_daemon_of_the_user_holds_nothing_of_roots_terminal(
    shell: Shell, deployment: Deployment, zone: str
) -> None:
    """A real mount from a terminal works, and its daemon has no descriptor of the terminal."""
    shell.without_hook()
    shell.machine.log_on(deployment, "terminal")
    options = f"{MOUNT},account=terminal"
    shell.type(f"{options} {deployment.base_url} {HOME}/Work; echo code=$?.")
    assert shell.code() == 0, shell.terminal.shown
    assert shell.machine.read(f"{HOME}/Work/{zone}/notes.txt")
    lock = shell.machine.read(f"{HOME}/.local/state/zonedrive/terminal/daemon.lock")
    pid = json.loads(lock)["pid"]
    assert shell.machine.root("stat", "-c", "%U", f"/proc/{pid}").stdout == "person\n"
    open_files = shell.machine.root("sh", "-c", f"readlink /proc/{pid}/fd/*").stdout.split()
    assert open_files[0] == "/dev/null"
    assert not [path for path in open_files if "/pts/" in path or "/tty" in path]
    assert shell.machine.root("umount", f"{HOME}/Work").returncode == 0
