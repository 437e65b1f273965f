"""Machine in which a real `systemd --user` serves an unprivileged user; see `systemd_machine.sh`.

Knows no test.  It needs root, cgroup2, and the programs of util-linux and systemd; if one is
missing, the test that uses the machine fails and names it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from tests.harness import world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("systemd_machine.sh")
MANAGER = Path("/lib/systemd/systemd")
UID = 4711
HOME = "/home/person"
SECONDS = 60.0  # that anything here may take

ENVIRONMENT = {
    "HOME": HOME,
    "USER": "person",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LC_ALL": "C.UTF-8",
    "XDG_RUNTIME_DIR": f"/run/user/{UID}",
    "COLUMNS": "200",
}

ROOT_ENVIRONMENT = ENVIRONMENT | {"HOME": "/root", "USER": "root"}

# The cgroup is all that outlives the name spaces.  It can be removed when the last process is gone.
SWEEP = """
mount --make-rprivate / 2>/dev/null; mount -t cgroup2 cgroup2 /mnt && cd /mnt || exit
[ ! -d "$0" ] || find "$0" -depth -type d -exec rmdir {} +
"""

# Within a chroot the propagation cannot be changed; none that matters comes from there.
UNSHARE = ["unshare", "--mount", "--propagation", "unchanged"]

Ended = subprocess.CompletedProcess[str]


class SystemdMachine:
    """Machine with a service manager, controlled from outside."""

    def __init__(self, pid: int, log: Path) -> None:
        """Use the machine whose first process is `pid`; `log` has its manager's output."""
        self._pid, self._log = pid, log
        self._enter = ["nsenter", "--target", str(pid), "--mount", "--pid", "--root", "--wdns=/"]

    def _inside(self, command: Sequence[str], text: str, *, uid: int) -> Ended:
        identity = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        return subprocess.run(
            [*self._enter, *identity, *command],
            input=text, env=ENVIRONMENT if uid else ROOT_ENVIRONMENT, timeout=SECONDS,
            capture_output=True, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip

    def terminal_of_root(self, *command: str, **variables: str) -> Terminal:
        """Start a command as root in a terminal."""
        place = SimpleNamespace(environment=ROOT_ENVIRONMENT | variables, folder=Path("/"))
        return Terminal(place, program=[*self._enter, *command])

    def person(self, *command: str, text: str = "") -> Ended:
        """Run a command as the user, without a check of the result."""
        return self._inside(command, text, uid=UID)

    def root(self, *command: str, text: str = "") -> Ended:
        """Run a command as root, without a check of the result."""
        return self._inside(command, text, uid=0)

    def done(self, *command: str, text: str = "") -> str:
        """Return the output of a command of the user, which must succeed."""
        ended = self.person(*command, text=text)
        assert ended.returncode == 0, (command, ended.returncode, ended.stdout, ended.stderr)
        return ended.stdout

    def read(self, path: str) -> str:
        """Return a file's content, as the user reads it."""
        return self.done("cat", "--", path)

    def write(self, path: str, text: str) -> None:
        """Write a file as the user."""
        self.done("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path, text=text)

    def log(self) -> str:
        """Return the manager's output so far."""
        return self._log.read_text("utf-8", "replace")

    def log_on(self, deployment: Deployment, account: str, *options: str) -> None:
        """Log the user on as alice."""
        authority = f"{HOME}/authority.pem"
        self.write(authority, deployment.ca_file.read_text())
        self.done(
            "zonedrive", "logon", deployment.base_url, "--account", account,
            "--username", f"alice@{world.DOMAIN}", "--password-stdin", "--ca-file", authority,
            "--profile", "sandbox", *options, text=f"{world.PASSWORDS['alice']}\n",
        )  # fmt: skip

    def systemctl(self, *arguments: str) -> Ended:
        """Run `systemctl --user`, without a check of the result."""
        return self.person("systemctl", "--user", "--no-pager", *arguments)

    def boot_again(self) -> None:
        """Restart the user's manager with all its services."""
        self.root("touch", "/run/again")
        self.systemctl("exit")
        eventually(lambda: self.root("test", "!", "-e", "/run/again").returncode == 0, SECONDS)
        self.wait_running()

    def wait_running(self) -> None:
        """Return when the manager has started all that it should."""

        def state() -> bool:
            said = self.systemctl("is-system-running")
            assert said.stdout.strip() in ("running", "degraded"), (said, self.log()[-2000:])
            return True

        eventually(state, SECONDS, what="the user's manager runs")


def _refuse_without() -> None:
    """Raise AssertionError if this machine lacks a requirement."""
    assert os.geteuid() == 0, "a machine of its own for a user is made by root: run this with sudo"
    for name in ("unshare", "nsenter", "setpriv", "pivot_root", "systemctl"):
        assert shutil.which(name), f"{name} is missing: run packaging/setup --tests"
    assert MANAGER.exists(), f"{MANAGER} is missing: run packaging/setup --tests"
    assert "\tcgroup2\n" in Path("/proc/filesystems").read_text(), "the kernel has no cgroup2"


@contextmanager
def running_machine() -> Iterator[SystemdMachine]:
    """Yield a running machine, and remove it afterwards."""
    _refuse_without()
    folder = Path(tempfile.mkdtemp(prefix="zdmachine"))
    (folder / "root").mkdir()
    log = folder / "log"
    name_spaces = [*UNSHARE, "--pid", "--fork", "--kill-child"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *name_spaces, "sh", SCRIPT,
                folder / "root", ROOT, sys.base_prefix, folder.name, COMMAND,
            ],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        made = SystemdMachine(_first_process(process, log), log)
        made.wait_running()
        yield made
    finally:
        process.send_signal(signal.SIGKILL)  # of the name space; all in it goes along
        process.wait(SECONDS)
        eventually(lambda: _is_swept(folder.name), SECONDS, what="all of it has ended")
        shutil.rmtree(folder, ignore_errors=True)


def _is_swept(group: str) -> bool:
    sweeping = [*UNSHARE, "sh", "-c", SWEEP, group]
    return subprocess.run(sweeping, capture_output=True, check=False).returncode == 0


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]


def _first_process(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """Return the child of `unshare`, once it has its user's manager."""

    def found() -> int:
        if process.poll() is not None:  # nothing to wait for
            raise RuntimeError(f"no machine could be made: {log.read_text()[-2000:]}")
        for first in _children(process.pid):
            for child in _children(first):
                with contextlib.suppress(OSError):  # one of the many that come and go meanwhile
                    if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                        return first
        return 0

    return eventually(found, SECONDS, what="the user's manager starts")
