"""Measuring and waiting tools of the mounted tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.machine import unexpected
from tests.harness.waiting import eventually

CALM = "2026-11-21 14:03:07,120 INFO zonedrive.daemon.serve: mounted\n"
WARNING = "2026-11-21 14:03:08,120 WARNING zonedrive.state.local_state: the service is offline\n"
LEAVES_A_PROCESS = """
import gc, pathlib, subprocess

def test_fails():
    here = pathlib.Path(__file__)
    left, log = subprocess.Popen(["sleep", "600"]), here.open()
    here.with_name("pid").write_text(str(left.pid))
    around = [left, log]
    around.append(around)
    assert not around

def test_passes():
    gc.collect()
"""
TRACEBACK = (
    "2026-11-21 14:03:09,120 ERROR zonedrive.fuse.deadline: unforeseen\n"
    "Traceback (most recent call last):\n  File ...\nKeyError: 'x'\n"
)


def test_a_log_without_complaints_passes() -> None:
    """Ordinary messages do not fail a test."""
    assert unexpected(CALM * 3, []) == []
    assert unexpected("", []) == []


def test_warnings_and_tracebacks_are_found() -> None:
    """A warning, an error with its traceback, and output of C code before it are reported."""
    log = "fuse: something\n" + CALM + WARNING + CALM + TRACEBACK + CALM
    assert unexpected(log, []) == ["fuse: something\n", WARNING, TRACEBACK]


def test_allowed_warnings_are_ignored() -> None:
    """A test names the warnings that it causes."""
    assert unexpected(WARNING + TRACEBACK, ["is offline", "KeyError"]) == []


def test_waiting_gives_the_first_true_value() -> None:
    """The wait ends with the first true value."""
    values = iter([0, 0, 7])
    assert eventually(lambda: next(values), 5) == 7


def test_a_wait_that_fails_names_its_condition() -> None:
    """The error of a missed deadline names the condition and the last value."""
    with pytest.raises(AssertionError, match=r"the moon \(last seen: \[\]\)"):
        eventually(list, 0.05, what="the moon")


def test_a_failed_test_leaves_nothing(tmp_path: Path) -> None:
    """A process and a file that a test left are gone when the next test begins."""
    (tmp_path / "test_two.py").write_text(LEAVES_A_PROCESS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-ptests.conftest", f"-c{tmp_path}/pytest.ini",
         "-pno:cacheprovider", tmp_path / "test_two.py"],
        env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, encoding="utf-8",
        check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
