"""An unmount always works, whatever the service and other programs do meanwhile."""

import os
import signal
import subprocess
import threading
import time

import pytest

from tests.harness.machine import Mounted, has_ended
from tests.harness.waiting import eventually

QUICK_SECONDS = 40.0
"""Limit far below the minute or more that waiting for a stalled service takes."""


def test_waiting_readers_get_an_error_at_the_end(mounted: Mounted) -> None:
    """After SIGTERM, programs that wait for a stalled download get an error at once."""
    mounted.allow("broke", "ending")
    paths = [path for path in mounted.root.rglob("*") if path.is_file() and path.stat().st_size][:4]
    errors: list[OSError] = []

    def read(path: str) -> None:
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                file.read()
        except OSError as wrong:
            errors.append(wrong)

    with mounted.deployment.faulty(stall=300):
        readers = [threading.Thread(target=read, args=(os.fspath(path),)) for path in paths]
        for reader in readers:
            reader.start()
        began = time.monotonic()
        os.kill(mounted.pid, signal.SIGTERM)
        for reader in readers:
            reader.join(QUICK_SECONDS)
        eventually(lambda: not mounted.is_mounted(), QUICK_SECONDS)
    assert time.monotonic() - began < QUICK_SECONDS
    assert len(errors) == len(paths)


def test_mounting_again_at_once_works(mounted: Mounted) -> None:
    """After `fusermount3 -u` the next mount waits until the old daemon has closed its databases."""
    detach = ["fusermount3", "-u", str(mounted.path)]
    for number in range(3):
        (mounted.root / f"{number}.txt").write_text("x")
        # Busy while a file manager of another test looks for a trash in each new mount.
        eventually(lambda: subprocess.run(detach, check=False).returncode == 0)
        mounted.mount()
    mounted.sync()
    assert mounted.zone.read("2.txt") == b"x"


def test_the_end_of_a_login_session_keeps_the_bytes_of_open_files(mounted: Mounted) -> None:
    """systemd sends three signals at once; a new file that a program has open is uploaded later."""
    descriptor = os.open(mounted.root / "open.txt", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"half a sentence")
    pid = mounted.pid
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
        os.kill(pid, number)
    eventually(lambda: has_ended(pid), what="the daemon has ended")
    assert not mounted.is_mounted()
    with pytest.raises(OSError, match="not connected"):
        os.close(descriptor)
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("open.txt") == b"half a sentence"
