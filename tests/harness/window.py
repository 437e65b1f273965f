"""Process of the window, and a real browser that has opened it."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.harness import starter
from tests.harness.chromium import Chromium
from tests.harness.deployment import COMMAND
from tests.harness.machine import Machine


class Window:
    """Process of the window, and a browser that has opened it."""

    def __init__(
        self, machine: Machine, chromium: Chromium, before: Sequence[str | Path] = ()
    ) -> None:
        """Start the process, see `starter`; `before` are the words of a command that runs it."""
        self.chromium = chromium
        reader, writer = os.pipe()
        self._output = open(reader, encoding="utf-8")  # noqa: PTH123, SIM115
        self.process: starter.Forked | subprocess.Popen[bytes]
        if before or not starter.can_run(machine.environment):
            self.process = subprocess.Popen(
                [*before, COMMAND, "ui", "--no-browser"], env=machine.environment,
                cwd=machine.folder, stdin=subprocess.DEVNULL, stdout=writer,
            )  # fmt: skip
        else:
            with open(os.devnull) as nothing:  # noqa: PTH123
                self.process = starter.start(
                    "zonedrive.__main__", ["ui", "--no-browser"], machine.environment,
                    machine.folder, (nothing.fileno(), writer, 2),
                )  # fmt: skip
        os.close(writer)
        said = self._output.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/start/\S+", said)
        assert found is not None, said
        self.start, self.port = found[0], int(found[1])
        self.base = f"http://127.0.0.1:{self.port}"

    def go(self, path: str) -> None:
        """Open a page."""
        self.chromium.go(self.base + path)

    def close(self) -> None:
        """Leave the page and end the process."""
        self.chromium.go("about:blank")
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self._output.close()
