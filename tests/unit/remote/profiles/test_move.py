"""Renaming and moving with one request for each, where a deployment has none for both."""

import json

import httpx
import pytest

from tests.unit.remote.conftest import Stage
from zonedrive.errors import BadAnswer, NotSupported, Unavailable
from zonedrive.model import Entry
from zonedrive.remote.profiles.load import parse_profile

RENAME = '[rename]\nmethod = "PUT"\npath = "/api/r/{entry}"\nbody = { name = "{name}" }\n'
MOVE = '[move]\nmethod = "PUT"\npath = "/api/m/{entry}/{parent}"\n'
BOTH = '[move]\nmethod = "PUT"\npath = "/api/m/{entry}/{parent}/{name}"\n'


class Remote:
    """One entry on the service, to be brought to `b` in folder `q`."""

    def __init__(self, text: str) -> None:
        self.entry = {"id": "e", "zoneId": "z", "parentId": "p", "name": "a", "folder": False,
                      "size": 1}  # fmt: skip
        self.asked: list[str] = []
        self.fails: dict[str, list[int]] = {}  # statuses
        self.deaf = False
        self.lacks: tuple[str, ...] = ()  # answers without parentId
        self._service = Stage().service(self._answer)
        self._service.profile = parse_profile(text, "ours", "ours.toml")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        _, _, kind, _, *parent = request.url.path.split("/")
        operation = "entry"
        if parent[:1] == ["folder"]:
            return httpx.Response(200, json=[self.entry] * (parent[1] == self.entry["parentId"]))
        if kind != "zones":
            operation = {"r": "rename", "m": "move"}[kind]
            self.asked.append(operation)
            if statuses := self.fails.get(operation):
                return httpx.Response(statuses.pop(0))
            changes = {"parentId": parent[0]} if parent else {}
            changes |= {"name": parent[1]} if len(parent) == 2 else {}
            changes |= json.loads(request.content or b"{}")
            if not self.deaf:
                self.entry |= changes
        answer = {key: value for key, value in self.entry.items() if key != "parentId"}
        return httpx.Response(200, json=answer if operation in self.lacks else self.entry)

    async def bring(self, parent: str = "q", name: str = "b") -> Entry:
        return await self._service.move("z", "e", parent, name, folder=False)


async def test_one_request_does_both_where_it_can() -> None:
    """No other request is sent."""
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
    remote = Remote(MOVE + RENAME)
    entry = await remote.bring(parent, name)
    assert (entry.parent_id, entry.name, remote.asked) == (parent, name, asked)


@pytest.mark.parametrize(
    "lacks", [("rename",), ("move",), ("rename", "move"), ("rename", "move", "entry")]
)
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize(("parent", "name"), [("q", "b"), ("p", "b"), ("q", "a"), ("p", "a")])
async def test_an_answer_without_the_folder(
    lacks: tuple[str, ...], taken: bool, parent: str, name: str
) -> None:
    """An answer that lacks `parentId` does not mean that the entry is in its new folder."""
    remote = Remote(MOVE + RENAME)
    remote.lacks = lacks
    if taken and (parent, name) == ("q", "b"):
        remote.fails["rename"] = [409]
    entry = await remote.bring(parent, name)
    assert (entry.parent_id, entry.name) == (parent, name)
    assert (remote.entry["parentId"], remote.entry["name"]) == (parent, name)


async def test_a_second_attempt_does_the_rest() -> None:
    """After a rename and a failed move, the next attempt only moves."""
    remote = Remote(MOVE + RENAME)
    remote.fails["move"] = [503]
    with pytest.raises(Unavailable):
        await remote.bring()
    entry = await remote.bring()
    assert (entry.parent_id, entry.name) == ("q", "b")
    assert remote.asked == ["rename", "move", "move"]


async def test_a_name_that_is_taken_on_the_way_is_gone_around() -> None:
    """If the old folder has an entry with the new name, the move comes first."""
    remote = Remote(MOVE + RENAME)
    remote.fails["rename"] = [409]
    entry = await remote.bring()
    assert (entry.parent_id, entry.name) == ("q", "b")
    assert remote.asked == ["rename", "move", "rename"]


@pytest.mark.parametrize("text", [MOVE, RENAME, ""])
async def test_half_a_move_is_not_begun(text: str) -> None:
    """If one of two operations is missing, no request is sent."""
    remote = Remote(text)
    with pytest.raises(NotSupported, match="no endpoint"):
        await remote.bring()
    assert remote.asked == []


async def test_an_answer_that_nothing_follows_is_an_error() -> None:
    """A service that accepts the change without effect causes an error after three attempts."""
    remote = Remote(MOVE + RENAME)
    remote.deaf = True
    with pytest.raises(BadAnswer, match="elsewhere"):
        await remote.bring()
    assert len(remote.asked) == 3
