"""Mount of the file system in memory, as the tests use it."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[3]


class MemoryMount:
    """Mount and the process that serves it."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.fuse.memory", path, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=HERE,
            encoding="utf-8",
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said == "mounted\n", self.process.communicate(timeout=60)

    def tell(self, **order: object) -> dict[str, Any]:
        """Send a command; see `memory`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def stop(self) -> tuple[str, str]:
        """Stop the process as a service manager does; return its output."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> tuple[str, str]:
        """Wait for the end of the process; return its output."""
        return self.process.communicate(timeout=60)

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait(60)
