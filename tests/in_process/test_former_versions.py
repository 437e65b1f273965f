"""Former versions of a file: programs that have one open, and the folder `.versions`."""

import os
import stat
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from tests.harness.machine import Mounted
from tests.in_process.test_conflicts import collide, copies
from tests.in_process.test_entry_states import virtual

pytestmark = pytest.mark.mount("settle=0", "refresh=1")


@pytest.mark.parametrize("own", [b"short", b"longer than the former version\n" * 9])
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
def test_a_version_of_another_program_stays_readable(desk: Mounted, own: bytes, name: str) -> None:
    """A program has the file open while another one saves it, and then a coworker."""
    path, theirs = desk.root / name, b"their version"
    if name == "new.txt":
        path.write_bytes(b"the first of two versions here")
    with path.open("rb", buffering=0) as reader:
        reader.read(1)
        path.write_bytes(own)
        desk.sync()
        desk.zone.write(name, theirs)
        time.sleep(5)
        assert path.read_bytes() == theirs
        reader.seek(0)
        assert reader.read(1000) == own


def test_virtual_entries_belong_to_the_user_alone(desk: Mounted) -> None:
    """Their modes give nothing to group and others, and a copy of a version can be changed.

    cp(1) gives a copy the mode of the original.
    """
    (desk.root / "notes.txt").write_bytes(b"the second version\n")
    desk.sync()
    top = desk.root.parent
    histories = desk.root / ".versions"
    history = histories / "notes.txt"
    trash = top / f".Trash-{os.getuid()}"
    (desk.root / "docs/report.md").rename(trash / "files/report.md")
    (trash / "info/report.md.trashinfo").write_bytes(b"[Trash Info]\n")
    found = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in (
            histories, history, *history.iterdir(),
            trash, *trash.rglob("*"),
            top / ".xdg-volume-info",
        )
    }  # fmt: skip
    assert {"report.md", "report.md.trashinfo"} <= {path.name for path in found}
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    assert {found[version] for version in history.iterdir()} == {0o600}


def versions_during(desk: Mounted, change: Callable[[], Awaitable[object]]) -> Any:
    """Return the answer about the versions of notes.txt; `change` runs during the request."""
    client, answers = virtual(desk).client, list[Any]()
    versions = partial(client.command, "versions", path=f"{desk.root.name}/notes.txt")

    async def ask() -> None:
        answers.append(await client.call(versions))

    async def ask_and_change() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1)
            await change()

    with desk.deployment.faulty(stall=5, method="GET", path="/versions"):
        virtual(desk).loop.run(ask_and_change)
    (answer,) = answers
    return answer


def test_versions_of_a_file_that_takes_over_another_entry(desk: Mounted) -> None:
    """The versions and the entry id of one answer belong together.

    Otherwise a restore of one of the versions would be requested for the other entry.
    """
    desk.zone.write("other.txt", b"another file\n")
    time.sleep(5)
    for name in ("notes.txt", "other.txt"):
        (desk.root / name).read_bytes()
    desk.command("pause")
    (desk.root / "notes.txt").write_bytes(b"edited\n")
    entry, kernel = desk.zone.entry_id("notes.txt"), virtual(desk).client.kernel
    old, new = str(desk.root / "notes.txt"), str(desk.root / "other.txt")
    answer = versions_during(desk, lambda: kernel.rename(old, new))
    assert answer["file"] == entry


def test_versions_of_a_file_that_a_coworker_deletes(desk: Mounted) -> None:
    """The answer names the entry whose versions the service has listed."""
    desk.names(desk.root)
    entry, kernel = desk.zone.entry_id("notes.txt"), virtual(desk).client.kernel

    async def delete() -> None:
        desk.zone.delete("notes.txt")
        await trio.sleep(2)
        assert "notes.txt" not in await kernel.listdir(str(desk.root))

    assert versions_during(desk, delete)["file"] == entry


def test_a_change_of_a_conflict_copy_that_waits_is_not_among_the_versions(desk: Mounted) -> None:
    """`zonedrive versions` and `zonedrive history` say so, as for other files."""
    collide(desk)
    (copy,) = copies(desk)
    path = f"{desk.root.name}/{copy}"
    assert desk.command("versions", path=path)["aside"] == ""
    assert not desk.command("place", path=path)["waits"]
    desk.command("pause")
    (desk.root / copy).write_bytes(b"edited\n")
    assert desk.command("versions", path=path)["aside"]
    assert desk.command("place", path=path)["waits"]
