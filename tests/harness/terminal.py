"""User at a terminal of a machine: the output of a command, and the typed input.

Knows no command.
"""

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.harness import starter
from tests.harness.deployment import COMMAND

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Place(Protocol):
    """Environment of a command, for example a machine."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Return its variables."""

    @property
    def folder(self) -> Path:
        """Return its working folder."""


class Terminal:
    """Command whose standard input, output and error are a terminal."""

    def __init__(
        self,
        machine: Place,
        *arguments: str,
        size: tuple[int, int] | None = None,
        types: bool = True,
        program: Sequence[str | Path] = (COMMAND,),
    ) -> None:
        """Start the command; `size`: columns and lines of a terminal that reports them, as real
        ones do.

        Without `types` the terminal has only output, and no input.
        """
        self._ours, theirs = pty.openpty()
        environment = dict(machine.environment)
        if size is not None:
            termios.tcsetwinsize(theirs, (size[1], size[0]))
            environment = {
                name: environment[name] for name in environment if name not in ("COLUMNS", "LINES")
            }
            environment.setdefault("TERM", "xterm-256color")
        self._before = termios.tcgetattr(theirs)
        self._process: starter.Forked | subprocess.Popen[bytes]
        with open(os.devnull) as nothing:  # noqa: PTH123
            given = theirs if types else nothing.fileno()
            if tuple(program) == (COMMAND,) and starter.can_run(environment):
                self._process = starter.start(
                    "zonedrive.__main__", arguments, environment, machine.folder,
                    (given, theirs, theirs),
                )  # fmt: skip
            else:
                self._process = subprocess.Popen(
                    [*program, *arguments],
                    stdin=given, stdout=theirs, stderr=theirs, env=environment,
                    start_new_session=True, preexec_fn=starter.control_terminal,
                    cwd=machine.folder,
                )  # fmt: skip
        self._theirs = theirs if size is not None else None
        if size is None:
            os.close(theirs)
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def until(self, words: str) -> None:
        """Wait until the command shows this."""
        while words not in self.shown:
            assert self.until_more(), f"{words!r} never came: {self.shown}"

    def until_more(self) -> bool:
        """Wait for more output; return False at the end."""
        return self._take()

    def _take(self) -> bool:
        """Read the next output, which may end inside a character; return False at the end."""
        try:
            data = os.read(self._ours, 4096)
        except OSError:
            data = b""
        self.shown += self._decoder.decode(data)
        return bool(data)

    def type(self, text: str) -> None:
        """Type a line, and clear `shown`."""
        self.shown = ""
        os.write(self._ours, text.encode() + b"\n")

    def press(self, keys: str) -> None:
        r"""Press keys without Enter, such as Ctrl-C as \x03."""
        os.write(self._ours, keys.encode())

    def send(self, number: signal.Signals) -> None:
        """Send a signal, as when the window is closed."""
        self._process.send_signal(number)

    def text(self) -> str:
        """Return the output without cursor movements and colours."""
        return CONTROLS.sub("", self.shown)

    def is_as_before(self) -> bool:
        """Return True if echo, cursor and screen are restored; call it after `leave`."""
        hidden, back = self.shown.rfind("\x1b[?25l"), self.shown.rfind("\x1b[?25h")
        other, own = self.shown.rfind("\x1b[?1049h"), self.shown.rfind("\x1b[?1049l")
        return hidden <= back and other <= own and self._after == self._before

    def interrupt(self) -> int:
        """Press Ctrl-C repeatedly, because one just before a read is noticed late."""
        assert self._theirs is not None
        pressed = 0.0
        while self._process.poll() is None:
            if time.monotonic() > pressed + 5:
                self.press("\x03")
                pressed = time.monotonic()
            if select.select([self._ours], [], [], 0.05)[0]:
                self._take()
        return self.leave()

    def leave(self) -> int:
        """End a command at a terminal with a size, which stays open for inspection."""
        assert self._theirs is not None
        while self._process.poll() is None:
            if select.select([self._ours], [], [], 0.05)[0]:
                self._take()
        code = self._process.wait(60)
        self._after: list[Any] = termios.tcgetattr(self._theirs)
        os.close(self._theirs)
        self._theirs = None
        self.end()
        return code

    def end(self) -> int:
        """Wait for the command's end; return its exit code."""
        while self._take():
            pass
        os.close(self._ours)
        return self._process.wait(60)
