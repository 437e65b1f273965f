"""A wall clock that is set back."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually

HOURS_S = 2 * 3600.0
NEW = "new.txt"


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[VirtualMount]:
    """Yield a mount whose uploads wait a second."""
    mount = VirtualMount(tmp_path, "settle=1")
    yield mount
    mount.close()


def test_files_that_were_saved_before_the_clock_was_set_back(mount: VirtualMount) -> None:
    """They are sent as soon as if the clock had been right, and not after the difference."""
    mount.mount()
    mount.loop.time.fast_s = lambda: HOURS_S
    (mount.root / NEW).write_bytes(b"new")
    time.sleep(0.6)
    mount.loop.time.fast_s = lambda: 0.0
    time.sleep(5)
    assert NEW in mount.zone.tree()


def test_files_that_were_saved_before_a_restart_and_a_right_clock(mount: VirtualMount) -> None:
    """A computer that starts with a clock two hours ahead is switched off before the upload."""
    mount.mount()
    mount.loop.time.fast_s = lambda: HOURS_S
    (mount.root / NEW).write_bytes(b"new")
    mount.kill()
    mount.loop.time.fast_s = lambda: 0.0
    mount.mount()
    time.sleep(5)
    assert NEW in mount.zone.tree()


def _has(mount: VirtualMount, number: int) -> bool:
    return len(mount.zone.listing()) == number


def test_a_conflict_after_the_clock_was_set_back(mount: VirtualMount) -> None:
    """`sync` names the new conflict copy, not an earlier one."""
    mount.mount()
    mount.allow("a conflict copy")
    named = []
    for number, name in enumerate(("notes.txt", "big.bin"), len(mount.zone.listing()) + 1):
        with (mount.root / name).open("wb", buffering=0) as file:
            mount.zone.write(name, b"Bob's version\n")
            file.write(b"Alice's version\n")
        sent = partial(_has, mount, number)
        eventually(sent, what="the copy is sent")
        named.append(mount.command("sync")["conflicts"])
        mount.loop.time.fast_s = lambda: -HOURS_S
    assert [len(each) for each in named] == [1, 1]
    assert named[0][0].startswith("Zone 01/notes (conflict")
    assert named[1][0].startswith("Zone 01/big (conflict")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pause_while_the_clock_is_set_back(mount: VirtualMount, restarted: bool) -> None:
    """A pause has the requested length, counted from the start of the daemon after a restart."""
    mount.mount()
    mount.loop.time.fast_s = lambda: 1000 * HOURS_S
    mount.command("pause", seconds=60)
    (mount.root / NEW).write_bytes(b"new")
    time.sleep(1)
    mount.loop.time.fast_s = lambda: 0.0
    if restarted:
        mount.kill()
        mount.mount()
    time.sleep(50)
    assert mount.status()["paused"]
    time.sleep(15)
    assert not mount.status()["paused"]
    assert NEW in mount.zone.tree()
    assert not mount.client.paths.pause.exists()
