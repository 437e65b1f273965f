"""Tolerant parsing of the service's JSON: a malformed member does not affect the rest."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonedrive.errors import BadAnswer
from zonedrive.model import Attributes, Entry
from zonedrive.remote.profiles.operations import VERSION_FIELDS
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire.fields import moment, parse

SECOND = 10**9
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FULL = (
    b'{"id":"a1","zoneId":"z","parentId":"p","name":"A.txt","displayName":"A","properName":"A",'
    b'"folder":false,"deleted":false,"size":12,"type":"TXT","lastModified":'
    b'"2021-02-03T04:05:06.789+0100","lastModifiedBy":"alice@acme.example",'
    b'"synchronizationStatus":"NotSynchronizing","attributes":{"executable":true,"hidden":true,'
    b'"readProtected":true,"synchronize":true,"writeProtected":true},"new":{"member":[1]}}'
)


def listed(body: bytes) -> list[Entry]:
    """Return the entries of a listing."""
    return wire.Listed(
        wire.raw_items(body, "listing"), "listing", zone_id="z", parent_id="p"
    ).entries()


def test_a_whole_entry() -> None:
    """All published members are parsed; unpublished ones are ignored."""
    (entry,) = listed(b"[" + FULL + b"]")
    assert entry.id == "a1"
    assert (entry.zone_id, entry.parent_id, entry.name) == ("z", "p", "A.txt")
    assert entry.size == 12
    assert entry.modified_ns == 1612321506789000000
    assert entry.modified_by == "alice@acme.example"
    assert (entry.type, entry.sync) == ("TXT", "NotSynchronizing")
    assert entry.attributes == Attributes(True, True, True, True, True)
    assert not entry.folder
    assert not entry.deleted


@pytest.mark.parametrize(
    "member",
    [
        "zoneId",
        "parentId",
        "size",
        "type",
        "lastModified",
        "lastModifiedBy",
        "synchronizationStatus",
        "attributes",
        "folder",
        "deleted",
    ],
)
def test_a_malformed_member_does_not_affect_others(member: str) -> None:
    """A null, missing or mistyped member gets a harmless value, and the entry is kept."""
    for value in ("null", "[]", "{}", '"x"', "-5", "1.5", "true", "1e999"):
        body = f'[{{"id":"a","name":"n","{member}":{value}}},{{"id":"b","name":"m"}}]'.encode()
        found = listed(body)
        if (member, value) == ("deleted", "true"):
            assert [entry.id for entry in found] == ["b"]
            continue
        assert [entry.id for entry in found] == ["a", "b"], value
        assert found[0].size in (0, 1), value
        assert found[1].zone_id == "z"
        assert found[1].parent_id == "p"


@pytest.mark.parametrize(
    "item",
    ["null", "5", "[]", "{}", '{"name":"a"}', '{"id":null,"name":"a"}', '{"id":"","name":"a"}',
     '{"id":{},"name":"a"}', '{"id":true,"name":"a"}'],
)  # fmt: skip
def test_an_item_without_id_does_not_hide_its_neighbours(
    item: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other entries are listed, and the log reports once that an item was skipped."""
    body = f'[{item},{{"id":"b","name":"m"}}]'.encode()
    with caplog.at_level(logging.WARNING):
        found = listed(body)
    assert [entry.id for entry in found] == ["b"]
    assert [record.getMessage() for record in caplog.records] == ["listing: 1 items have no id"]


@pytest.mark.parametrize(
    "item", ['{"id":"a","name":""}', '{"id":"a"}', '{"id":"a","name":null}', '{"id":"a","name":{}}']
)
def test_an_entry_without_a_name_is_there(item: str, caplog: pytest.LogCaptureFixture) -> None:
    """An entry without a name has content like any other, so it is kept with an empty name."""
    body = f'[{item},{{"id":"b","name":"m"}}]'.encode()
    found = listed(body)
    assert [(entry.id, entry.name) for entry in found] == [("a", ""), ("b", "m")]
    assert caplog.records == []
    with pytest.raises(BadAnswer, match="lacks"):
        wire.one_entry(parse(item.encode(), "x"), "x", zone_id="z")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"null", b'"text"', b'[{"id":"a"', b"<html>", b"\xff", b"[" * 100_000, b"[1,]"],
)
def test_a_malformed_listing_is_an_error(body: bytes) -> None:
    """A truncated or foreign answer is an error instead of an empty folder."""
    with pytest.raises(BadAnswer):
        listed(body)


def test_half_a_character_in_a_name_is_survived() -> None:
    """A name that the service cut inside an emoji leaves its folder readable."""
    body = b'[{"id":"a","name":"cut \\ud83d"},{"id":"b","name":"whole \\ud83d\\ude00"}]'
    found = listed(body)
    assert [entry.name for entry in found] == ["cut \ufffd", "whole \U0001f600"]
    for entry in found:
        entry.name.encode()


@given(st.dictionaries(st.sampled_from(list(wire.WireEntry.__struct_encode_fields__)), JSON), JSON)
def test_no_entry_breaks_the_reader(members: dict[str, object], other: object) -> None:
    """With any members, numbers fit the database and texts can be encoded in UTF-8."""
    for entry in listed(json.dumps([members | {"id": "a", "name": "n"}, other]).encode()):
        assert 0 <= entry.size < 2**63
        assert 0 <= entry.modified_ns < 2**63
        "".join((entry.name, entry.modified_by, entry.revision, entry.type)).encode()


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T00:00:01z", SECOND),
        ("1970-01-01T00:00:01+00:00", SECOND),
        ("1970-01-01T01:00:01+01:00", SECOND),
        ("1970-01-01T01:00:01+0100", SECOND),
        ("1970-01-01T01:00:01+01", SECOND),
        ("1969-12-31T19:00:01-05:00", SECOND),
        ("1970-01-01T00:00:01", SECOND),
        ("1970-01-01 00:00:01", SECOND),
        ("19700101T000001Z", SECOND),
        ("1970-01-01T00:00:01.5Z", SECOND + SECOND // 2),
        ("1970-01-01T00:00:01,123456789Z", SECOND + 123456789),
        ("1970-01-01T00:00:01.1234567891234Z", SECOND + 123456789),
        ("1970-01-01T00:00:01.5+01:00[Europe/Paris]", SECOND // 2 + SECOND - 3600 * SECOND),
        ("1970-01-02", 86400 * SECOND),
        ("1970-01-01T00:02Z", 120 * SECOND),
        ("1970-01-01T00:00:60Z", 60 * SECOND),
        ("9999-12-31T23:59:59Z", 2**63 - 1),
        ("0001-01-01T00:00:00+14:00", 0),
        ("1960-01-01T00:00:00Z", 0),
        ("2021-13-01T00:00:00Z", 0),
        ("2021-01-01T25:00:00Z", 0),
        ("yesterday", 0),
        ("", 0),
        (None, 0),
        (1612321506789, 0),
    ],
)
def test_moments(text: object, nanoseconds: int) -> None:
    """Every common form of ISO 8601 is parsed to the nanosecond, an invalid one gives the epoch."""
    assert moment(text) == max(nanoseconds, 0)


def test_a_stamp_changes_with_every_version_and_with_nothing_else() -> None:
    """Another form of the same time is no new version; another size, time or author is."""

    def revision(moment: str, size: int, author: str, name: str = "n") -> str:
        value = {
            "id": "a", "name": name, "folder": False, "size": size,
            "lastModified": moment, "lastModifiedBy": author,
        }  # fmt: skip
        return wire.one_entry(value, "x", zone_id="z").revision

    first = revision("2021-01-01T00:00:00Z", 1, "a")
    assert first == revision("2021-01-01T01:00:00.000+0100", 1, "a", name="renamed")
    assert first != revision("2021-01-01T00:00:01Z", 1, "a")
    assert first != revision("2021-01-01T00:00:00Z", 2, "a")
    assert first != revision("2021-01-01T00:00:00Z", 1, "b")
    assert revision("odd", 1, "a") != revision("odder", 1, "a")


def test_zones() -> None:
    """-1 is an unknown size; a zone without a root, or closed to the API, cannot be mounted."""
    body = (
        b'[{"id":"1","name":"A","rootId":"r","currentSize":-1,"numberOfUsers":3,'
        b'"createdAt":"1970-01-01T00:00:01Z","ssiAccessible":true},'
        b'{"id":"2","name":"B","rootId":"r","ssiAccessible":false,"currentSize":7},'
        b'{"id":"3","name":"C","numberOfUsers":null},{"name":"D"}]'
    )
    one, two, three = wire.ListedZones(parse(body, "x"), "x").zones
    assert (one.size, one.users, one.created_ns, one.accessible) == (None, 3, SECOND, True)
    assert (two.size, two.accessible) == (7, False)
    assert (three.users, three.accessible, three.root_id) == (None, False, "")


def test_versions_are_given_newest_first() -> None:
    """Versions are sorted whatever the service's order, also if a version is a number."""
    body = (
        b'[{"version":1,"id":"a","lastModified":"2020-01-01T00:00:00Z","size":1},'
        b'{"version":"2","lastModified":"2021-01-01T00:00:00Z","size":null},{}]'
    )
    found = wire.versions(parse(body, "x"), VERSION_FIELDS, "x")
    assert [(version.version, version.id, version.size) for version in found] == [
        ("2", "2", 0),
        ("1", "a", 1),
    ]


@pytest.mark.parametrize("seconds", [(1, 1, 1, 1), (1, 1, 2, 2), (1, 2, 2, 3), (0, 0, 0, 0)])
@pytest.mark.parametrize("newest_is_first", [True, False])
def test_versions_with_one_time_are_given_newest_first(
    seconds: tuple[int, ...], newest_is_first: bool
) -> None:
    """The numbers of the versions tell which is newer, whatever the service's order."""
    items: list[dict[str, Any]] = [
        {"version": number, "lastModified": f"2020-01-01T00:00:0{second}Z" if second else None}
        for number, second in enumerate(seconds, 8)
    ]
    if newest_is_first:
        items.reverse()
    found = wire.versions(items, VERSION_FIELDS, "x")
    assert [version.version for version in found] == ["11", "10", "9", "8"]


@pytest.mark.parametrize("newest_is_first", [True, False])
def test_messages_with_one_time_are_given_newest_first(newest_is_first: bool) -> None:
    """The order of the whole log tells which of several messages with one time is the newer."""
    times = [f"2020-01-01T00:00:0{second}Z" for second in (1, 1, 2, 2)]
    items: list[dict[str, Any]] = [{"t": at, "m": str(n)} for n, at in enumerate(times)]
    if newest_is_first:
        items.reverse()
    found = wire.log_messages(items, {"time": "t", "message": "m"})
    assert [each.message for each in found] == ["3", "2", "1", "0"]


@pytest.mark.parametrize("value", [None, [], "text", {}, {"id": ""}, {"name": "n"}])
def test_an_answer_that_is_no_entry_is_an_error(value: object) -> None:
    with pytest.raises(BadAnswer):
        wire.one_entry(value, "x", zone_id="z")
