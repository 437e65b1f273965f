"""Process of the window, and a real browser that has opened it."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.harness.chromium import Chromium
from tests.harness.deployment import COMMAND
from tests.harness.machine import Machine


class Window:
    """Process of the window, and a browser that has opened it."""

    def __init__(
        self, machine: Machine, chromium: Chromium, before: Sequence[str | Path] = ()
    ) -> None:
        """Start the process; `before` are the words of a command that runs it."""
        self.chromium = chromium
        self.process = subprocess.Popen(
            [*before, COMMAND, "ui", "--no-browser"], env=machine.environment, cwd=machine.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
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
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(60)
