"""Commands in processes that are forked from one that has already imported the program.

Importing takes longer than most commands. `run` starts a command as `subprocess.run` does, with an
environment, folder and streams of its own. It is not for settings that an interpreter reads at its
start (see `FIXED`), nor for tests that check the command line of a process: these start a program.

`python -m tests.harness.starter SOCKET` is the process that forks. It ends with its parent.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

FIXED = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "COVERAGE")
"""Prefixes of the variables that have an effect only at the start of an interpreter."""

PR_SET_NAME = 15  # prctl(2)


class Starter:
    """Connection to the process that forks."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="zdst"))
        self._path = self._folder / "socket"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.starter", self._path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def close(self) -> None:
        """End the process; commands go on."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._path.unlink(missing_ok=True)
        self._folder.rmdir()

    def run(
        self, arguments: Sequence[str], text: str, environment: Mapping[str, str], folder: Path,
        seconds: float,
    ) -> "subprocess.CompletedProcess[str]":  # fmt: skip
        """Run a command to its end. Raises subprocess.TimeoutExpired after killing it."""
        with (
            os.fdopen(os.memfd_create("in"), "w+b") as given,
            os.fdopen(os.memfd_create("out"), "w+b") as out,
            os.fdopen(os.memfd_create("err"), "w+b") as err,
        ):
            given.write(text.encode())
            given.seek(0)
            code = self._wait(arguments, environment, folder, (given, out, err), seconds)
            out.seek(0)
            err.seek(0)
            said = out.read().decode(), err.read().decode()
        return subprocess.CompletedProcess(arguments, code, *said)

    def _wait(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path,
        streams: Sequence[io.BufferedIOBase], seconds: float,
    ) -> int:  # fmt: skip
        request = json.dumps([list(arguments), dict(environment), os.fspath(folder)]).encode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.fspath(self._path))
            descriptors = [stream.fileno() for stream in streams]
            socket.send_fds(connection, [len(request).to_bytes(4, "big")], descriptors)
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                pid = int(answers.readline())
                if not select.select([connection], [], [], seconds)[0]:
                    os.kill(pid, signal.SIGKILL)
                    answers.readline()
                    raise subprocess.TimeoutExpired(list(arguments), seconds)
                return int(answers.readline())


_starter: Starter | None = None
_lock = threading.Lock()


def can_run(environment: Mapping[str, str]) -> bool:
    """Return True if a forked process behaves as a program with this environment."""
    differing = {name for name, _ in environment.items() ^ os.environ.items()}
    return not any(name.startswith(FIXED) for name in differing)


def run(
    arguments: Sequence[str], text: str, environment: Mapping[str, str], folder: Path,
    seconds: float,
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """Run a command of zonedrive, see Starter.run."""
    global _starter
    with _lock:
        if _starter is None:
            _starter = Starter()
    return _starter.run(arguments, text, environment, folder, seconds)


# ---- in the process that forks ----


def serve(path: str) -> NoReturn:
    """Fork a process for each request until killed."""
    _import()
    gc.collect()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fd == 0:  # whoever started this process has ended
                sys.exit()
            if key.fileobj is listening:
                connection = listening.accept()[0]
                pid = _fork(connection)
                connection.sendall(f"{pid}\n".encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
                continue
            descriptor = key.fd
            pid, connection = key.data
            selector.unregister(descriptor)
            os.close(descriptor)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with connection, contextlib.suppress(OSError):  # nobody waits any more
                connection.sendall(f"{code}\n".encode())


def _import() -> None:
    """Import what commands and daemons import."""
    from zonedrive.cli import main
    from zonedrive.daemon import daemonize

    daemonize.load()
    for module, _ in main.COMMANDS.values():
        importlib.import_module(f"zonedrive.cli.{module}")
    gc.enable()


def _fork(connection: socket.socket) -> int:
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    wanted = int.from_bytes(size, "big")
    request = bytearray()
    while len(request) < wanted:
        request += connection.recv(wanted - len(request))
    pid = os.fork()
    if not pid:
        _command(bytes(request), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _command(request: bytes, descriptors: Sequence[int]) -> NoReturn:
    """Run the command with the process's streams, folder and environment."""
    arguments, environment, folder = json.loads(request)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"zonedrive")
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["zonedrive", *arguments]
    code = 1
    try:
        from zonedrive.__main__ import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
