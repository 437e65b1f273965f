"""Every way to save, in every circumstance: one new version of the same file, and no other entry.

A way to save is a generator that yields between its steps.  At these moments the circumstance
occurs: nothing; a pause after which everything is on the service; a service that is slow, or
unreachable until the end.  If one version is impossible in principle, a separate test says what
happens instead.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.harness.workplace import Workplace
from zonedrive.state.local_state import NAMES_SETTLE_S

OLD, NEW = b"first line\nsecond line\n", b"first line\nsecond line, mended\nthird line\n"

STILL_OPEN, CLOSED = True, False

Way = Callable[[Path], Iterator[bool]]


def system(path: Path) -> Any:
    """Return the functions of `os` for a path, which may be one in this process."""
    return getattr(path, "system", os)


# ---- the ways ----


def in_place(path: Path) -> Iterator[bool]:
    """Change a record in the file."""
    with path.open("r+b", buffering=0) as file:
        yield STILL_OPEN
        file.write(NEW[:30])
        yield STILL_OPEN
        system(path).pwrite(file.fileno(), NEW[20:], 20)
        yield STILL_OPEN


def truncate_and_write(path: Path) -> Iterator[bool]:
    """Truncate and write, as `>` in a shell, nano, and others as a fallback."""
    with path.open("wb", buffering=0) as file:
        yield STILL_OPEN
        for start in range(0, len(NEW), 20):
            file.write(NEW[start : start + 20])
            yield STILL_OPEN
        system(path).fsync(file.fileno())


def rename_over(path: Path) -> Iterator[bool]:
    """Rename a temporary file over the old one, as sed, KeePassXC and Qt programs."""
    new = path.with_name(f"{path.name}.qCEvay")
    yield from truncate_and_write(new)
    yield CLOSED
    new.rename(path)


def rename_while_open(path: Path) -> Iterator[bool]:
    """Rename the temporary file before closing it, as GLib programs."""
    new = path.with_name(".goutputstream-OCY5Y3")
    with new.open("xb", buffering=0) as file:
        file.write(NEW)
        system(path).fsync(file.fileno())
        yield STILL_OPEN
        new.rename(path)
        yield STILL_OPEN


def rename_aside(path: Path) -> Iterator[bool]:
    """Rename the old file, write a new one, remove the old one; if refused, write in place as
    vim."""
    aside = path.with_name(f"{path.name}.old")
    try:
        path.rename(aside)
    except PermissionError:
        yield from truncate_and_write(path)
        return
    yield CLOSED
    yield from truncate_and_write(path)
    yield CLOSED
    aside.unlink()


def backup(path: Path) -> Iterator[bool]:
    """Rename the old file to a backup that stays, as vim and emacs."""
    aside = path.with_name(f"{path.name}~")
    try:
        path.rename(aside)
    except PermissionError:
        aside.write_bytes(path.read_bytes())
        yield CLOSED
        yield from truncate_and_write(path)
        return
    yield CLOSED
    yield from truncate_and_write(path)


def unlink_and_create(path: Path) -> Iterator[bool]:
    """Remove and create the file, as git checkout, tar and KeePassXC; if refused, write in
    place."""
    try:
        path.unlink()
    except PermissionError:
        yield from truncate_and_write(path)
        return
    yield CLOSED
    yield from truncate_and_write(path)


def rsync(path: Path) -> Iterator[bool]:
    """Set modes and times of a hidden temporary file, then rename it, as rsync."""
    new = path.with_name(f".{path.name}.26lczb")
    calls = system(path)
    descriptor = calls.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    calls.write(descriptor, NEW)
    calls.fchmod(descriptor, 0o600)
    calls.close(descriptor)
    calls.utime(new, ns=(10**18, 10**18))
    new.chmod(0o644)
    yield CLOSED
    new.rename(path)
    assert path.stat().st_mtime_ns == 10**18


def rsync_delayed(path: Path) -> Iterator[bool]:
    """Use a local-only folder, as rsync --delay-updates."""
    folder = path.with_name(".~tmp~")
    folder.mkdir()
    yield CLOSED
    (folder / path.name).write_bytes(NEW)
    yield CLOSED
    (folder / path.name).rename(path)
    folder.rmdir()


def lock_and_rename(path: Path) -> Iterator[bool]:
    """Create NAME.lock with O_EXCL, write it, and rename it over NAME, as git."""
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("xb", buffering=0) as file:
        file.write(NEW)
        yield STILL_OPEN
    yield CLOSED
    lock.rename(path)


def office(path: Path) -> Iterator[bool]:
    """Hold a lock file while the document is open, and rename a temporary file, as LibreOffice."""
    lock = path.with_name(f".~lock.{path.name}#")
    lock.write_bytes(b",alice,desk,21.11.2026 14:03;")
    yield CLOSED
    with path.open("r+b") as file:
        if isinstance(path, Path):  # locks are the kernel's
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield STILL_OPEN
        new = path.with_name("lu55988ch5w.tmp")
        new.write_bytes(NEW)
        yield STILL_OPEN
        new.rename(path)
    yield CLOSED
    lock.unlink()


def appended(path: Path) -> Iterator[bool]:
    """Append to a log repeatedly, with an fsync after each line; one version at the end.

    fsync only concerns the local disk; only the last close means that the file is complete.
    """
    with path.open("ab", buffering=0) as file:
        for line in (b"third", b"fourth", b"fifth"):
            file.write(line + b"\n")
            system(path).fsync(file.fileno())
            yield STILL_OPEN


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        in_place, truncate_and_write, rename_over, rename_while_open, rename_aside, backup,
        unlink_and_create, rsync, rsync_delayed, lock_and_rename, office, appended,
    )
}  # fmt: skip

# A pause after which the service has a step at which no program would stop.
STRANDED = ("rename_over", "rsync", "lock_and_rename")  # published: the temporary file's name
ANEW = ("rename_aside", "unlink_and_create")  # sandbox: the name is free on the service


def profiles(settle: str) -> pytest.MarkDecorator:
    """Return the mark that runs a test with both profiles."""
    cases = [
        pytest.param(name, marks=pytest.mark.mount(settle, "refresh=0.5", profile=name))
        for name in ("sandbox", "published")
    ]
    return pytest.mark.parametrize("profile", cases)


CALM = profiles("settle=60")
"""Mark for mounts that send a change only on request."""

HASTY = profiles("settle=0")
"""Mark for mounts that send a change at once."""


class Save:
    """Single save in one way, with its expected result."""

    def __init__(self, desk: Mounted, folder: str, name: str) -> None:
        self.place = place = Workplace(desk)
        self.path = desk.root / folder / f"{name}.txt"
        if desk.zone.find(folder) is None:
            desk.zone.make_folder(folder)
        desk.zone.write(f"{folder}/{name}.txt", OLD)
        eventually(self.path.exists, what="the file shows")
        self.inside = f"{folder}/{name}.txt"
        self._steps = WAYS[name]
        self._name = name
        assert self.path.read_bytes() == OLD
        self._id = place.zone.entry_id(self.inside)
        self.names = set(place.zone.listing(folder))
        self._folder = folder
        self._took = 0.0

    def steps(self) -> Iterator[bool]:
        """Yield the steps of the program."""
        began = time.monotonic()
        yield from self._steps(self.path)
        self._took = time.monotonic() - began

    def was_suspended(self) -> bool:
        """Return True if the service was told between two steps that the file is gone.

        That is so if the machine was suspended in the middle.
        """
        return self._took >= NAMES_SETTLE_S and self._name in ANEW and self.is_another()

    def is_another(self) -> bool:
        """Return True if another file has the name on the service."""
        return self.place.zone.entry_id(self.inside) != self._id

    def check(self, refused: Collection[str] = ()) -> None:
        """Check the result, ignoring temporary files of ways that were `refused`."""
        wanted = OLD + b"third\nfourth\nfifth\n" if self._name == "appended" else NEW
        zone = self.place.zone
        assert self.path.read_bytes() == wanted
        assert zone.read(self.inside) == wanted
        assert zone.entry_id(self.inside) == self._id
        assert len(zone.versions(self.inside)) == 2
        strays = zone.listing(self._folder).keys() ^ self.names
        assert not [each for each in strays if not any(f"{name}.txt." in each for name in refused)]


@CALM
@pytest.mark.parametrize("name", WAYS)
def test_in_one_go(desk: Mounted, profile: str, name: str) -> None:
    """Normally a save is complete before anything is sent."""
    save = Save(desk, "quick", name)
    for _ in save.steps():
        pass
    save.place.flush()
    save.check()


@CALM
@pytest.mark.parametrize("name", WAYS)
def test_with_everything_sent_at_each_step(desk: Mounted, profile: str, name: str) -> None:
    """An incomplete state never becomes a version, however long a program waits between two
    steps."""
    if profile == "published" and name in STRANDED:
        stranded(Save(desk, "pauses", name))
        return
    save = Save(desk, "pauses", name)
    for still_open in save.steps():
        save.place.pause(still_open=still_open)
    save.place.flush()
    if profile == "sandbox" and name in ANEW:
        recreated(save)
    else:
        save.check()


def stranded(save: Save) -> None:
    """Check the result with `published`, where an uploaded temporary file cannot be renamed.

    The rename is refused at once, the target is unchanged, and the bytes are safe under the
    temporary name, locally and on the service.  One version is impossible without a deletion, which
    that profile does not have.
    """
    with pytest.raises(PermissionError):
        for still_open in save.steps():
            save.place.pause(still_open=still_open)
    save.place.flush()
    zone, folder = save.place.zone, save.inside.split("/")[0]
    assert save.path.read_bytes() == OLD
    assert len(zone.versions(save.inside)) == 1
    (temporary,) = zone.listing(folder).keys() - save.names
    assert zone.read(f"{folder}/{temporary}") == NEW


def recreated(save: Save) -> None:
    """Check the result with a `sync` between the removal (or renaming) and the new file.

    Then the service was told, as requested, that the file is gone, and the later one is new. No
    other entry is left.  Without a `sync` a removal is sent two seconds later at the earliest.
    """
    zone, folder = save.place.zone, save.inside.split("/")[0]
    assert zone.read(save.inside) == NEW
    assert len(zone.versions(save.inside)) == 1
    assert set(zone.listing(folder)) == save.names


@pytest.mark.mount("settle=60", "refresh=0.5")
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("name", WAYS)
def test_after_a_rename_that_is_not_sent_yet(desk: Mounted, name: str, killed: bool) -> None:
    """A save continues the history as well, also if the daemon is killed between two steps."""
    save = Save(desk, "renamed", name)
    path = save.path.with_name("plan.txt")
    save.path.rename(path)
    save.path, save.inside, save.names = path, "renamed/plan.txt", {"plan.txt"}
    for still_open in save.steps():
        if killed and not still_open:
            desk.kill()
            desk.mount()
    save.place.flush()
    save.check()


@HASTY
@pytest.mark.parametrize("name", WAYS)
def test_with_changes_sent_at_once(desk: Mounted, profile: str, name: str) -> None:
    """Without a settle time, a save still makes one version.

    With `published` a temporary file may be uploaded before its rename, which is then refused.
    """
    save = Save(desk, "at once", name)
    refused = False
    try:
        for _ in save.steps():
            pass
    except PermissionError:
        refused = True
        assert profile == "published"
        assert name in STRANDED
    save.place.flush()
    if refused:
        assert save.path.read_bytes() == desk.zone.read(save.inside) == OLD
    elif profile == "sandbox" and save.was_suspended():
        recreated(save)
    else:
        save.check()


@HASTY
@pytest.mark.also_mounted(circumstance="slow", profile="sandbox")
@pytest.mark.parametrize("circumstance", ["slow", "away"])
def test_with_a_service_in_trouble(desk: Mounted, profile: str, circumstance: str) -> None:
    """All ways in turn, on a service that is slow, or unreachable until all saves are done."""
    desk.allow("offline", "reach", "upload")
    saves = {name: Save(desk, circumstance, name) for name in WAYS}
    for save in saves.values():
        save.names = set(desk.zone.listing(circumstance))
    fault = {"latency_ms": 150} if circumstance == "slow" else {"down": True}
    refused = set()
    with desk.deployment.faulty(**fault):
        for name, save in saves.items():
            with contextlib.suppress(PermissionError):
                for _ in save.steps():
                    pass
                continue
            refused.add(name)
        if circumstance == "slow":
            Workplace(desk).flush()
    eventually(lambda: desk.status()["state"] == "online", what="it is back")
    Workplace(desk).flush()
    assert not refused or (profile == "published" and refused <= set(STRANDED))
    for name in WAYS.keys() - refused:
        if profile == "sandbox" and saves[name].was_suspended():
            recreated(saves[name])
        else:
            saves[name].check(refused)
