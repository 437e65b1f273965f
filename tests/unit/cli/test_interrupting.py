"""Ctrl-C ends each prompt and each wait, and restores the terminal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.unit.cli.stand_in import StandIn, log_on
from tests.unit.cli.test_status import at_terminal
from zonedrive.cli.main import main

PROMPTS = {
    "Password": ["tokens", "create", "x"],
    "with all versions?": ["trash", "--purge", "old.txt"],
}


@pytest.mark.parametrize("asked", PROMPTS)
def test_a_prompt(stand_in: StandIn, asked: str) -> None:
    """The command prints nothing and has no effect, and the next prompt is on a new line."""
    stand_in.answers["trash"] = {"inside": 0}
    terminal = at_terminal(*PROMPTS[asked])
    terminal.until(asked)
    assert terminal.interrupt() == 130
    assert terminal.is_as_before()
    assert terminal.shown.endswith("\r\n")
    assert terminal.shown.count("\n") == 1
    assert all(each["command"] == "trash" for each in stand_in.asked)


@pytest.mark.parametrize("name", ["sync", "zones", "conflicts", "trash"])
def test_a_slow_daemon(stand_in: StandIn, name: str) -> None:
    """The command prints nothing."""
    stand_in.answers.pop(name, None)
    terminal = at_terminal(name)
    assert stand_in.waiting.wait(60)
    assert terminal.interrupt() == 130
    assert terminal.is_as_before()
    assert not terminal.text().partition("^C")[2].strip()
    assert "Traceback" not in terminal.shown


def test_while_several_requests_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C then comes in a group of exceptions, for example from `log` or from `trash`."""
    log_on()

    async def wait() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("zonedrive.cli.files.zones_of", lambda paths: trio.run(wait))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as left:
        main(["zones"])
    signal.signal(signal.SIGINT, before)
    assert left.value.code == 130


@pytest.mark.parametrize(("way", "code"), [(signal.SIG_DFL, 130), (signal.SIG_IGN, 7)])
def test_while_the_program_is_loading(home: Path, way: signal.Handlers, code: int) -> None:
    """Ctrl-C prints nothing, and has no effect if the parent process ignores it, as nohup does."""
    (home / "click").mkdir()
    slow = "import os, sys\nos.write(1, b'loading')\n"
    slow += "for _ in range(1000):\n    if os.path.exists('go'): os._exit(7)\n"
    slow += "    __import__('time').sleep(0.05)\n"
    (home / "click" / "__init__.py").write_text(slow)
    path = os.pathsep.join(filter(None, [str(home), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, "-c", "from zonedrive.__main__ import main; main()", "status"],
        env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, way),
    ) as started:  # fmt: skip
        assert started.stdout is not None and started.stdout.read(7) == b"loading"
        started.send_signal(signal.SIGINT)
        if code != 130:
            (home / "go").touch()
        _, said = started.communicate(timeout=60)
    assert (started.returncode, said) == (code, b"")


def test_in_the_callback_of_a_weak_reference() -> None:
    """Ctrl-C is not lost there, and prints nothing."""
    script = """
import signal, time, weakref
from zonedrive.cli import sigint

class Lock:
    pass

sigint.quiet()
sigint.heard()
lock = Lock()
reference = weakref.ref(lock, lambda _: signal.raise_signal(signal.SIGINT))
try:
    del lock
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
