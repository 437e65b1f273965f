"""Telling a service manager how the daemon is, as sd_notify(3) describes it.

Must not know what the daemon does.  Where no service manager listens, everything here is quiet.
"""

import os
import socket
from collections.abc import Mapping

import trio

from zonedrive.plain import plain


class Notifier:
    """The line to the service manager."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID."""
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self.watchdog_seconds: float | None = None
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if mine and environment.get("WATCHDOG_USEC", "").isdigit():
            self.watchdog_seconds = int(environment["WATCHDOG_USEC"]) / 1e6

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The mount answers."""
        self._send("READY=1", f"STATUS={status}")

    def waiting(self, status: str, seconds: float) -> None:
        """The start takes longer: `seconds` more from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}", f"STATUS={status}")

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1", "STATUS=unmounting")

    async def watchdog(self) -> None:
        """Say regularly that the loop still turns, if that was asked for."""
        if self.watchdog_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await trio.sleep(self.watchdog_seconds / 3)

    def _send(self, *assignments: str) -> None:
        """Send assignments, a line each: what a status quotes cannot add one."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.setblocking(False)
            try:
                line.sendto("\n".join(map(plain, assignments)).encode(), self._address)
            except OSError:
                return  # the manager is gone or busy; the mount matters more
