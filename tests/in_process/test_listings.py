"""Listings: their time of validity, waiting programs, and names without a listing."""

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from tests.harness.fake_service import Node
from tests.harness.in_process import ALICE
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual
from zonedrive.sandbox.zones import Level
from zonedrive.state import repair

pytestmark = pytest.mark.mount("settle=0", "refresh=10")
FOLDER = "/folder/"


def asked(desk: Mounted, word: str = FOLDER) -> list[str]:
    """Return the requests so far that contain a word."""
    world = desk.deployment.world  # type: ignore[attr-defined]  # of a service in memory
    return [each for each in world.requests if word in each]


@contextmanager
def listings(desk: Mounted, number: int) -> Iterator[None]:
    """Check how many listings of the folder `docs` the block requests."""
    path = f"{FOLDER}{desk.zone.entry_id('docs')}"
    before = len(asked(desk, path))
    yield
    assert len(asked(desk, path)) - before == number


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    """Check how long the block takes."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert abs(took - seconds) < 0.1, took


def test_a_listing_is_used_for_its_time(desk: Mounted) -> None:
    """In the last three tenths of its time, a use renews it without waiting."""
    docs = desk.root / "docs"
    desk.names(docs)
    time.sleep(6.9)
    desk.zone.write("docs/new.txt", b"new")
    with listings(desk, 0):
        assert "new.txt" not in desk.names(docs)
    time.sleep(0.2)
    with listings(desk, 1):
        assert "new.txt" not in desk.names(docs)
        time.sleep(0.1)
    with listings(desk, 0):
        assert "new.txt" in desk.names(docs)
    time.sleep(10.1)
    desk.zone.delete("docs/new.txt")
    with listings(desk, 1):
        assert "new.txt" not in desk.names(docs)


def test_a_slow_service_is_waited_for_once(desk: Mounted) -> None:
    """A path of two folders waits three seconds, not three for each of them."""
    docs = desk.root / "docs"
    desk.names(docs)
    time.sleep(11)
    desk.zone.write("docs/new.txt", b"new")
    desk.deployment.fault(latency_ms=6000, method="GET", path=FOLDER)
    with lasting(3):
        assert "new.txt" not in desk.names(docs)
    with lasting(0):
        assert "new.txt" not in desk.names(docs)
    time.sleep(6.5)
    with lasting(0):
        assert "new.txt" in desk.names(docs)
    desk.deployment.heal()
    time.sleep(30)
    desk.zone.write("docs/newer.txt", b"newer")
    desk.deployment.fault(latency_ms=2900, method="GET", path=FOLDER)
    with lasting(5.8):
        assert "newer.txt" in desk.names(docs)


def test_a_listing_that_took_long_is_trusted_longer(desk: Mounted) -> None:
    """A listing that takes 8 seconds is trusted for 16 seconds."""
    docs = desk.root / "docs"
    path = f"{FOLDER}{desk.zone.entry_id('docs')}"
    desk.names(desk.root)
    desk.deployment.fault(latency_ms=8000, method="GET", path=path)
    desk.names(docs)
    desk.deployment.heal()
    time.sleep(4.8)
    with listings(desk, 0):
        desk.names(docs)
        time.sleep(0.1)
    time.sleep(0.2)
    with listings(desk, 1):
        with lasting(0):
            desk.names(docs)
        time.sleep(0.1)


def test_simultaneous_listings_cause_one_request(desk: Mounted) -> None:
    """Twenty programs in one folder of a slow service cause one listing."""
    mount, docs = virtual(desk), desk.root / "docs"
    assert docs.is_dir()

    async def list_all() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(mount.client.kernel.listdir, str(docs))

    desk.deployment.fault(latency_ms=1000, method="GET", path=FOLDER)
    with listings(desk, 1):
        mount.call(list_all)


def test_an_unreachable_service_is_not_waited_for(desk: Mounted) -> None:
    """Folders that were listed are shown; all others are an error."""
    desk.allow("offline", "reach")
    desk.names(desk.root / "docs")
    desk.deployment.fault(down=True)
    with pytest.raises(OSError) as refused:
        desk.names(desk.root / "docs/2026")
    assert refused.value.errno == errno.ENETUNREACH
    time.sleep(11)
    with listings(desk, 0), lasting(0):
        assert "report.md" in desk.names(desk.root / "docs")
    desk.deployment.heal()


@pytest.mark.parametrize("ours", [False, True])
def test_a_folder_that_may_not_be_read_any_more(desk: Mounted, ours: bool) -> None:
    """Reading the folder is an error, unless local changes in it would become unreachable."""
    desk.allow("denied", "403", "upload", "refused", "access")
    docs = desk.root / "docs"
    before = set(desk.names(docs))
    if ours:
        desk.deployment.fault(status=503, method="POST")
        (docs / "mine.txt").write_bytes(b"mine")
    time.sleep(11)
    desk.deployment.fault(status=403, method="GET", path=FOLDER)
    if ours:
        assert set(desk.names(docs)) == before | {"mine.txt"}
    else:
        with pytest.raises(PermissionError):
            desk.names(docs)
    desk.deployment.heal()


@pytest.mark.parametrize("status", [403, 404])
def test_an_unsent_file_is_reached_in_a_folder_that_was_never_listed(
    desk: Mounted, status: int
) -> None:
    """A coworker has deleted the folder and created it again, and the user may not read it."""
    desk.allow("refused", "deleted on the service")
    docs = desk.root / "docs"
    desk.names(docs)
    desk.command("pause")
    (docs / "mine.txt").write_bytes(b"mine")
    desk.zone.delete("docs")
    time.sleep(11)
    desk.names(desk.root)
    desk.zone.make_folder("docs")
    desk.deployment.fault(status=status, path=FOLDER + desk.zone.entry_id("docs"))
    time.sleep(11)
    desk.names(desk.root)
    time.sleep(11)
    assert desk.names(docs) == ["mine.txt"]
    assert (docs / "mine.txt").read_bytes() == b"mine"
    desk.deployment.heal()
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("docs/mine.txt") == b"mine"


def test_the_top_folders_of_all_zones_are_prefetched(desk: Mounted) -> None:
    """A forbidden zone is asked once; the others are known when the service becomes unreachable."""
    desk.allow("offline", "reach")
    world = desk.deployment.world  # type: ignore[attr-defined]  # of a service in memory
    people = {ALICE: Level.MANAGE}
    ids = {name: world.add_zone(name, people) for name in ("Open", "Closed", "Used")}
    desk.deployment.fault(status=403, method="GET", path=f"{ids['Closed']}{FOLDER}")
    world.upload(ids["Open"], world.zones[ids["Open"]].root_id, "file.txt", b"", ALICE)
    desk.names(desk.path)
    time.sleep(2)
    tops = {name: asked(desk, f"{ids[name]}{FOLDER}") for name in ids}
    assert {name: len(found) for name, found in tops.items()} == {"Open": 1, "Closed": 1, "Used": 1}
    time.sleep(60)
    desk.names(desk.path)
    time.sleep(2)
    assert len(asked(desk, f"{ids['Closed']}{FOLDER}")) == 1
    assert len(asked(desk, f"{ids['Open']}{FOLDER}")) == 1
    desk.deployment.fault(down=True)
    assert desk.names(desk.path / "Open") == ["file.txt"]
    desk.deployment.heal()


def test_a_prefetched_top_is_fresh_at_its_first_use(desk: Mounted) -> None:
    """A prefetch makes a zone usable offline; a program gets what is there now."""
    world = desk.deployment.world  # type: ignore[attr-defined]  # of a service in memory
    zone = world.add_zone("Other", {ALICE: Level.MANAGE})
    desk.names(desk.path)
    time.sleep(2)
    world.upload(zone, world.zones[zone].root_id, "file.txt", b"", ALICE)
    assert desk.names(desk.path / "Other") == ["file.txt"]


def test_nothing_is_prefetched_after_a_failure(desk: Mounted) -> None:
    """For five seconds, a failing service gets only the requests that programs wait for."""
    world = desk.deployment.world  # type: ignore[attr-defined]  # of a service in memory
    other = world.add_zone("Other", {ALICE: Level.MANAGE})
    path = f"{FOLDER}{desk.zone.entry_id('docs/2026')}"
    desk.names(desk.root / "docs")
    with (
        desk.deployment.faulty(status=500, method="GET", path=path),
        pytest.raises(OSError, match="docs/2026"),
    ):
        desk.names(desk.root / "docs/2026")
    failed = time.monotonic()
    desk.names(desk.path)
    time.sleep(failed + 4.9 - time.monotonic())
    assert asked(desk, f"{other}{FOLDER}") == []
    time.sleep(0.5)
    assert len(asked(desk, f"{other}{FOLDER}")) == 1


class Half(Node):
    """Entry of which the service does not say what it is."""

    def wire(self) -> dict[str, object]:
        """Return the entry without its type."""
        return {name: value for name, value in super().wire().items() if name != "folder"}


def halve(desk: Mounted, *paths: str) -> None:
    """Let the service leave out facts about entries."""
    for path in paths:
        node = desk.zone.node(path)  # type: ignore[attr-defined]  # of a service in memory
        node.__class__ = Half


@pytest.mark.parametrize("known", [True, False])
def test_entries_that_the_service_does_not_describe(desk: Mounted, known: bool) -> None:
    """Known entries stay; the status and one line of the log name those that cannot be shown."""
    desk.allow("no valid id")
    desk.zone.write("docs/x.txt", b"x")
    desk.zone.make_folder("more")
    desk.zone.write("more/y.txt", b"y")
    if known:
        desk.names(desk.root / "docs")
    halve(desk, "docs/x.txt", "more/y.txt")
    for _ in range(3):
        time.sleep(11)
        assert ("x.txt" in desk.names(desk.root / "docs")) == known
    entries = desk._complaints.entries  # type: ignore[attr-defined]
    assert len([each for each in entries if "no valid id" in each]) == 1 + (not known)
    notice = desk.status().get("notice", "")
    assert notice.startswith("" if known else "1 entry in Zone 01/docs is not shown")
    assert (notice == "") == known
    desk.names(desk.root / "more")
    notice = desk.status()["notice"]
    if known:
        assert notice.startswith("1 entry in Zone 01/more is not shown")
    else:
        assert notice.startswith("2 entries in Zone 01/docs and 1 more folder are not shown")
    desk.zone.delete("more")
    time.sleep(11)
    desk.names(desk.root)
    assert ("more" in desk.status().get("notice", "")) is False


@pytest.mark.mount("settle=0", "refresh=5")
def test_a_renamed_folder_that_cannot_be_listed_is_not_shown_empty(desk: Mounted) -> None:
    """A backup would take its content for deleted, and `rmdir` would succeed."""
    desk.zone.make_folder("closed")
    desk.zone.write("closed/theirs.txt", b"theirs")
    eventually(lambda: "closed" in desk.names(desk.root), what="the folder shows")
    desk.command("pause")
    (desk.root / "closed").rename(desk.root / "renamed")
    with desk.deployment.faulty(status=403, method="GET", path=f"/{desk.zone.entry_id('closed')}$"):
        with pytest.raises(PermissionError):
            desk.names(desk.root / "renamed")
        with pytest.raises(PermissionError):
            (desk.root / "renamed").rmdir()
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("renamed/theirs.txt") == b"theirs"


def test_the_cache_frees_a_deleted_file_when_the_kernel_forgets_it(desk: Mounted) -> None:
    """A coworker has deleted the file, whose content is in the cache."""
    path, files = desk.root / "big.bin", virtual(desk).client.files
    path.read_bytes()
    ino = path.stat().st_ino
    desk.zone.delete("big.bin")
    eventually(lambda: "big.bin" not in desk.names(desk.root), what="the deletion is listed")
    assert desk.status()["cache"]["bytes"] > 0

    async def forget() -> None:
        files.forget(ino, 1000)  # more than the lookups until now

    virtual(desk).call(forget)
    assert desk.status()["cache"]["bytes"] == 0


def test_a_folder_with_a_damaged_row_can_be_listed_after_the_next_mount(
    desk: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of a file on the service is not checked before the mount of a large database."""
    monkeypatch.setattr(repair, "SMALL", 0)
    desk.allow("damaged", "unexpected", "failed")
    report = desk.root / "docs/report.md"
    content, names = report.read_bytes(), {*desk.names(desk.root / "docs")}
    state, ino = virtual(desk).client.parts.state, report.stat().st_ino
    with state.transaction():
        state.database.execute("UPDATE inodes SET kind = 77 WHERE ino = ?", (ino,))
    desk.restart()
    with pytest.raises(OSError, match="Input/output error"):
        desk.names(desk.root / "docs")
    desk.restart()
    assert {*desk.names(desk.root / "docs")} == names
    assert report.read_bytes() == content
