"""Mount of the file system in memory, as the tests use it."""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.harness import starter

HERE = Path(__file__).parents[3]
PROGRAM = "tests.unit.fuse.memory"


class MemoryMount:
    """Mount and the process that serves it."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        given, orders = os.pipe()
        answers, said = os.pipe()
        errors, log = os.pipe()
        self._orders = os.fdopen(orders, "w")
        self._answers = os.fdopen(answers)
        self._errors = os.fdopen(errors)
        try:
            words = [os.fspath(path), *options]
            self.process = starter.start(PROGRAM, words, os.environ, HERE, (given, said, log))
        finally:
            for descriptor in (given, said, log):
                os.close(descriptor)
        assert self._answers.readline() == "mounted\n", self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def tell(self, **order: object) -> dict[str, Any]:
        """Send a command; see `memory`."""
        self._orders.write(json.dumps(order) + "\n")
        self._orders.flush()
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer

    def stop(self) -> tuple[str, str]:
        """Stop the process as a service manager does; return its output."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> tuple[str, str]:
        """Wait for the end of the process; return its output."""
        self.process.wait(60)
        said = "", ""
        if not self._answers.closed:
            said = self._answers.read(), self._errors.read()
        for stream in (self._orders, self._answers, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return said

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait(60)


Mount = Callable[..., MemoryMount]
"""Fixture that makes mounts."""
