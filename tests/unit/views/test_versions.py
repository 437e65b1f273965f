"""File names of versions, and the histories that are kept."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.unit.sync.account import Account
from tests.unit.sync.way import Way
from zonedrive.model import Version
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inode_table import BATCH
from zonedrive.vfs.caller_policy import CallerPolicy
from zonedrive.views.versions import PATIENCE_S, Versions, extension_of, version_name

MOMENT_NS = 1_763_733_787_000_000_000  # 2025-11-21 14:03:07 UTC


def version(number: str, *, by: str = "ann@acme.example", at_ns: int = MOMENT_NS) -> Version:
    """Return a version with that number, or with that id if it is not a number."""
    return Version(number, f"id of {number}", 1, at_ns, by)


@pytest.mark.parametrize(
    ("file", "told", "name"),
    [
        ("a.odt", version("7"), "00007_2025-11-21T14-03-07Z_ann@acme.example.odt"),
        ("a.tar.gz", version("12345"), "12345_2025-11-21T14-03-07Z_ann@acme.example.gz"),
        ("a.odt", version("123456"), "123456_2025-11-21T14-03-07Z_ann@acme.example.odt"),
        ("a.odt", version("7", by="", at_ns=0), "00007.odt"),
        ("a.odt", version("7", by="a/b\n"), "00007_2025-11-21T14-03-07Z_a\uff0fb\u240a.odt"),
        # An address would pass for an extension, and this one for that of a program.
        ("Makefile", version("7", by="a@b.com"), "00007_2025-11-21T14-03-07Z_a@b.com_"),
        (".profile", version("7"), "00007_2025-11-21T14-03-07Z_ann@acme.example_"),
        ("a.odt", version("x"), "2025-11-21T14-03-07Z_ann@acme.example~f6570fd7.odt"),
        ("a.odt", version("x", by="", at_ns=0), "version~f6570fd7.odt"),
    ],
)
def test_names(file: str, told: Version, name: str) -> None:
    """A name has number, time, author, and the file's own extension."""
    assert version_name(told, extension_of(file)) == name


def test_a_name_is_never_too_long() -> None:
    """The limit holds for any author that the service reports."""
    authors = ["é" * 300, "é" * 300 + "x"]
    for extension in (".odt", ""):
        names = {version_name(version(n, by=by), extension) for n in "12" for by in authors}
        assert all(len(name.encode()) <= 255 and name.endswith(extension) for name in names)
        assert len({name.partition("_")[0] for name in names}) == 2


def test_names_sort_in_version_order() -> None:
    """The order of names does not depend on the times."""
    names = [version_name(version(str(n), at_ns=MOMENT_NS - n), ".txt") for n in range(1, 20_000)]
    assert names == sorted(names)


async def test_a_file_that_takes_over_another_entry_during_the_request(tmp_path: Path) -> None:
    """The answer is kept as the history of the entry that was asked for."""
    account = Account(tmp_path)
    for name in ("a.txt", "temporary"):
        account.bob.write(name, name.encode())
    async with account.running():
        versions = Versions(account.state, account.service, account.folders, CallerPolicy(()))
        file, replaced = account.at("temporary"), account.at("a.txt")
        asked, taken = (each.entry_id for each in (file, replaced))
        account.save("temporary", b"edited")
        account.meanwhile(r"GET .*/versions", lambda: account.rename("temporary", "a.txt"))
        past = await versions.past(file)
        assert file.entry_id == taken
        assert versions.known(file.zone, asked) is past
        assert versions.known(file.zone, taken) is None


async def test_a_history_is_renewed_by_a_service_that_is_always_slow(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program with an older history waits only a moment, but it gets the newer one later."""
    monkeypatch.setattr(
        "zonedrive.views.versions.since_boot_ns", lambda: int(trio.current_time() * 1e9)
    )
    numbers = iter(range(1, 100))

    async def slow(_zone: str, _file: str) -> list[Version]:
        await trio.sleep(2 * PATIENCE_S - 1)
        return [version(str(next(numbers)))]

    service: Any = SimpleNamespace(versions=slow, link=Way())
    folders: Any = SimpleNamespace(forget=lambda _ino: None)
    state: Any = SimpleNamespace(settings=SimpleNamespace(refresh=0.0))
    versions = Versions(state, service, folders, CallerPolicy(()))
    file: Any = SimpleNamespace(zone="z", remote_id="f", parent=ROOT, revision="r")
    told, waits = list[str](), list[float]()
    for _ in range(4):
        began = trio.current_time()
        told.append((await versions.past(file)).versions[0].version)
        waits.append(trio.current_time() - began)
        await trio.sleep(10 * PATIENCE_S)
    assert told == ["1", "1", "2", "2"]
    assert waits[1] == waits[3] == PATIENCE_S


async def test_programs_continue_while_a_large_folder_is_listed(tmp_path: Path) -> None:
    """Other tasks run after a limited number of files."""
    account, steps = Account(tmp_path, refresh="600"), 0

    async def count() -> None:
        nonlocal steps
        while True:
            await trio.lowlevel.checkpoint()
            steps += 1

    async with account.running(), trio.open_nursery() as nursery:
        state, zone = account.state, account.zone
        fields = {"kind": Kind.FILE, "zone": zone.zone, "remote_parent": zone.remote_id}
        files = {str(each): {**fields, "remote_id": str(each)} for each in range(10 * BATCH)}
        with state.transaction():
            state.inodes.add_all(zone.ino, files)
        folder = Versions(state, account.service, account.folders, CallerPolicy(())).open(zone.ino)
        assert folder is not None
        await folder.children()
        nursery.start_soon(count)
        await trio.lowlevel.checkpoint()
        steps = 0
        assert (await folder.children()).keys() == files.keys()
        assert steps >= 9
        nursery.cancel_scope.cancel()
