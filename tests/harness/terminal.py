"""A person at a terminal of a machine: what a command shows there, and what is typed.

Knows no command.
"""

import contextlib
import fcntl
import os
import pty
import subprocess
import termios

from tests.harness.deployment import COMMAND
from tests.harness.machine import Machine


class Terminal:
    """One command, whose terminal is its standard input, output and error."""

    def __init__(self, machine: Machine, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [COMMAND, *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, env=machine.environment,
            start_new_session=True, preexec_fn=self._make_controlling, cwd=machine.folder,
        )  # fmt: skip
        os.close(theirs)
        self.shown = ""

    @staticmethod
    def _make_controlling() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def until(self, words: str) -> None:
        """Wait for the command to show this."""
        while words not in self.shown:
            try:
                data = os.read(self._ours, 4096)
            except OSError:
                data = b""
            assert data, f"{words!r} never came: {self.shown}"
            self.shown += data.decode()

    def type(self, text: str) -> None:
        """A line; `shown` begins anew."""
        self.shown = ""
        os.write(self._ours, text.encode() + b"\n")

    def press(self, keys: str) -> None:
        """Keys without Enter, such as Ctrl-C as \\x03."""
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Wait for the command's end; its exit code."""
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 4096):
                self.shown += data.decode()
        os.close(self._ours)
        return self._process.wait(30)
