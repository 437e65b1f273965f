"""Commands in processes that are forked from one that has already imported the program.

Importing takes longer than most commands, and than the start of a sandbox. `run` starts a command
as `subprocess.run` does, with an environment, folder and streams of its own; `start` does so for
any module with a `main`. A sandbox and a command at a terminal get a session of their own. They are
not for settings that an interpreter reads at its start (see `FIXED`), nor for tests that check the
command line of a process: these start a program.

A command may be another user's, in a mount namespace of its own, see `Become`; for a shell's script
there is a small program that requests it, see `write_stand_in`.

`python -m tests.harness.starter SOCKET` is the process that forks. It ends with its parent.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

FIXED = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "COVERAGE")
"""Prefixes of the variables that have an effect only at the start of an interpreter."""

SANDBOX = "zonedrive.sandbox.__main__"
IMPORTED = {
    "sandbox": (
        "zonedrive.sandbox.serve", "anyio._backends._asyncio", "uvicorn.lifespan.off",
        "cryptography.hazmat.backends.openssl.backend", "encodings.idna",
    ),
    "ui": ("zonedrive.ui.serve",),
}  # fmt: skip
"""Modules that the process imports before it forks the first such command.

A sandbox would import the last ones only when it serves.
"""

# prctl(2), unshare(2), mount(2), capset(2)
PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NAME = 4, 8, 15
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
CAPABILITIES, CAP_DAC_READ_SEARCH = 0x20080522, 2


class Become(NamedTuple):
    """User that a command becomes, and its mount namespace.

    With a script, which root runs first, the namespace is new; with the number of a process, it is
    that one's. The user may read what only its owner may read, as the checkout.
    """

    uid: int
    script: str = ""
    process: int = 0


class Forked:
    """Process that the starter forked, with the methods of subprocess.Popen that tests use."""

    def __init__(self, arguments: Sequence[str], connection: socket.socket) -> None:
        """Take over the connection on which the process was requested."""
        self.returncode: int | None = None
        self._arguments = arguments
        self._connection = connection
        number, (self._descriptor,), _, _ = socket.recv_fds(connection, 4, 1)
        self.pid = int.from_bytes(number, "big")

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, seconds: float) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired(list(self._arguments), seconds)
            with self._connection, self._connection.makefile("rb") as answer:
                self.returncode = int(answer.readline())
            os.close(self._descriptor)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)


class Starter:
    """Connection to the process that forks."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="zdst"))
        self.path = self._folder / "socket"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.starter", self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def close(self) -> None:
        """End the process; running commands continue."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self.path.unlink(missing_ok=True)
        self._folder.rmdir()

    def start(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path,
        streams: Sequence[int], become: Become | None,
    ) -> Forked:  # fmt: skip
        """Start the `main` of a module with these descriptors as standard streams."""
        words = [module, list(arguments), dict(environment), os.fspath(folder), become]
        request = json.dumps(words).encode()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(os.fspath(self.path))
            socket.send_fds(connection, [len(request).to_bytes(4, "big")], streams)
            connection.sendall(request)
            return Forked(arguments, connection)
        except BaseException:
            connection.close()
            raise


_starter: Starter | None = None
_lock = threading.Lock()


def can_run(environment: Mapping[str, str]) -> bool:
    """Return True if a forked process behaves as a program with this environment."""
    differing = {name for name, _ in environment.items() ^ os.environ.items()}
    return not any(name.startswith(FIXED) for name in differing)


def start(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path,
    streams: Sequence[int], become: Become | None = None,
) -> Forked:  # fmt: skip
    """Start the `main` of a module, see Starter.start."""
    return _started().start(module, arguments, environment, folder, streams, become)


def _started() -> Starter:
    global _starter
    with _lock:
        if _starter is None:
            _starter = Starter()
    return _starter


def start_logged(module: str, arguments: Sequence[str | Path], log: int) -> Forked:
    """Start the `main` of a module in this environment, with a descriptor for all it prints."""
    with open(os.devnull) as nothing:  # noqa: PTH123
        words = [os.fspath(word) for word in arguments]
        return start(module, words, os.environ, Path.cwd(), (nothing.fileno(), log, log))


STAND_IN = r"""
import _socket, os, sys
from _json import encode_basestring_ascii as quoted
words = ",".join(map(quoted, sys.argv[1:]))
environment = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in os.environ.items())
request = (
    f'["zonedrive.__main__",[{words}],{{{environment}}},{quoted(os.getcwd())},[0,"",{os.getpid()}]]'
).encode()
connection = _socket.socket(_socket.AF_UNIX)
connection.connect(SOCKET)
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
connection.sendmsg(
    [len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
)
connection.sendall(request)
answer = b""
while data := connection.recv(64):
    answer += data
code = int(answer[4:])
sys.exit(code if code >= 0 else 128 - code)
"""
"""Program that requests a process without the modules that take longest to import."""


def write_stand_in(path: Path) -> None:
    """Write a program for scripts that runs zonedrive in a forked process.

    The process has the program's arguments, environment, folder, streams and mount namespace, but
    gets none of its signals.
    """
    python = getattr(sys, "_base_executable", sys.executable)
    socket_path = os.fspath(_started().path)
    path.write_text(f"#!{python} -IS\nSOCKET = {socket_path!r}{STAND_IN}")
    path.chmod(0o755)


def run(
    arguments: Sequence[str], text: str, environment: Mapping[str, str], folder: Path,
    seconds: float, module: str = "zonedrive.__main__", become: Become | None = None,
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """Run a command to its end. Raises subprocess.TimeoutExpired after killing it."""
    with (
        os.fdopen(os.memfd_create("in"), "w+b") as given,
        os.fdopen(os.memfd_create("out"), "w+b") as out,
        os.fdopen(os.memfd_create("err"), "w+b") as err,
    ):
        given.write(text.encode("utf-8", "surrogateescape"))
        given.seek(0)
        streams = given.fileno(), out.fileno(), err.fileno()
        process = start(module, arguments, environment, folder, streams, become)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
            raise
        out.seek(0)
        err.seek(0)
        said = [file.read().decode("utf-8", "surrogateescape") for file in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *said)


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
            if key.fd == 0:  # the parent of this process has ended
                sys.exit()
            if key.fileobj is listening:
                connection = listening.accept()[0]
                pid = _fork(connection)
                descriptor = os.pidfd_open(pid)
                socket.send_fds(connection, [pid.to_bytes(4, "big")], [descriptor])
                selector.register(descriptor, selectors.EVENT_READ, (pid, connection))
                continue
            descriptor = key.fd
            pid, connection = key.data
            selector.unregister(descriptor)
            os.close(descriptor)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with connection, contextlib.suppress(OSError):  # nobody waits any more
                connection.sendall(f"{code}\n".encode())


def _import() -> None:
    """Import what commands and daemons import, and read the profiles that they read."""
    from zonedrive.cli import main
    from zonedrive.daemon import daemonize
    from zonedrive.remote.profiles import load

    daemonize.load()
    for module, _ in main.COMMANDS.values():
        importlib.import_module(f"zonedrive.cli.{module}")
    for name in load.packaged():
        load.load_profile(name)  # which is kept in memory
    gc.enable()


def _fork(connection: socket.socket) -> int:
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    wanted = int.from_bytes(size, "big")
    request = bytearray()
    while len(request) < wanted:
        request += connection.recv(wanted - len(request))
    module, arguments, environment, folder, become = json.loads(request)
    name = "sandbox" if module == SANDBOX else next(iter(arguments), "")
    for each in IMPORTED.get(name, ()):
        importlib.import_module(each)
    pid = os.fork()
    if not pid:
        is_terminal = os.isatty(descriptors[1])
        if name == "sandbox" or is_terminal:
            os.setsid()
        if is_terminal:
            with contextlib.suppress(PermissionError):  # the terminal is that of a shell's session
                control_terminal(descriptors[1])
        _command(module, arguments, environment, folder, descriptors, become)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def control_terminal(descriptor: int = 1) -> None:
    """Make an open terminal the one that controls this session."""
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def _command(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: str,
    descriptors: Sequence[int], become: tuple[int, str, int] | None,
) -> NoReturn:  # fmt: skip
    """Run the command with the process's streams, folder and environment."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    if become is not None:
        _become(Become(*become), folder)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"zonedrive")
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["zonedrive", *arguments]
    code = 1
    try:
        code = importlib.import_module(module).main() or 0
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


def _become(other: Become, folder: str) -> None:
    """Enter the mount namespace, run the script in it, and have only the rights of the user."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            raise OSError(ctypes.get_errno(), name)

    if other.script:
        call("unshare", CLONE_NEWNS)
        call("mount", b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
        script = ["/bin/sh", "-c", f"set -e\n{other.script}"]
        subprocess.run(script, cwd=folder, check=True)
    wanted = Path(f"/proc/{other.process or 'self'}/ns/mnt")
    if wanted.readlink() != Path("/proc/self/ns/mnt").readlink():  # else no root is needed
        with wanted.open() as namespace:
            call("setns", namespace.fileno(), CLONE_NEWNS)
    if not other.uid:
        return
    os.setgroups([])
    os.setresgid(other.uid, other.uid, other.uid)
    call("prctl", PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setresuid(other.uid, other.uid, other.uid)
    reading = 1 << CAP_DAC_READ_SEARCH
    call(
        "capset", (ctypes.c_uint32 * 2)(CAPABILITIES, 0),
        (ctypes.c_uint32 * 6)(reading, reading, reading),
    )  # fmt: skip
    call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after an execve(2)


if __name__ == "__main__":
    serve(sys.argv[1])
