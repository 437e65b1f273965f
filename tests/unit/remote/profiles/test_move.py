"""Renaming and moving with one request for each, where a deployment has none for both."""

import msgspec
import pytest

from zonedrive.errors import AlreadyExists, BadAnswer, NotSupported, Unavailable
from zonedrive.model import Entry
from zonedrive.remote.profiles.load import parse_profile
from zonedrive.remote.profiles.move import Mover

RENAME = '[rename]\nmethod = "PUT"\npath = "/api/r/{entry}"\nbody = { name = "{name}" }\n'
MOVE = '[move]\nmethod = "PUT"\npath = "/api/m/{entry}/{parent}"\n'
BOTH = '[move]\nmethod = "PUT"\npath = "/api/m/{entry}/{parent}/{name}"\n'


class Remote:
    """One entry on the service, to be brought to `b` in folder `q`."""

    def __init__(self, text: str) -> None:
        self.entry = Entry(id="e", zone_id="z", parent_id="p", name="a", folder=False)
        self.asked: list[str] = []
        self.fails: dict[str, list[Exception]] = {}
        self.deaf = False
        self._profile = parse_profile(text, "ours", "ours.toml")

    async def bring(self, parent: str = "q", name: str = "b") -> Entry:
        async def change(operation: str) -> Entry:
            self.asked.append(operation)
            if wrong := self.fails.get(operation):
                raise wrong.pop(0)
            combined = self._profile.operations[operation].uses("name") and operation == "move"
            changes = {"name": name} if operation == "rename" or combined else {}
            changes |= {"parent_id": parent} if operation == "move" else {}
            if not self.deaf:
                self.entry = msgspec.structs.replace(self.entry, **changes)
            return self.entry

        async def present() -> Entry:
            return self.entry

        return await Mover(self._profile, change, present).bring(parent, name, False)


async def test_one_request_does_both_where_it_can() -> None:
    """The entry is not even asked for."""
    remote = Remote(BOTH + RENAME)
    entry = await remote.bring()
    assert (entry.parent_id, entry.name, remote.asked) == ("q", "b", ["move"])


@pytest.mark.parametrize(
    ("parent", "name", "asked"),
    [
        ("q", "b", ["rename", "move"]),
        ("p", "b", ["rename"]),
        ("q", "a", ["move"]),
        ("p", "a", []),
    ],
)
async def test_only_the_steps_that_are_left_are_done(
    parent: str, name: str, asked: list[str]
) -> None:
    """What the service has already is not asked for."""
    remote = Remote(MOVE + RENAME)
    entry = await remote.bring(parent, name)
    assert (entry.parent_id, entry.name, remote.asked) == (parent, name, asked)


async def test_a_second_attempt_does_the_rest() -> None:
    """Renamed, then the service failed: the next attempt only moves."""
    remote = Remote(MOVE + RENAME)
    remote.fails["move"] = [Unavailable("not now")]
    with pytest.raises(Unavailable):
        await remote.bring()
    entry = await remote.bring()
    assert (entry.parent_id, entry.name) == ("q", "b")
    assert remote.asked == ["rename", "move", "move"]


async def test_a_name_that_is_taken_on_the_way_is_gone_around() -> None:
    """Somebody has the new name in the former folder: so it is moved first."""
    remote = Remote(MOVE + RENAME)
    remote.fails["rename"] = [AlreadyExists("taken")]
    entry = await remote.bring()
    assert (entry.parent_id, entry.name) == ("q", "b")
    assert remote.asked == ["rename", "move", "rename"]


@pytest.mark.parametrize("text", [MOVE, RENAME, ""])
async def test_half_a_move_is_not_begun(text: str) -> None:
    """Without an address for the other half nothing is asked for at all."""
    remote = Remote(text)
    with pytest.raises(NotSupported, match="no endpoint"):
        await remote.bring()
    assert remote.asked == []


async def test_an_answer_that_nothing_follows_is_an_error() -> None:
    """A service that says yes and does nothing is not believed, nor asked for ever."""
    remote = Remote(MOVE + RENAME)
    remote.deaf = True
    with pytest.raises(BadAnswer, match="elsewhere"):
        await remote.bring()
    assert len(remote.asked) == 3
