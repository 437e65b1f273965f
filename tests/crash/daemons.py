"""Daemons that start in a tenth of a second: forked from a process that has imported everything.

What is forked runs the daemon's own code, on its own mount, and dies like any process.
`python -m tests.crash.daemons` is that process: a JSON object a line in, one a line out.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0


class Daemons:
    """Starts daemons."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.daemons"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True,
        )  # fmt: skip

    def start(self, folder: Path, options: list[str], environment: Mapping[str, str]) -> bool:
        """Start one; True once its mount answers, False if it died without a word.

        Raises AssertionError with what it said where it ended otherwise.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"folder": str(folder), "options": options, "environment": dict(environment)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return bool(answer["ok"])

    def close(self) -> None:
        """No more daemons; those that run go on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def _serve() -> None:
    # What a daemon needs, read once for all of them.
    from zonedrive.daemon import daemonize

    daemonize.load()

    for line in sys.stdin:
        request = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _become_daemon(request, writing)
        os.close(writing)
        said = b""
        if select.select([reading], [], [], START_SECONDS)[0]:
            said = os.read(reading, 65536)
        os.close(reading)
        print(said.decode().strip() or '{"ok": false}', flush=True)
        while _buried():
            pass


def _buried() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _become_daemon(request: Mapping[str, Any], ready: int) -> None:
    from zonedrive.daemon import daemonize
    from zonedrive.daemon.daemonize import Pipe
    from zonedrive.paths import AccountPaths

    code = 1
    try:
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.environ.clear()
        os.environ.update(request["environment"])
        options = tuple(request["options"])
        code = daemonize.run(AccountPaths("default"), request["folder"], options, Pipe(ready))
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve()
