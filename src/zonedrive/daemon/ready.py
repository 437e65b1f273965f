"""How a daemon in the background tells whoever started it that it is there, or why not.

Must not know how a daemon is built.  The message is one line on a pipe: `{"ok": true}` or what
`protocol.refusal` makes of an error.  A pipe that closes without a line is a daemon that died.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from zonedrive.daemon import last_run, logs, protocol
from zonedrive.errors import MountError
from zonedrive.fuse import mountpoint
from zonedrive.paths import AccountPaths, private_dir

MANAGER = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
"""How a service manager is spoken to; it waits for whoever started us, not for the daemon."""

END_SECONDS = 10.0
"""How long the process of a lost mount may take to be gone."""

START_SECONDS = 120.0
"""How long a start may take: a keyring may ask a person for its password."""


class Pipe:
    """The daemon's end; says one thing once."""

    def __init__(self, descriptor: int | None) -> None:
        """None: nobody waits."""
        self._descriptor = descriptor
        if descriptor is not None:
            os.set_inheritable(descriptor, False)

    def ok(self) -> None:
        """The mount answers."""
        self._say({"ok": True})

    def failed(self, error: Exception) -> None:
        """There will be no mount."""
        self._say(protocol.refusal(error))

    def _say(self, message: protocol.Message) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, protocol.encode(message))
        except BrokenPipeError:
            pass  # who started us has been interrupted; the mount stays
        finally:
            os.close(self._descriptor)
            self._descriptor = None


def start(paths: AccountPaths, folder: Path, options: Sequence[str]) -> None:
    """Start a daemon of its own session that mounts at `folder`; return when the mount answers.

    `options` are the texts of all `-o`.  Raises the error that the daemon ran into.
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "zonedrive.daemon", "--account", paths.account]
    command += ["--ready-fd", str(writing), *(f"--option={text}" for text in options)]
    command += ["--", os.fspath(folder)]
    environment = {name: os.environ[name] for name in os.environ if name not in MANAGER}
    private_dir(paths.log.parent)
    log = os.open(paths.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[writing],
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    finally:
        os.close(writing)
        os.close(log)
    try:
        _wait(reading, child, paths, folder)
        _require_life(child, paths, folder)
    except BaseException:
        if child.poll() is None:
            child.terminate()
        raise
    finally:
        os.close(reading)
        child.returncode = child.returncode or 0  # it lives on: no warning that it does


def _require_life(child: subprocess.Popen[bytes], paths: AccountPaths, folder: Path) -> None:
    """Raise MountError where the daemon has ended since, or serves no request."""
    lost = mountpoint.dead(folder)
    if not lost and child.poll() is None:
        return
    try:
        code = child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        raise MountError(
            f"the mount at {folder} was lost at once", remedy=f"see {paths.log}"
        ) from None
    died = last_run.death(paths)
    why = died.why if died is not None and died.exact else ending(code)
    raise MountError(
        f"the daemon ended right after it had mounted {folder}: {why}", remedy=f"see {paths.log}"
    )


def ending(code: int) -> str:
    """The end of a process, by the number that wait(2) gave."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _wait(reading: int, child: subprocess.Popen[bytes], paths: AccountPaths, folder: Path) -> None:
    end = time.monotonic() + START_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        left = max(0.0, end - time.monotonic())
        if not select.select([reading], [], [], left)[0]:
            raise MountError(
                f"the daemon did not answer within {START_SECONDS:.0f} s",
                remedy=f"see {paths.log}",
            )
        chunk = os.read(reading, 65536)
        if not chunk:
            said = f"the daemon {ending(child.wait())} before it was ready"
            logs.append(paths.log, f"{folder}: {said}")
            raise MountError(said, remedy=f"see {paths.log}")
        line += chunk
    message = protocol.decode(line)
    if "error" in message:
        child.wait()
        raise protocol.raised(message)
