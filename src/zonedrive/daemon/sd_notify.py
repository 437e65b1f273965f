"""State reports to a service manager according to sd_notify(3).

Knows nothing about the daemon's work. Without a service manager, nothing is sent.
"""

import os
import socket
from collections.abc import Mapping

import trio

from zonedrive.formatting import plain


class Notifier:
    """Connection to the service manager."""

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
        """True if there is a service manager."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Report that the mount answers."""
        self._send("READY=1", f"STATUS={status}")

    def waiting(self, status: str, seconds: float) -> None:
        """Report that the start needs `seconds` more from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Set the line for `systemctl status`."""
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        """Report that the daemon is stopping."""
        self._send("STOPPING=1", "STATUS=unmounting")

    async def watchdog(self) -> None:
        """Send the watchdog signal regularly while the loop runs, if the manager requested it."""
        if self.watchdog_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await trio.sleep(self.watchdog_seconds / 3)

    def _send(self, *assignments: str) -> None:
        """Send assignments, one per line; a status cannot add lines because it is made plain."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.setblocking(False)
            try:
                line.sendto("\n".join(map(plain, assignments)).encode(), self._address)
            except OSError:
                return  # the manager is gone or busy, which must not affect the mount
