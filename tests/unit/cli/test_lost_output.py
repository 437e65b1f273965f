"""Commands whose output cannot be written: they do their work, and keep their exit code."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.unit.cli.stand_in import DONE, StandIn, command

UNREACHED = DONE | {"exit": 4, "reason": "no network", "left": {"files": 1, "bytes": 1}}
LEFT = DONE | {"exit": 1, "conflicts": ["a.txt"], "failed": [{"path": "b.txt", "error": "no"}]}


@contextmanager
def lost(where: str) -> Iterator[int]:
    """Yield a descriptor for output: of a pipe without a reader, or of a full disk."""
    if where == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def ended(arguments: list[str], *, out: str = "", err: str = "") -> tuple[int, str]:
    """Run a command with standard output and error `lost`; return its exit code and the rest."""
    with ExitStack() as stack:
        streams = {
            name: stack.enter_context(lost(where)) if where else subprocess.PIPE
            for name, where in (("stdout", out), ("stderr", err))
        }
        done = subprocess.run(
            command(*arguments), stdin=subprocess.DEVNULL, encoding="utf-8", timeout=60,
            check=False, **streams,
        )  # type: ignore[call-overload]  # fmt: skip
    return done.returncode, (done.stdout or "") + (done.stderr or "")


@pytest.mark.parametrize("err", ["pipe", "full"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["sync"], 4),
        (["send", "/proc/a"], 1),
        (["doctor"], 1),
        (["zones", "--account", "other"], 3),
        (["sync", "--nonsense"], 2),
        ([], 2),
    ],
)
def test_standard_error_never_matters(
    stand_in: StandIn, arguments: list[str], code: int, err: str
) -> None:
    """The exit code is that of the command, also if standard output has no reader."""
    stand_in.answers |= {"sync": UNREACHED, "send": LEFT}
    assert ended(arguments, err=err)[0] == code
    assert ended(arguments, out="pipe", err=err)[0] == code


@pytest.mark.parametrize("arguments", [["sync"], ["doctor"]])
def test_a_reader_that_goes_away_does_not_hide_a_failure(
    stand_in: StandIn, arguments: list[str]
) -> None:
    """A failure keeps its exit code; only success is 0."""
    stand_in.answers["sync"] = LEFT
    assert ended(arguments, out="pipe")[0] == 1
    stand_in.answers["sync"] = DONE | {"conflicts": ["a.txt"]}
    assert ended(["sync"], out="pipe") == (0, "")


def test_a_full_disk_is_reported_after_the_work(stand_in: StandIn) -> None:
    """The error of standard output comes last; the command's own exit code is kept."""
    stand_in.answers["sync"] = LEFT | {"exit": 4}
    code, said = ended(["sync"], out="full")
    unwritten = "zonedrive: the output cannot be written (No space left on device)\n"
    assert (code, said) == (4, "zonedrive: b.txt: no\n" + unwritten)
    stand_in.answers["sync"] = DONE | {"conflicts": ["a.txt"]}
    assert ended(["sync"], out="full") == (1, unwritten)
    assert ended([], out="full") == (2, unwritten)


def test_the_closed_terminal_of_a_waiting_command(stand_in: StandIn) -> None:
    """The progress line ends with the terminal, the command does not."""
    del stand_in.answers["sync"]
    master, slave = pty.openpty()
    with subprocess.Popen(command("sync"), stdout=slave, stderr=slave) as waiting:
        os.close(slave)
        said = b""
        while b"left" not in said:
            said += os.read(master, 1000)
        os.close(master)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(60) == 130


def test_the_streams_keep_their_form() -> None:
    """Encoding, errors and buffering are those of Python, and the exit of Python never fails."""
    text = (
        "import sys\nfrom zonedrive import process_setup\n"
        "def form(): return [(one.encoding, one.errors, one.line_buffering, one.isatty())\n"
        "    for one in (sys.stdout, sys.stderr)]\n"
        "before = form()\nprocess_setup.replace_output()\nassert form() == before\n"
        "print('x', flush=True)\nassert bool(process_setup.output_failure()) == bool(sys.argv[1])\n"
        "print('y')\nprint('z', file=sys.stderr)\nprint('kept in the buffer', end='')\n"
    )
    for where in ("", "pipe", "full"):
        with ExitStack() as stack:
            stream = stack.enter_context(lost(where)) if where else subprocess.DEVNULL
            done = subprocess.run(
                [sys.executable, "-c", text, where], stdout=stream, stderr=stream,
                env={**os.environ, "PYTHONUNBUFFERED": ""}, check=False,
            )  # fmt: skip
        assert done.returncode == 0
