"""Mount with a forked daemon that a test can kill at chosen places and control over its socket."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted, has_ended
from tests.harness.waiting import eventually
from zonedrive.daemon import protocol
from zonedrive.failpoint import VARIABLE


class Mortal(Mounted):
    """Mount of a deployment below `path`, whose daemon can be told where to die."""

    def mount(self, *options: str, kill_at: str = "") -> None:
        """Mount; with `kill_at` the daemon may be dead already when this returns."""
        if not self.is_mounted():
            self.path.mkdir(exist_ok=True)
        if kill_at:
            self.machine.environment[VARIABLE] = kill_at
        every = [f"-o{option}" for option in [*self._options, *options]]
        ended = self.machine.run("mount", self.path, *every)
        self.machine.environment.pop(VARIABLE, None)
        assert ended.returncode == 0 or kill_at, f"{ended.stderr}\n{self.log()[-3000:]}"
        if ended.returncode == 0:
            self._watch(self.pid)

    @property
    def database(self) -> Path:
        """Return the file with the local state."""
        return self.machine.state / "tree.db"

    def command(self, command: str, **request: object) -> dict[str, Any]:
        """Return the answer to a command, as a mount in process does."""
        return self.ask(command, **request)  # type: ignore[arg-type]

    def ask(self, command: str, seconds: float = 40, **more: object) -> dict[str, Any]:
        """Return the answer to a command. Raises OSError if the daemon dies."""
        path = self.machine.folders["RUNTIME_DIR"] / "zonedrive" / "default.sock"
        with protocol.connect(path, seconds) as connection:
            connection.sendall(protocol.encode({"command": command, **more}))
            with connection.makefile("rb") as lines:
                for line in lines:
                    answer: dict[str, Any] = json.loads(line)
                    if "done" in answer or "error" in answer:
                        return answer
        raise ConnectionResetError("the daemon died before it answered")

    def status(self) -> dict[str, Any]:
        """Return the output of `status --json`."""
        return self.ask("status", paths=[])

    def sync(self, *paths: Path, seconds: float = 30) -> None:
        """Wait until everything is on the service.  Raises OSError if the daemon dies."""
        answer = self.ask("sync", seconds + 10, paths=[], timeout=seconds)
        assert answer.get("exit") == 0, answer

    def end(self) -> None:
        """Unmount cleanly; return after the daemon has closed its files."""
        pid = self.pid
        self._unwatch()
        self.ask("unmount", timeout=5, now=False)
        eventually(lambda: has_ended(pid), what="the daemon has ended")

    def died_at(self, place: str) -> bool:
        """Return True if the daemon has killed itself at that place."""
        try:
            if self._alive():
                self._see_end(self.pid)
        except AssertionError as alive:
            raise AssertionError(f"no death at {place}:\n{self.log()[-2000:]}") from alive
        self._unwatch()
        return f"killed at {place}," in self.log()

    def tear_down(self) -> None:
        """Kill the daemon and detach the mount."""
        if self._alive():
            self.kill()
        self._unwatch()
        if self.is_mounted():
            subprocess.run(["fusermount3", "-uz", self.path], check=False)


@contextmanager
def mortal(
    account: Machine,
    deployment: Deployment,
    zone: str,
    options: Sequence[str] = ("settle=0", "refresh=600"),
) -> Iterator[Mortal]:
    """Yield a separate machine that is logged on like `account`; nothing is mounted yet."""
    folder = Path(tempfile.mkdtemp(prefix="zdm"))
    machine = Machine(folder)
    machine.copy_account(account)
    mount = Mortal(machine, deployment, zone, options)
    try:
        yield mount
    finally:
        mount.tear_down()
        shutil.rmtree(folder, ignore_errors=True)
