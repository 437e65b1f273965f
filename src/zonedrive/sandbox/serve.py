"""Sandbox process, which creates the deployment, runs the server and writes the ready file.

This module connects all parts of the sandbox. The ready file contains the URL, the CA file, the
control socket and the process id. INVARIANT: the ready file appears only after the service accepts
connections, and is always complete.
"""

import asyncio
import fcntl
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from zonedrive.sandbox import app, seed, settings, tls, world
from zonedrive.sandbox.control import Control
from zonedrive.sandbox.database import Database
from zonedrive.sandbox.deployment import Deployment, assemble
from zonedrive.sandbox.errors import SandboxError, WorldError, unusable
from zonedrive.sandbox.faults import Faults
from zonedrive.sandbox.listener import Listener
from zonedrive.sandbox.server import Server
from zonedrive.sandbox.traffic import Stats, Traffic

__all__ = ["SandboxError", "WorldError", "run"]

PASSWORDS = "passwords"  # file with the passwords that the sandbox generates
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 names, not a binding


def run(data: Path, world_file: Path | None, host: str, port: int, ready_file: Path | None) -> None:
    """Run the sandbox in the folder `data` until SIGTERM or SIGINT.

    The first start loads `world_file` (None: the packaged world file) into `data`. Port 0 means the
    port of the last run if this port is free, otherwise any free port. Raises SandboxError if the
    sandbox cannot start.
    """
    data = data.absolute()
    if not 0 <= port <= 65535:
        raise SandboxError(f"there is no port {port}")
    try:
        str(data).encode()
    except UnicodeEncodeError:  # the ready file names the folder
        raise SandboxError(f"{str(data)!r} is not UTF-8: use another folder for --data") from None
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The ready file may be in the new folder.
        if ready_file is not None and not ready_file.resolve().parent.is_dir():
            raise SandboxError(f"the folder of the ready file {ready_file} does not exist")
        with _alone(data), _ready(ready_file) as write_ready:
            deployment = _open(data, world_file)
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(_serve(deployment, data, host, port, write_ready))
            finally:
                deployment.database.close()
    except (OSError, sqlite3.Error) as wrong:
        raise unusable(data, wrong) from wrong


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Lock the folder `data` while the `with` block runs.

    Raises SandboxError if another sandbox holds the lock, and OSError if the lock file cannot be
    opened or locked.
    """
    fd = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(f"another sandbox is running on {data}") from None
        yield
    finally:
        os.close(fd)


@contextmanager
def _ready(file: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes the ready file, and remove the file at the end.

    If `file` is a pipe or a device, it is never removed; opening a pipe waits for a reader. If
    `file` is a link, its target is the ready file. If `file` is None, the function does nothing.
    """
    if file is None:
        yield lambda _content: None
    elif file.exists() and not file.is_file():
        device = file
        with _writing(device):
            opened = device.open("wb", buffering=0)
        with opened as stream:

            def write(content: bytes) -> None:
                with _writing(device), stream:  # closes the pipe, so that its reader sees the end
                    stream.write(content)

            yield write
    else:
        file = file.resolve()
        with _writing(file):
            file.unlink(missing_ok=True)
        try:
            yield partial(_replace, file)
        finally:
            file.unlink(missing_ok=True)


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f".{file.name}.{os.getpid()}")
    with _writing(file):
        part.write_bytes(content)
        part.replace(file)


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Convert an OSError of the `with` block to a SandboxError that names the ready file."""
    try:
        yield
    except OSError as wrong:
        raise SandboxError(f"{file} cannot be written: {wrong.strerror}") from wrong


def _open(data: Path, world_file: Path | None) -> Deployment:
    """Return the deployment in `data`; at the first start, load the world file into it."""
    database = Database(data / "sandbox.db")
    organization = settings.load(database)
    if organization is not None:
        deployment = assemble(data, database, organization)
        deployment.entries.sweep()
        return deployment
    wanted = world.load(world_file or seed.PACKAGED_WORLD)
    wanted = seed.with_passwords(wanted, data / PASSWORDS)
    deployment = assemble(data, database, world.organization(wanted))
    deployment.entries.sweep()
    seed.fill(deployment, wanted)
    return deployment


async def _serve(
    deployment: Deployment, data: Path, host: str, port: int, write_ready: Callable[[bytes], object]
) -> None:
    name = "127.0.0.1" if host in ANY_ADDRESS else host
    certificates = tls.prepare(data, name)
    listener = Listener(host, port, data / "port")
    if not listener.is_loopback:
        print(
            f"sandbox: {host} can be reached from other machines, and whoever"
            " knows a password of the world can log on",
            file=sys.stderr,
            flush=True,
        )
    shown = f"[{name}]" if ":" in name else name
    ready = {
        "base_url": f"https://{shown}:{listener.port}",
        "ca_file": str(certificates.ca_file),
        "control": str(data / "control.sock"),
        "pid": os.getpid(),
    }
    stats, faults = Stats(), Faults()
    application = app.build(deployment)
    traffic = Traffic(application, application.routes, faults, stats)
    passwords = data / PASSWORDS
    server = Server(
        traffic, listener, certificates.context, lambda: _announce(write_ready, ready, passwords)
    )
    control = Control(data / "control.sock", deployment, faults, stats, server.set_down)
    await control.open()
    try:
        await server.serve()
    finally:
        control.close()


def _announce(
    write_ready: Callable[[bytes], object], ready: dict[str, Any], passwords: Path
) -> None:
    """Print the logon command if stdout is a terminal, and write the ready file."""
    if sys.stdout.isatty():
        known = f"; passwords are in {passwords}" if passwords.exists() else ""
        print(
            f"the sandbox runs until Ctrl-C; to log on, run: zonedrive logon {ready['base_url']}"
            f" --ca-file {ready['ca_file']} --profile sandbox{known}"
        )
    write_ready(msgspec.json.encode(ready))
