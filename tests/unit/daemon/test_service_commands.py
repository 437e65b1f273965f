"""Lookup of zones by the names that a person gives."""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from zonedrive.daemon import service_commands
from zonedrive.errors import AlreadyExists, BadAnswer, NotFound, Unreachable, ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.secrets import FileStore, Secret
from zonedrive.model import Member, Zone
from zonedrive.paths import AccountPaths

ZONES = [Zone("1", "Board", "r1"), Zone("2", "a/b", "r2"), Zone("3", "Twin", "r3"),
         Zone("4", "Twin", "r4"), Zone("5", "1", "r5")]  # fmt: skip


def test_a_zone_is_found_by_id_name_and_folder(paths: AccountPaths) -> None:
    """The id counts before the name; the folder is known before the first mount."""
    folder = next(
        str(one["path"]) for one in service_commands.zone_objects(ZONES, {}) if one["id"] == "2"
    )
    assert folder != "a/b"
    for wanted, zone_id in (("Board", "1"), ("1", "1"), ("a/b", "2"), (folder, "2"), ("3", "3")):
        assert service_commands.chosen(paths, ZONES, wanted).id == zone_id


def test_unknown_and_ambiguous_zones(paths: AccountPaths) -> None:
    """The error says where the names are listed, or the ids if several zones have the name."""
    with pytest.raises(NotFound, match="no zone 'board'") as missing:
        service_commands.chosen(paths, ZONES, "board")
    assert missing.value.remedy == "run 'zonedrive zones --account work'"
    with pytest.raises(ZonedriveError, match="several zones") as several:
        service_commands.chosen(paths, ZONES, "Twin")
    assert several.value.line().endswith("; give an id: 3, 4")


def test_a_member_is_found_by_an_id_in_another_case(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`members add` refuses a member, and does not set the level that the member then has."""
    levels = {"bob@acme.example": "Modify"}

    class Service:
        profile = SimpleNamespace(operation=lambda _name: None)

        async def zones(self) -> list[Zone]:
            return ZONES

        async def members(self, _zone_id: str) -> list[Member]:
            return [Member(each, "User", "Bob", level) for each, level in levels.items()]

        async def set_member(self, _zone_id: str, member_id: str, level: str) -> None:
            levels[member_id.lower()] = level

        async def remove_member(self, _zone_id: str, member_id: str) -> None:
            del levels[member_id]

    monkeypatch.setattr(service_commands, "ask", lambda _paths, work: trio.run(work, Service()))
    change = partial(service_commands.change_member, paths, "Board", "BOB@acme.example")
    with pytest.raises(AlreadyExists, match="is a member of 'Board' already"):
        change("Add", new=True)
    assert levels == {"bob@acme.example": "Modify"}
    assert change("Add") == "bob@acme.example" and levels == {"bob@acme.example": "Add"}
    assert change(None) == "bob@acme.example" and not levels


def test_a_members_name_counts_before_an_id_in_another_case(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, `members remove` removes another member than the one of this name."""
    found = [Member("alice", "User", "Alice Smith", "Add"), Member("u2", "User", "Alice", "Add")]
    removed: list[str] = []

    class Service:
        profile = SimpleNamespace(operation=lambda _name: None)

        async def zones(self) -> list[Zone]:
            return ZONES

        async def members(self, _zone_id: str) -> list[Member]:
            return found

        async def remove_member(self, _zone_id: str, member_id: str) -> None:
            removed.append(member_id)

    monkeypatch.setattr(service_commands, "ask", lambda _paths, work: trio.run(work, Service()))
    for who in ("Alice", "alice", "ALICE"):
        service_commands.change_member(paths, "Board", who, None)
    assert removed == ["u2", "alice", "alice"]


class Endless(AbstractContextManager["Endless"]):
    """Download that ends only when it is aborted."""

    def __init__(self) -> None:
        self.aborted = threading.Event()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the download."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield a chunk, and wait."""
        yield b"x"
        self.aborted.wait(5)

    def abort(self) -> None:
        """End the download."""
        self.aborted.set()


def asking(monkeypatch: pytest.MonkeyPatch, download: Any) -> None:
    """Let `ask` pass a service with this download."""
    service = SimpleNamespace(transfer=SimpleNamespace(download=lambda *_, **__: download))
    monkeypatch.setattr(service_commands, "ask", lambda _paths, work: trio.run(work, service))


def test_an_interrupted_download_ends_at_once(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C does not wait until a large version has arrived."""
    download = Endless()
    asking(monkeypatch, download)

    def take(_piece: object) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(BaseExceptionGroup) as interrupted:
        service_commands.version(paths, "z", "f", "1", 0, take)
    assert interrupted.value.subgroup(KeyboardInterrupt)
    assert download.aborted.is_set()


def test_the_error_of_a_download(paths: AccountPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the service or of the disk is raised as it is."""

    def take(_piece: object) -> None:
        raise OSError("full")

    asking(monkeypatch, Endless())
    with pytest.raises(OSError, match="full"):
        service_commands.version(paths, "z", "f", "1", 0, take)


def test_the_user_may_need_longer_to_unlock_the_keyring_than_a_request_may_take(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the command reports a slow service, which it has not even asked."""
    Account(name="work", base_url="https://127.0.0.1:1", username="alice").save(paths)
    FileStore(paths.secrets_file).set("bearer", Secret("good"))
    clock, get = MockClock(autojump_threshold=0), FileStore.get

    def slow(store: FileStore, name: str) -> Secret | None:
        trio.from_thread.run(trio.sleep, 60)
        return get(store, name)

    monkeypatch.setattr(FileStore, "get", slow)
    monkeypatch.setattr(trio, "run", partial(trio.run, clock=clock))
    with pytest.raises(Unreachable) as refused:
        service_commands.zones(paths)
    assert "cannot be reached" in refused.value.message


def test_a_version_that_ends_too_early(
    paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response without a length ends like a complete one if its connection is closed."""

    class Short(Endless):
        def __iter__(self) -> Iterator[bytes]:
            yield b"x"

    taken: list[object] = []
    asking(monkeypatch, Short())
    service_commands.version(paths, "z", "f", "1", 0, taken.append)
    service_commands.version(paths, "z", "f", "1", 1, taken.append)
    with pytest.raises(BadAnswer, match="only 1 of 2 bytes"):
        service_commands.version(paths, "z", "f", "1", 2, taken.append)
