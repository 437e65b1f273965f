"""Start of a daemon in the background, with a report of success or failure to its parent process.

The report is one line on a pipe: `{"ok": true}` or the result of `protocol.refusal`. A pipe that
closes without a report means that the daemon died. Before the report, a line such as
`{"seconds": 5}` sets the timeout of the parent process to five seconds from that line.
"""

import gc
import logging
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from zonedrive import failpoint
from zonedrive.daemon import last_run, logs, protocol
from zonedrive.errors import MountError
from zonedrive.fuse import mountpoint
from zonedrive.paths import AccountPaths

# Environment variables of a service manager, which monitors the parent, not the daemon.
MANAGER = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
END_SECONDS = 10.0  # maximum wait for the exit of a daemon whose mount has failed
LOOK_SECONDS = 0.02
START_SECONDS = 120.0  # maximum duration of a start: a keyring may ask the user for its password
# Maximum duration from the recovery on: the repair of a large database on a slow disk takes long,
# and would begin again at each start.
RECOVERY_SECONDS = 1800.0


class Pipe:
    """Daemon's end of the pipe to the parent process, for one report."""

    def __init__(self, descriptor: int | None) -> None:
        """Set the file descriptor of the pipe; None if no process waits for the report."""
        self._descriptor = descriptor
        if descriptor is not None:
            os.set_inheritable(descriptor, False)

    def extend(self, seconds: float) -> None:
        """Extend the start timeout to `seconds` from now."""
        self._write({"seconds": seconds})

    def ok(self) -> None:
        """Report that the mount is ready."""
        self._report({"ok": True})

    def failed(self, error: Exception) -> None:
        """Report the error that made the start fail; do nothing after an earlier report."""
        self._report(protocol.refusal(error))

    def close_others(self) -> None:
        """Close all file descriptors except the pipe and the standard streams."""
        assert self._descriptor is not None
        os.closerange(3, self._descriptor)
        os.closerange(self._descriptor + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def _report(self, message: protocol.Message) -> None:
        try:
            self._write(message)
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self, message: protocol.Message) -> None:
        # If the pipe is broken, the parent process was interrupted; the mount stays.
        with suppress(BrokenPipeError):
            if self._descriptor is not None:
                os.write(self._descriptor, protocol.encode(message))


def start(paths: AccountPaths, folder: Path, serve: Callable[[Pipe], int]) -> None:
    """Fork a daemon that mounts at `folder` by calling `serve`; return when the mount is ready.

    The daemon gets its own session, and uses the modules that are already imported. `serve` gets
    the pipe for the report, and returns the exit status. Raises the error that the daemon reported,
    or MountError if the daemon died or did not report in time.
    """
    reading, writing = os.pipe()
    log = logs.opened(paths.log)
    try:
        sys.stdout.flush()
        sys.stderr.flush()  # or both processes would write the buffered output
        pid = os.fork()
        if not pid:
            _serve(serve, writing, log)
    finally:
        os.close(writing)
        os.close(log)
    try:
        _wait_ready(reading, pid, paths, folder)
        _require_life(pid, paths, folder)
    except BaseException:
        if exit_code(pid, 0) is None:
            os.kill(pid, signal.SIGTERM)
        raise
    finally:
        os.close(reading)


def _serve(serve: Callable[[Pipe], int], writing: int, log: int) -> NoReturn:
    """Run `serve` in the forked process without the parent's open files, then exit.

    `writing` is the descriptor of the pipe to the parent process, and `log` is the descriptor
    of the log file.
    """
    code = 1
    try:
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, ours in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, ours)
        pipe = Pipe(writing)
        pipe.close_others()
        for name in MANAGER & os.environ.keys():
            del os.environ[name]
        code = serve(pipe)
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))  # into the log
    finally:
        with suppress(Exception):
            logging.shutdown()
        # Run no exit handler and no `finally` block of the parent process.
        os._exit(code)


def run(paths: AccountPaths, folder: str, options: tuple[str, ...], ready: Pipe) -> int:
    """Serve the mount until it ends; return 0 after an unmount, or 1 after an error.

    The error is reported to `ready`.
    """
    failpoint.arm(os.environ)
    try:
        load()
        from zonedrive.daemon import serve

        serve.run(serve.Start(paths, folder, options), ready)
    except Exception as error:
        ready.failed(error)
        return 1
    return 0


def load() -> None:
    """Import all modules of the daemon, with the garbage collector off to save time.

    Modules that only an error needs are included, because an upgrade or a removal may delete their
    files. Later collections ignore these modules, because the modules stay loaded.
    """
    gc.disable()
    from zonedrive.daemon import serve  # noqa: F401
    from zonedrive.remote.transport import peer_certificate  # noqa: F401

    gc.freeze()
    gc.enable()


def _wait_ready(reading: int, pid: int, paths: AccountPaths, folder: Path) -> None:
    start_seconds = START_SECONDS
    end = time.monotonic() + start_seconds
    received = b""
    while True:
        line, line_end, rest = received.partition(b"\n")
        if line_end:
            message = protocol.decode(line)
            if "seconds" not in message:
                break
            start_seconds, received = message["seconds"], rest
            end = time.monotonic() + start_seconds
            continue
        left = max(0.0, end - time.monotonic())
        if not select.select([reading], [], [], left)[0]:
            raise MountError(
                f"the daemon did not answer within {start_seconds:.0f} s",
                remedy=f"see {paths.log}",
            )
        chunk = os.read(reading, 65536)
        if not chunk:
            code = exit_code(pid, END_SECONDS)
            ended = "closed its pipe" if code is None else _ending(code)
            said = f"the daemon {ended} before it was ready"
            logs.append(paths.log, f"{folder}: {said}")
            raise MountError(said, remedy=f"see {paths.log}")
        received += chunk
    if "error" in message:
        exit_code(pid, END_SECONDS)
        raise protocol.raised(message)


def exit_code(pid: int, seconds: float) -> int | None:
    """Wait for a child process; return its exit status, or None if it still runs after `seconds`.

    If a signal has terminated the process, the status is the negative signal number. The kernel
    reports the status only once, and never if SIGCHLD is ignored. Return 0 if the status is not
    available.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return None
        time.sleep(LOOK_SECONDS)


def _require_life(pid: int, paths: AccountPaths, folder: Path) -> None:
    """Raise MountError if the daemon has exited after mounting, or if its mount does not work."""
    is_dead = mountpoint.dead(folder)
    code = exit_code(pid, END_SECONDS if is_dead else 0)
    if code is None and not is_dead:
        return
    if code is None:
        raise MountError(
            f"the mount at {folder} stopped working right after its start",
            remedy=f"see {paths.log}",
        )
    died = last_run.death(paths)
    why = died.why if died is not None and died.exact else _ending(code)
    raise MountError(
        f"the daemon ended right after it had mounted {folder}: {why}", remedy=f"see {paths.log}"
    )


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
