"""A save that changes no byte makes no version, unless the setting `unchanged` asks for one."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from zonedrive.failpoint import Place

OLD = world.SEED["notes.txt"]
NAMES = {"big.bin", "docs", "empty", "notes.txt"}


def write_in_place(path: Path) -> None:
    """Write the first bytes again."""
    with path.open("r+b") as file:
        file.write(OLD[:5])


def rewrite(path: Path) -> None:
    """Truncate the file and write it again."""
    path.write_bytes(OLD)


def set_size(path: Path) -> None:
    """Append bytes, and cut them off again."""
    with path.open("ab", buffering=0) as file:
        file.write(b"more")
        file.truncate(len(OLD))


def rename_over(path: Path) -> None:
    """Rename a new file over the old one."""
    new = path.with_name("notes.tmp")
    new.write_bytes(OLD)
    new.rename(path)


def rename_over_open(path: Path) -> None:
    """Rename a new file over the old one before it is closed."""
    new = path.with_name("notes.tmp")
    with new.open("wb", buffering=0) as file:
        file.write(OLD)
        new.rename(path)


def rename_aside(path: Path) -> None:
    """Rename the old file, write a new one, and remove the old one."""
    old = path.with_name("notes.old")
    path.rename(old)
    path.write_bytes(OLD)
    old.unlink()


def backup(path: Path) -> None:
    """Rename the old file to a name that stays on this machine, and write a new one."""
    path.rename(path.with_name("notes.txt~"))
    path.write_bytes(OLD)


def delete_and_write(path: Path) -> None:
    """Remove the file, and write it again."""
    path.unlink()
    path.write_bytes(OLD)


ALWAYS: list[Callable[[Path], None]] = [
    write_in_place, rewrite, set_size, rename_over, rename_over_open,
]  # fmt: skip
"""Ways that need no operation of a profile."""
WAYS = [*ALWAYS, rename_aside, backup, delete_and_write]


def save_again(
    desk: Mounted, save: Callable[[Path], None], versions: int, *, is_read: bool
) -> None:
    """Save the same bytes, and check the file here and on the service."""
    path, before = desk.root / "notes.txt", desk.zone.find("notes.txt")
    assert before is not None
    if is_read:
        path.read_bytes()
    first_ns = path.stat().st_mtime_ns
    save(path)
    saved_ns = path.stat().st_mtime_ns
    assert saved_ns > first_ns
    desk.sync()
    after = desk.zone.find("notes.txt")
    assert after is not None
    assert after["id"] == before["id"]
    assert (after == before) == (versions == 1)
    assert len(desk.zone.versions("notes.txt")) == versions
    assert set(desk.zone.listing()) == NAMES
    outbox = desk.status()["outbox"]
    assert {outbox[name] for name in ("pending", "uploading", "failed", "conflicts")} == {0}
    local = save is backup
    eventually(lambda: len(desk.outgoing()) == local, what="no other bytes are left")
    downloads = desk.deployment.downloads()
    assert path.read_bytes() == OLD
    assert desk.deployment.downloads() == downloads, "it is cached"
    assert desk.xattr(path, "user.zonedrive.state") == "cached"
    assert desk.xattr(path, "user.zonedrive.id") == before["id"]
    assert path.stat().st_mtime_ns == saved_ns


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("save", WAYS, ids=lambda way: way.__name__)
def test_a_save_without_a_change(
    desk: Mounted, save: Callable[[Path], None], is_read: bool
) -> None:
    """The service gets nothing, whichever way a program saves."""
    save_again(desk, save, 1, is_read=is_read)


@pytest.mark.mount("unchanged=version")
@pytest.mark.parametrize("save", WAYS, ids=lambda way: way.__name__)
def test_a_save_without_a_change_as_a_version(desk: Mounted, save: Callable[[Path], None]) -> None:
    """With the setting `unchanged = "version"`, each save is a version."""
    save_again(desk, save, 2, is_read=True)


@pytest.mark.mount(profile="published")
@pytest.mark.parametrize("save", ALWAYS, ids=lambda way: way.__name__)
def test_published_a_save_without_a_change(desk: Mounted, save: Callable[[Path], None]) -> None:
    """No operation beyond the published interface is needed."""
    save_again(desk, save, 1, is_read=False)


def test_a_change_after_a_save_without_one(desk: Mounted) -> None:
    """A change is a version as usual, without a conflict, also if it is taken back."""
    path = desk.root / "notes.txt"
    for content in (OLD, OLD, b"changed\n", b"changed\n", OLD):
        path.write_bytes(content)
        desk.sync()
    assert [each["size"] for each in desk.zone.versions("notes.txt")] == [len(OLD), 8, len(OLD)]
    assert set(desk.zone.listing()) == NAMES


@pytest.mark.mount("settle=600")
def test_a_change_that_is_taken_back_before_its_upload(desk: Mounted) -> None:
    """Only the last content counts."""
    path = desk.root / "notes.txt"
    path.write_bytes(b"changed\n")
    path.write_bytes(OLD)
    desk.sync()
    assert len(desk.zone.versions("notes.txt")) == 1


def test_a_large_file(desk: Mounted) -> None:
    """Its bytes are compared if they are cached, otherwise the file is uploaded."""
    path, content = desk.root / "big.bin", world.SEED["big.bin"]
    path.write_bytes(content)
    desk.sync()
    assert len(desk.zone.versions("big.bin")) == 2
    path.write_bytes(content)
    desk.sync()
    assert len(desk.zone.versions("big.bin")) == 2


@pytest.mark.parametrize(
    ("versions", "setting"),
    [
        pytest.param(1, "skip", marks=pytest.mark.mount("close=wait", "fsync=service")),
        pytest.param(
            5, "version",
            marks=pytest.mark.mount("close=wait", "fsync=service", "unchanged=version"),
        ),
    ],
)  # fmt: skip
def test_programs_that_wait_for_the_service(desk: Mounted, versions: int, setting: str) -> None:
    """close(2) and fsync(2) succeed, and what is written after them is a version."""
    path = desk.root / "notes.txt"
    uploads = desk.deployment.uploads()
    with path.open("r+b", buffering=0) as file:
        file.write(OLD[:5])
        desk.system.fsync(file.fileno())
        assert path.read_bytes() == OLD
        file.write(OLD[5:9])
        desk.system.fsync(file.fileno())
        assert desk.xattr(path, "user.zonedrive.state") == "cached"
        file.write(OLD[9:11])
        assert desk.xattr(path, "user.zonedrive.state") == "pending"
    path.write_bytes(OLD)
    assert desk.deployment.uploads() - uploads == versions - 1
    assert len(desk.zone.versions("notes.txt")) == versions
    with path.open("r+b", buffering=0) as file:
        file.write(OLD[:5])
        desk.system.fsync(file.fileno())
        file.write(b" changed")
    assert desk.zone.read("notes.txt") == OLD[:5] + b" changed" + OLD[13:]
    desk.sync()
    assert len(desk.zone.versions("notes.txt")) == versions + (1 if setting == "skip" else 2)
    assert set(desk.zone.listing()) == NAMES
    eventually(lambda: not desk.outgoing(), what="no bytes are left")


@pytest.mark.parametrize(
    "copies",
    [
        pytest.param(0, marks=pytest.mark.mount("settle=600"), id="skip"),
        pytest.param(1, marks=pytest.mark.mount("settle=600", "unchanged=version"), id="version"),
        pytest.param(1, marks=pytest.mark.mount("settle=600", profile="published"), id="published"),
    ],
)
@pytest.mark.parametrize("theirs", [b"by bob\n", OLD[::-1]], ids=["other size", "same size"])
@pytest.mark.parametrize("save", [write_in_place, rename_over], ids=lambda way: way.__name__)
def test_a_coworker_who_saves_before(
    desk: Mounted, save: Callable[[Path], None], theirs: bytes, copies: int
) -> None:
    """Their version is shown; the former bytes are in the history, and need no copy."""
    desk.allow("a conflict copy")
    path = desk.root / "notes.txt"
    path.read_bytes()
    save(path)
    desk.zone.write("notes.txt", theirs)
    desk.sync()
    assert desk.zone.read("notes.txt") == theirs
    assert len(desk.zone.versions("notes.txt")) == 2
    assert path.read_bytes() == theirs
    assert len(set(desk.zone.listing()) - NAMES) == len(desk.conflicts()) == copies
    desk.sync()
    eventually(lambda: not desk.outgoing(), what="no bytes are left")


@pytest.mark.mount("refresh=0")
def test_a_coworker_who_saves_after(desk: Mounted) -> None:
    """Their version is shown, and the next edit is based on it."""
    path = desk.root / "notes.txt"
    path.write_bytes(OLD)
    desk.sync()
    desk.zone.write("notes.txt", b"by bob\n")
    assert path.read_bytes() == b"by bob\n"
    with path.open("ab") as file:
        file.write(b"and alice\n")
    desk.sync()
    assert desk.zone.read("notes.txt") == b"by bob\nand alice\n"
    assert set(desk.zone.listing()) == NAMES


@pytest.mark.mount("settle=600")
@pytest.mark.parametrize("save", WAYS, ids=lambda way: way.__name__)
def test_a_death_before_the_comparison(desk: Mounted, save: Callable[[Path], None]) -> None:
    """The bytes are compared after the next start."""
    save(desk.root / "notes.txt")
    desk.kill()
    desk.mount()
    assert (desk.root / "notes.txt").read_bytes() == OLD
    desk.sync()
    assert len(desk.zone.versions("notes.txt")) == 1
    assert set(desk.zone.listing()) == NAMES
    local = save is backup
    eventually(lambda: len(desk.outgoing()) == local, what="no other bytes are left")


def test_a_death_after_the_comparison(desk: Mounted) -> None:
    """Nothing is left to do, and the modification time is that of the save."""
    path = desk.root / "notes.txt"
    path.write_bytes(OLD)
    saved_ns = path.stat().st_mtime_ns
    desk.sync()
    desk.kill()
    desk.mount()
    assert desk.status()["outbox"]["pending"] == 0
    assert path.read_bytes() == OLD
    assert path.stat().st_mtime_ns == saved_ns
    assert len(desk.zone.versions("notes.txt")) == 1


@pytest.mark.parametrize(
    "place",
    [
        Place.RECORDED, Place.INTENT_FREED, Place.UPLOAD_TAKEN, Place.UPLOAD_JUDGED,
        Place.ARRIVAL_INSIDE, Place.ARRIVED, Place.CACHED,
    ],
)  # fmt: skip
@pytest.mark.parametrize("save", [write_in_place, rename_over], ids=lambda way: way.__name__)
def test_a_death_at_each_step(desk: Mounted, place: Place, save: Callable[[Path], None]) -> None:
    """The save is neither lost nor a version."""
    desk.unmount()
    desk.mount(kill_at=place)  # type: ignore[call-arg]
    path = desk.root / "notes.txt"
    with contextlib.suppress(OSError):
        save(path)
        desk.sync()
    assert desk.client.died_at == place  # type: ignore[attr-defined]
    desk.mount()
    assert path.read_bytes() == OLD
    desk.sync()
    assert path.read_bytes() == OLD
    assert desk.zone.read("notes.txt") == OLD
    is_new = place in (Place.RECORDED, Place.INTENT_FREED) and save is rename_over
    assert set(desk.zone.listing()) == NAMES | ({"notes.tmp"} if is_new else set())
    assert len(desk.zone.versions("notes.txt")) == 1
    eventually(lambda: not desk.outgoing(), what="no bytes are left")


@pytest.mark.mount("settle=0")
def test_a_save_during_the_comparison(desk: Mounted) -> None:
    """The comparison is about bytes that are not current any more."""
    path = desk.root / "notes.txt"
    with desk.deployment.faulty(latency_ms=5000, times=1, method="GET", path="/content$"):
        path.write_bytes(OLD)
        eventually(lambda: desk.status()["outbox"]["uploading"] == 1, what="it is compared")
        path.write_bytes(OLD[::-1])
    desk.sync()
    assert desk.zone.read("notes.txt") == OLD[::-1]
    assert len(desk.zone.versions("notes.txt")) == 2


@pytest.mark.mount("settle=0")
def test_a_save_while_the_service_is_unreachable(desk: Mounted) -> None:
    """The save waits until the version on the service is known."""
    desk.allow("offline", "reach")
    path = desk.root / "notes.txt"
    path.read_bytes()
    with desk.deployment.faulty(down=True):
        path.write_bytes(OLD)
        outbox = desk.status()["outbox"]
        assert outbox["pending"] + outbox["uploading"] == 1
    desk.sync()
    assert len(desk.zone.versions("notes.txt")) == 1


UNREADABLE: list[dict[str, object]] = [
    {"status": 423}, {"status": 500}, {"status": 503}, {"drop_reply": True}, {"stall": 60},
]  # fmt: skip
"""Faults that prevent the download of a version."""


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("fault", UNREADABLE, ids=str)
def test_a_version_that_can_never_be_read(desk: Mounted, fault: dict[str, object]) -> None:
    """The save is uploaded after some attempts to compare it."""
    desk.allow("offline")
    with desk.deployment.faulty(**fault, method="GET", path="/content$"):
        (desk.root / "notes.txt").write_bytes(OLD[::-1])
        desk.sync(seconds=300)
    assert desk.zone.read("notes.txt") == OLD[::-1]
    assert len(desk.zone.versions("notes.txt")) == 2


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("fault", UNREADABLE[1:], ids=str)
def test_a_version_that_cannot_be_read_for_a_while(desk: Mounted, fault: dict[str, object]) -> None:
    """The save waits for the comparison."""
    desk.allow("offline")
    with desk.deployment.faulty(**fault, times=3, method="GET", path="/content$"):
        (desk.root / "notes.txt").write_bytes(OLD)
        desk.sync(seconds=300)
    assert len(desk.zone.versions("notes.txt")) == 1


@pytest.mark.mount("settle=600")
@pytest.mark.parametrize("fault", UNREADABLE, ids=str)
def test_a_conflict_about_a_version_that_can_never_be_read(
    desk: Mounted, fault: dict[str, object]
) -> None:
    """The save may have changed something, so it becomes a copy."""
    desk.allow("a conflict copy", "offline")
    (desk.root / "notes.txt").write_bytes(OLD[::-1])
    desk.zone.write("notes.txt", b"by bob\n")
    with desk.deployment.faulty(**fault, method="GET", path="/versions/.*/content$"):
        desk.sync(seconds=300)
    (copy,) = set(desk.zone.listing()) - NAMES
    assert desk.zone.read(copy) == OLD[::-1]
    assert desk.zone.read("notes.txt") == b"by bob\n"


@pytest.mark.mount("settle=600")
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
@pytest.mark.parametrize("fault", [UNREADABLE[0], UNREADABLE[-1]], ids=str)
def test_a_conflict_with_a_version_of_the_same_size_that_can_never_be_read(
    desk: Mounted, fault: dict[str, object], name: str
) -> None:
    """The two versions may differ, so the save becomes a copy."""
    desk.allow("a conflict copy", "offline")
    desk.names(desk.root)
    (desk.root / name).write_bytes(OLD[::-1])
    desk.zone.write(name, theirs := OLD.swapcase())
    with desk.deployment.faulty(**fault, method="GET", path="/content$"):
        desk.sync(seconds=900)
    (copy,) = set(desk.zone.listing()) - NAMES - {name}
    assert desk.zone.read(copy) == OLD[::-1]
    assert desk.zone.read(name) == theirs
