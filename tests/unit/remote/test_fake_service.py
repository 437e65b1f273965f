"""The service in memory behaves like the sandbox through the HTTP implementation.

Both get the same calls.  The test compares entries (with their own identifiers), contents, and the
type, status and code of errors.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.fake_service import FakeService, World
from tests.unit.remote.test_real_service import opened
from zonedrive.errors import RemoteError, ZonedriveError
from zonedrive.model import Entry, Version
from zonedrive.remote.service import Service
from zonedrive.sandbox.zones import Level

pytestmark = pytest.mark.usefixtures("no_pauses")

LEVELS = {"alice": Level.MANAGE, "bob": Level.MODIFY, "carol": Level.ADD}
NAMES = ["a.txt", "b", "c.tar.gz", ".hidden", "naïve ✓.md"]


@dataclass
class Side:
    """One of the two services: a connection per user, and the entries by number."""

    people: dict[str, Service]
    fault: Callable[..., object]
    heal: Callable[[], object]
    zone: str = ""
    ids: list[str] = field(default_factory=list)

    def label(self, entry_id: str) -> int:
        """Return the number of an entry, which both sides share."""
        if entry_id not in self.ids:
            self.ids.append(entry_id)
        return self.ids.index(entry_id)

    def plain(self, found: object) -> object:
        """Return a result without the parts that differ between two services."""
        match found:
            case Entry():
                above = found.parent_id
                place = above in self.ids and self.label(above), self.label(found.id)
                what = found.name, found.folder, found.size, found.modified_by, found.type
                return place, what, found.attributes, found.deleted, found.unsure
            case Version():
                return found.version, found.size, found.modified_by
            case list() | tuple():
                return [self.plain(each) for each in found]
            case int():
                return bool(found)
            case _:
                return found

    async def outcome(self, call: Callable[["Side"], Awaitable[object]]) -> object:
        """Return the result of a call, or its error."""
        try:
            return self.plain(await call(self))
        except RemoteError as wrong:
            return type(wrong).__name__, wrong.status, wrong.code
        except ZonedriveError as wrong:
            return type(wrong).__name__


Call = Callable[[Side], Awaitable[object]]


@asynccontextmanager
async def both(
    deployment: Deployment, zone: str, profile: str = "sandbox"
) -> AsyncIterator[tuple[Side, Side]]:
    """Yield the sandbox and the service in memory, each with an empty folder as entry 0."""
    real_people = {name: opened_as(deployment, name, profile) for name in LEVELS}
    real = Side(dict(real_people), deployment.fault, deployment.heal)
    there = deployment.person("alice").zone(zone)
    there.make_folder("start")
    real.zone, real.ids = there.id, [there.entry_id("start")]
    made = World()
    levels = {f"{name}@{world.DOMAIN}": level for name, level in LEVELS.items()}
    zone_id = made.add_zone(zone, levels)
    start = made.make_folder(zone_id, made.zones[zone_id].root_id, "start", next(iter(levels)))
    fakes = {name: FakeService(made, f"{name}@{world.DOMAIN}", profile) for name in LEVELS}
    fake = Side(dict(fakes), made.fault, made.heal, zone_id, [start.id])
    try:
        yield real, fake
    finally:
        deployment.heal()
        for service in real_people.values():
            await service.aclose()


def opened_as(deployment: Deployment, name: str, profile: str) -> Service:
    """Return the HTTP implementation for a person."""
    bearer = deployment.person(name).authorization
    return opened(deployment, profile, bearer)


def read(person: str, number: int, version: str | None, offset: int, end: int | None) -> Call:
    """Return the download of a range."""

    async def call(side: Side) -> object:
        transfer = side.people[person].transfer

        def work() -> tuple[bytes, int, int | None]:
            with transfer.download(
                side.zone, side.ids[number], offset=offset, end=end, version=version
            ) as download:
                return b"".join(download), download.offset, download.total

        data, start, total = await trio.to_thread.run_sync(work)
        return f"{data!r} {start} {total}"

    return call


def store(person: str, number: int, name: str, data: bytes) -> Call:
    """Return an upload in a thread."""

    async def call(side: Side) -> object:
        upload, folder = side.people[person].transfer.upload, side.ids[number]
        return await trio.to_thread.run_sync(upload, side.zone, folder, name, [data], len(data))

    return call


async def call_of_trash(side: Side, person: str) -> object:
    """Return the trash entries that the comparison has created."""
    found = await side.people[person].deletions(side.zone)
    return [entry for entry, moment in found if entry.id in side.ids and moment]


def any_call(chance: random.Random, entries: int) -> tuple[str, Call]:
    """Return one call that both services get, and its description."""
    person = chance.choice(list(LEVELS) + ["alice"] * 4)
    number, other = chance.randrange(entries), chance.randrange(entries)
    name, data = chance.choice(NAMES), chance.randbytes(chance.choice((0, 5, 3000)))
    offset, end = chance.choice((0, 2)), chance.choice((None, 3))
    version = chance.choice((None, None, "1", "2"))
    of = {
        "listing": lambda s: s.people[person].listing(s.zone, s.ids[number]),
        "entry": lambda s: s.people[person].entry(s.zone, s.ids[number]),
        "content": lambda s: s.people[person].content(s.zone, s.ids[number], 2000),
        "read": read(person, number, version, offset, end),
        "upload": lambda s: s.people[person].upload(s.zone, s.ids[number], name, data),
        "store": store(person, number, name, data),
        "upload to the folder": lambda s: s.people[person].upload(s.zone, s.ids[0], name, data),
        "make": lambda s: s.people[person].make_folder(s.zone, s.ids[number], name),
        "move": lambda s: s.people[person].move(s.zone, s.ids[number], s.ids[other], name),
        "delete": lambda s: s.people[person].delete(s.zone, s.ids[number]),
        "restore": lambda s: s.people[person].restore(s.zone, s.ids[number]),
        "purge": lambda s: s.people[person].purge(s.zone, s.ids[number]),
        "versions": lambda s: s.people[person].versions(s.zone, s.ids[number]),
        "trash": lambda s: call_of_trash(s, person),
    }  # fmt: skip
    what = chance.choice(list(of))
    if what in ("delete", "purge") and number == 0:
        what = "entry"  # without the folder nothing is left to compare
    return f"{person}: {what} {number} {other} {name!r} {len(data)} {version}", of[what]


@pytest.mark.parametrize("profile", ["sandbox", "published"])
@pytest.mark.parametrize("seed", range(2))
async def test_random_calls(deployment: Deployment, zone: str, profile: str, seed: int) -> None:
    """Results and errors are equal, call by call."""
    chance = random.Random(seed)
    async with both(deployment, zone, profile) as (real, fake):
        for number in range(120):
            what, call = any_call(chance, len(real.ids))
            wanted, found = await real.outcome(call), await fake.outcome(call)
            assert found == wanted, (number, what)
            assert len(fake.ids) == len(real.ids)


CALLS: dict[str, Call] = {
    "listing": lambda s: s.people["alice"].listing(s.zone, s.ids[0]),
    "upload": lambda s: s.people["alice"].upload(s.zone, s.ids[0], "a.txt", b"abc"),
    "store": store("alice", 0, "a.txt", b"abc" * 100),
    "make": lambda s: s.people["alice"].make_folder(s.zone, s.ids[0], "folder"),
    "move": lambda s: s.people["alice"].move(s.zone, s.ids[1], s.ids[0], "new name"),
    "delete": lambda s: s.people["alice"].delete(s.zone, s.ids[1]),
    "read": read("alice", 1, None, 0, None),
}
FAULTS: dict[str, dict[str, object]] = {
    "drop_reply": {"drop_reply": True},
    "down": {"down": True},
    **{str(status): {"status": status} for status in (401, 403, 408, 423, 502, 503, 507)},
    "LOCKED": {"status": 409, "error": "LOCKED"},
    "cut": {"cut_after": 40},
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_faults(deployment: Deployment, zone: str, fault: str) -> None:
    """Each kind of fault ends each kind of call with the same error, effect and connectivity."""
    async with both(deployment, zone) as (real, fake):
        for side in (real, fake):
            await store("alice", 0, "old.txt", b"content of the file" * 10)(side)
            await side.outcome(CALLS["listing"])
        for what, call in CALLS.items():
            if fault == "cut" and what != "read":
                continue  # what counts as sent, and the sizes of heads, are not specified
            if fault in ("408", "502") and what == "store":
                continue  # the answer may come before or after the end of the body
            seen = []
            for side in (real, fake):
                side.fault(**FAULTS[fault])
                outcome = await side.outcome(call)
                state = side.people["alice"].link.state
                side.heal()
                side.people["alice"].link.note_answer()
                listed = await side.outcome(CALLS["listing"])
                seen.append((outcome, state, listed))
            assert seen[1] == seen[0], what


async def test_an_answer_that_is_held_back(deployment: Deployment, zone: str) -> None:
    """A stall comes after the effect, a delay before it, and the end of the faults ends both."""
    async with both(deployment, zone) as (real, fake):
        for side in (real, fake):
            for delay, has_effect in (({"stall": 300}, True), ({"latency_ms": 300_000}, False)):
                side.fault(method="POST", times=1, **delay)
                results: list[object] = []
                listing = side.people["bob"].listing
                before = len(await listing(side.zone, side.ids[0]))

                async def create(side: Side = side, results: list[object] = results) -> None:
                    name = f"new {len(side.ids)}"
                    found = await side.people["alice"].make_folder(side.zone, side.ids[0], name)
                    results.append(side.label(found.id))

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(create)
                    await trio.testing.wait_all_tasks_blocked(0.2)
                    after = len(await listing(side.zone, side.ids[0]))
                    assert (after > before) is has_effect
                    assert not results
                    side.heal()
                assert results
