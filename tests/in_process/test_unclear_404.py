"""Status 404 shows a deletion only if the service itself reports it, about a zone that exists.

The listing of the entry's folder must lack the entry, too.
"""

import time

import pytest

from tests.harness.machine import Mounted
from tests.in_process.test_entry_states import virtual

pytestmark = pytest.mark.mount("settle=0", "refresh=1")


@pytest.mark.parametrize("answer", ["page", "zone"])
def test_the_changes_stay_pending(desk: Mounted, answer: str) -> None:
    """For some seconds, a gateway has no route to the service, or the service loses the zone."""
    desk.zone.write("docs/k", b"k")
    desk.names(desk.root)
    time.sleep(2)
    before = set(desk.names(desk.root / "docs")) - {"k"}
    world = virtual(desk).deployment.world
    desk.command("pause")
    (desk.root / "docs/report.md").rename(desk.root / "docs/renamed.md")
    (desk.root / "docs/k").unlink()
    (desk.root / "notes.txt").write_bytes(b"edited")
    if answer == "page":
        world.is_unrouted = True
    else:
        world.fault(status=404, error="UNKNOWN_ZONE", path=f"/{desk.zone.id}/")
    desk.command("resume")
    time.sleep(5)
    assert len(desk.status()["uploads"]) == 3
    desk.deployment.heal()
    desk.sync()
    assert set(desk.zone.listing("docs")) == before - {"report.md"} | {"renamed.md"}
    assert [each["name"] for each in desk.zone.trash()] == ["k"]
    assert desk.zone.read("notes.txt") == b"edited"
    assert len(desk.zone.versions("notes.txt")) == 2
    assert set(desk.names(desk.root / "docs")) == set(desk.zone.listing("docs"))
    assert not desk.conflicts()


SERVICE_TEXT = b"first line\nsecond line\n"


def wrong_404(desk: Mounted, what: str = "", times: int = 1) -> None:
    """Answer the next `times` requests for an entry or, with /content, for its content with 404."""
    desk.deployment.fault(
        status=404, error="UNKNOWN_FILE", method="GET", path=f"/files/[0-9a-f]+{what}$", times=times
    )


def unchanged(desk: Mounted, expected: dict[str, bytes], versions: dict[str, int]) -> None:
    """Check that local files and the service's have the content, and that there is no conflict."""
    desk.sync()
    for name, content in expected.items():
        assert desk.zone.read(name) == content
        assert (desk.root / name).read_bytes() == content
    there = {name for name in desk.zone.listing() if name not in ("docs", "big.bin", "empty")}
    assert there == set(expected)
    assert set(desk.names(desk.root)) == set(desk.zone.listing())
    assert {name: len(desk.zone.versions(name)) for name in versions} == versions
    assert not desk.conflicts()


@pytest.mark.parametrize("edited", [False, True])
def test_a_rename(desk: Mounted, edited: bool) -> None:
    """The file has its new name, on both sides."""
    desk.names(desk.root)
    desk.command("pause")
    (desk.root / "notes.txt").rename(desk.root / "g.txt")
    if edited:
        (desk.root / "g.txt").write_bytes(b"edited")
    wrong_404(desk)
    desk.command("resume")
    content = b"edited" if edited else SERVICE_TEXT
    unchanged(desk, {"g.txt": content}, {"g.txt": 1 + edited})


def test_a_rename_of_a_folder(desk: Mounted) -> None:
    """The folder has its new name."""
    desk.names(desk.root / "docs")
    desk.command("pause")
    (desk.root / "docs").rename(desk.root / "papers")
    wrong_404(desk)
    desk.command("resume")
    desk.sync()
    assert "papers" in desk.zone.listing()
    assert set(desk.names(desk.root)) == set(desk.zone.listing())


def test_a_file_that_is_written_again(desk: Mounted) -> None:
    """The new file continues the history, without a conflict."""
    desk.names(desk.root)
    desk.command("pause")
    (desk.root / "notes.txt").unlink()
    (desk.root / "notes.txt").write_bytes(b"again")
    wrong_404(desk)
    desk.command("resume")
    unchanged(desk, {"notes.txt": b"again"}, {"notes.txt": 2})


def test_an_exchange(desk: Mounted) -> None:
    """Two files exchange their names."""
    desk.zone.write("other.txt", b"other")
    desk.names(desk.root)
    time.sleep(2)
    desk.names(desk.root)
    desk.command("pause")
    (desk.root / "notes.txt").rename(desk.root / "third")
    (desk.root / "other.txt").rename(desk.root / "notes.txt")
    (desk.root / "third").rename(desk.root / "other.txt")
    wrong_404(desk)
    desk.command("resume")
    unchanged(desk, {"notes.txt": b"other", "other.txt": SERVICE_TEXT}, {"notes.txt": 1})


@pytest.mark.parametrize("local_only", [False, True])
def test_a_backup_of_content_that_is_not_cached(desk: Mounted, local_only: bool) -> None:
    """The renamed file has the former content, and the new one continues the history."""
    desk.names(desk.root)
    desk.command("pause")
    backup = "notes.txt~" if local_only else "notes.bak"
    (desk.root / "notes.txt").rename(desk.root / backup)
    (desk.root / "notes.txt").write_bytes(b"new")
    wrong_404(desk, "/content", times=2)
    desk.command("resume")
    desk.sync()
    assert (desk.root / backup).read_bytes() == SERVICE_TEXT
    assert desk.zone.read("notes.txt") == b"new"
    assert len(desk.zone.versions("notes.txt")) == 2
    assert not desk.conflicts()


@pytest.mark.parametrize("name", ["docs", "report.md"])
def test_a_server_that_lags_behind(desk: Mounted, name: str) -> None:
    """The server does not know a new folder and its file; the rename is sent as soon as it does."""
    there = f"docs/{name}" if name != "docs" else name
    desk.names(desk.root / "docs")
    desk.command("pause")
    (desk.root / there).rename(desk.root / f"{there} 2")
    before = desk.zone.entry_id(there)
    folder = desk.zone.entry_id("docs")
    for path in (f"/files/{before}$", f"/folder/{folder}$"):
        desk.deployment.fault(status=404, error="UNKNOWN_FILE", method="GET", path=path, times=1)
    desk.command("resume")
    desk.sync()
    assert desk.zone.entry_id(f"{there} 2") == before
    assert f"{name} 2" in desk.names((desk.root / there).parent)


def test_a_server_that_never_finds_a_listed_file(desk: Mounted) -> None:
    """The user is told of the failure, and the change is retried with pauses until it succeeds."""
    desk.names(desk.root)
    desk.allow("lists the entry")
    wrong_404(desk, times=10**6)
    (desk.root / "notes.txt").rename(desk.root / "g.txt")
    assert desk.try_sync(desk.root / "g.txt", seconds=60) == 1
    time.sleep(600)
    (pending,) = desk.status()["uploads"]
    assert "the service lists the entry, but answers that it does not exist" in pending["error"]
    requests = virtual(desk).deployment.world.requests
    time.sleep(600)
    assert len(requests) < 600
    desk.deployment.heal()
    unchanged(desk, {"g.txt": SERVICE_TEXT}, {"g.txt": 1})


@pytest.mark.parametrize("name", ["docs", "docs/report.md"])
def test_a_real_deletion(desk: Mounted, name: str) -> None:
    """A file that was deleted by a coworker, alone or with its folder, is gone on both sides."""
    desk.names(desk.root / "docs")
    desk.command("pause")
    (desk.root / "docs/report.md").rename(desk.root / "docs/renamed.md")
    desk.zone.delete(name)
    desk.command("resume")
    desk.sync()
    time.sleep(2)
    assert (desk.root / name).name not in desk.names((desk.root / name).parent)
    assert not (desk.root / "docs/renamed.md").exists()
    assert set(desk.names(desk.root)) == set(desk.zone.listing())
