"""A coworker moves, renames or saves a file that is saved here: the client plans the change
again; see also in_process/test_changed_meanwhile.py."""

import json
import os

import pytest

from tests.harness.fault_proxy import Answer, Asked, FaultProxy
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.posix import calls


@pytest.mark.parametrize("reply", ["comes", "is lost"])
def test_a_version_that_reaches_another_file_of_the_name(
    proxy: FaultProxy, proxied: Mounted, reply: str
) -> None:
    """If a coworker renames the file during the upload, the version exists once and is reported."""
    proxied.allow("renamed by a coworker during the upload", "reply")
    zone, root = proxied.zone, proxied.root
    before = (root / "notes.txt").read_bytes()
    renamed: list[str] = []

    def rename(asked: Asked) -> None:
        if asked.method != "POST" or "/files/" not in asked.path or renamed:
            return
        renamed.append(asked.path)
        zone.move("notes.txt", "docs/notes.txt")
        zone.move("docs/report.md", "notes.txt")
        if reply == "is lost":
            proxied.deployment.fault(drop_reply=True, method="POST", times=1)

    proxy.alter_request = rename
    (root / "notes.txt").write_bytes(b"Alice's words\n")
    proxied.sync()
    assert renamed
    contents = {path: zone.read(path) for path in ("notes.txt", "docs/notes.txt")}
    assert contents == {"notes.txt": b"Alice's words\n", "docs/notes.txt": before}
    assert (len(zone.versions("notes.txt")), len(zone.versions("docs/notes.txt"))) == (2, 1)
    (conflict,) = json.loads(proxied.machine.done("conflicts", "--json"))
    assert conflict["path"].endswith(f"{root.name}/notes.txt")
    eventually(
        lambda: {path: (root / path).read_bytes() for path in contents} == contents,
        what="each file shows what the service has of it",
    )


def test_a_file_removed_just_before_its_version_is_sent(
    proxy: FaultProxy, proxied: Mounted
) -> None:
    """The version becomes a new file on the service, and the only one with its name here."""
    proxied.allow("deleted on the service during the upload")
    zone, root = proxied.zone, proxied.root
    assert (root / "notes.txt").read_bytes()
    removed: list[str] = []

    def remove(asked: Asked) -> None:
        if asked.method == "POST" and "/files/" in asked.path and not removed:
            removed.append(zone.entry_id("notes.txt"))
            zone.delete("notes.txt")

    proxy.alter_request = remove
    (root / "notes.txt").write_bytes(b"Alice's words\n")
    proxied.sync()
    assert zone.read("notes.txt") == b"Alice's words\n"
    assert [zone.entry_id("notes.txt")] != removed
    (conflict,) = json.loads(proxied.machine.done("conflicts", "--json"))
    assert conflict["path"].endswith(f"{root.name}/notes.txt")
    (root / "notes.txt").write_bytes(b"Alice's next words\n")
    proxied.sync()
    assert zone.read("notes.txt") == b"Alice's next words\n"
    assert set(os.listdir(root)) == set(zone.listing())
    assert len(zone.versions("notes.txt")) == 2


def test_no_temporary_name_stays_on_the_service(proxy: FaultProxy, proxied: Mounted) -> None:
    """No temporary name stays on the service if a coworker saves during an exchange and a
    removal."""
    proxied.allow("newer version on the service", "answer", "offline", "reach")
    zone, root = proxied.zone, proxied.root
    paths = {zone.entry_id(path): path for path in ("notes.txt", "docs/report.md")}
    os.listdir(root / "docs")
    told: list[str] = []

    def stop(asked: Asked) -> None:
        if asked.method == "PUT":
            told.append(asked.path)
            if len(told) > 1:
                asked.path = "/api/nowhere"
                asked.method = "GET"

    def fail(answer: Answer) -> None:
        """Answer the stopped requests with 503, also those that were on their way at the end."""
        if b"/api/nowhere" in answer.body:
            answer.status = 503

    proxy.alter_request, proxy.alter, proxy.about = (
        stop,
        fail,
        lambda asked: True,
    )
    calls.renameat2(root / "notes.txt", root / "docs" / "report.md", calls.EXCHANGE)

    def aside() -> dict[str, str]:
        found = {**zone.listing(), **{f"docs/{k}": v for k, v in zone.listing("docs").items()}}
        return {path: one["id"] for path, one in found.items() if ".zonedrive-" in path}

    ((path, known),) = eventually(aside, what="one steps aside").items()
    zone.write(path, b"Bob's words\n")
    here = {"notes.txt": "docs/report.md", "docs/report.md": "notes.txt"}[paths[known]]
    (root / here).unlink()
    proxy.alter_request = lambda asked: None
    proxied.sync()
    assert aside() == {}
    found = {**zone.listing(), **{f"docs/{k}": v for k, v in zone.listing("docs").items()}}
    (kept,) = [path for path, one in found.items() if one["id"] == known]
    assert zone.read(kept) == b"Bob's words\n"


def test_an_upload_waits_for_an_exchange_of_names(proxy: FaultProxy, proxied: Mounted) -> None:
    """If another machine exchanges the names of two files, the upload waits for the new name."""
    zone, root = proxied.zone, proxied.root
    assert (root / "notes.txt").read_bytes()
    moved: list[str] = []

    def move_on() -> None:
        if not moved:
            moved.append("other.txt")
            zone.move(".zonedrive-9-9", "other.txt")

    proxy.alter_request = lambda asked: move_on() if asked.method == "POST" else None
    with (root / "notes.txt").open("ab") as file:
        file.write(b"third line\n")
        zone.move("notes.txt", ".zonedrive-9-9")
    eventually(lambda: moved or "planned again" in proxied.log(), what="it is looked at")
    move_on()
    proxied.sync()
    assert zone.read("other.txt").endswith(b"third line\n")
    assert not any(name.startswith(".zonedrive") for name in zone.listing())
    assert (root / "other.txt").read_bytes().endswith(b"third line\n")
