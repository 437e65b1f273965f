"""Profiles in every TOML syntax, and the effects of their values."""

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.remote.conftest import BASE, Stage, on_pages
from zonedrive.errors import BadAnswer, NotSupported, ProfileError, Rejected
from zonedrive.remote.profiles.load import LONGEST, load_profile, parse_profile
from zonedrive.remote.profiles.operations import OPERATIONS
from zonedrive.toml_input import line_of

FILES = '[delete.file]\nmethod = "DELETE"\npath = "/api/f/{file}"\n'
FOLDERS = '[delete.folder]\nmethod = "POST"\npath = "/api/d/{entry}/trash"\n'
BOTH = '[delete]\nmethod = "DELETE"\npath = "/api/e/{entry}"\n'
RENAME = '[rename]\nmethod = "PUT"\npath = "/api/r/{entry}"\nbody = { name = "{name}" }\n'
MOVE = '[move]\nmethod = "PUT"\npath = "/api/m/{entry}/{parent}"\n'


@pytest.mark.parametrize(
    ("text", "file", "folder"),
    [
        (BOTH, "/api/e/{entry}", "/api/e/{entry}"),
        (FILES + FOLDERS, "/api/f/{file}", "/api/d/{entry}/trash"),
        (BOTH + FOLDERS, "/api/e/{entry}", "/api/d/{entry}/trash"),
        (FILES, "/api/f/{file}", None),
        (FOLDERS, None, "/api/d/{entry}/trash"),
    ],
)
def test_files_and_folders_may_have_addresses_of_their_own(
    text: str, file: str | None, folder: str | None
) -> None:
    """The special table takes precedence; with it alone the other kind cannot be deleted."""
    profile = parse_profile(text, "ours", "ours.toml")
    for path, which in ((file, False), (folder, True)):
        assert profile.can("delete", folder=which) == (path is not None)
        if path is None:
            with pytest.raises(NotSupported, match="delete of a"):
                profile.operation("delete", folder=which)
        else:
            assert profile.operation("delete", folder=which).path == path
    assert profile.can("delete")
    assert not profile.can("purge")


@pytest.mark.parametrize(
    ("text", "renamed", "moved", "both"),
    [
        (RENAME, True, False, False),
        (MOVE, False, True, False),
        (RENAME + MOVE, True, True, True),
        (MOVE + 'body = { name = "{name}" }\n', True, True, True),
        ("", False, False, False),
    ],
)
def test_renaming_and_moving(text: str, renamed: bool, moved: bool, both: bool) -> None:
    """A profile may have one table for both operations, one for each, or only one of them."""
    profile = parse_profile(text, "ours", "ours.toml")
    assert profile.can_place(False, renamed=True) == renamed == profile.can("rename")
    assert profile.can_place(True, moved=True) == moved == profile.can("move")
    assert profile.can_place(False, renamed=True, moved=True) == both


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ('delete.method = "DELETE"\ndelete.path = "//evil.example/{entry}"\n', 2, "another host"),
        ('delete = { method = "DELETE", path = "/api/{entry}", x = 1 }\n', 1, "unknown key 'x'"),
        ('["delete"]\nmethod = "DELETE"\n"path" = "/api/../{entry}"\n', 3, r"\.\."),
        (BOTH + '[delete.query]\na = "b"\nc = 5\n', 6, "table of texts"),
        (BOTH + "body.a = 1\nbody.list = [\n  1,\n  '{who}',\n]\n", 7, "unknown placeholder"),
        (BOTH + '[[delete.body.list]]\nx = "{x}"\n', 5, "unknown placeholder"),
        (BOTH + 'body.a = "{entry}"\nbody.b = "{entr}"\n', 5, "unknown placeholder"),
        (BOTH + 'query = { a = "x\\r\\nHost: evil" }\n', 4, "control characters"),
        (BOTH + 'query = { "a\\u0000" = "x" }\n', 4, "control characters"),
        (BOTH + 'query = { "{entry}" = "x" }\n', 4, "stands in a value"),
        (BOTH + 'body = { "{entry}" = 1 }\n', 4, "stands in a value"),
        (BOTH + "body = { at = 2026-01-01 }\n", 4, "JSON cannot hold"),
        (BOTH + "body = { at = nan }\n", 4, "JSON cannot hold"),
        (BOTH + "fields = { id = 'x' }\n", 4, "unknown key 'fields'"),
        ('[delete]\nmethod = "DELETE"\npath = "user@evil.example/{entry}"\n', 3, "address of a"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}/./x"\n', 3, "empty segment"),
        ('[delete]\nmethod = "DELETE"\npath = "/{entry}/api"\n', 3, "begin with /api/"),
        ("[delete]\nfile = 5\n", 2, "must be a table"),
        (FILES + '[delete.folder]\nmethod = "DELETE"\n', 4, "path is missing"),
        ('\n# [delete]\n"""\n', 3, "not TOML"),
        ('[versions]\npath = "/api/{file}"\nfields = { when = "x" }\n', 3, "unknown field"),
        ('[versions]\npath = "/api/{file}"\nfields = { size = "a..b" }\n', 3, "dotted path"),
        ('[versions]\npath = "/api/{file}"\nfields = "id"\n', 3, "table of texts"),
        ('[zone_log]\npath = "/api/log"\n', 2, "{zone} is not used"),
        (
            '[change_password]\nmethod = "POST"\npath = "/api/{password}"\n'
            'body = { new = "{new_password}" }\n',
            3,
            "body alone",
        ),
        (
            '[change_password]\nmethod = "POST"\npath = "/api/me"\nquery = { p = "{password}" }\n'
            'body = { new = "{new_password}" }\n',
            4,
            "body alone",
        ),
        (
            '[change_password]\nmethod = "POST"\npath = "/api/me"\n'
            'body = { old = "a{password:characters}", new = "{new_password}" }\n',
            4,
            "nothing beside",
        ),
    ],
)
def test_the_line_is_found_however_it_is_written(text: str, line: int, word: str) -> None:
    """Dotted keys, inline tables, quoted names and multi-line arrays are supported."""
    with pytest.raises(ProfileError, match=word) as refused:
        parse_profile(text, "ours", "ours.toml")
    assert f"line {line}" in refused.value.message
    assert "\n" not in refused.value.line()


def test_a_line_behind_a_text_of_several_lines() -> None:
    """A table header inside a string is ignored."""
    text = 'description = """\n[delete]\npath = 1\n"""\n\n# here\n\n[delete]\npath = 5\n'
    assert line_of(text, ("delete", "path")) == 9
    assert line_of(text, ("delete", "method")) == 8
    assert line_of(text, ("description",)) == 1
    assert line_of(text, ("nothing",)) == 1


def test_a_file_that_is_no_profile(tmp_path: Path) -> None:
    """A file above the limit is rejected unread."""
    file = tmp_path / "large.toml"
    file.write_bytes(b"#" * (LONGEST + 1))
    with pytest.raises(ProfileError, match="longer than"):
        load_profile(str(file))


def test_a_file_from_another_system(tmp_path: Path) -> None:
    """Windows line ends are accepted."""
    file = tmp_path / "ours.toml"
    file.write_bytes(BOTH.replace("\n", "\r\n").encode())
    assert load_profile(str(file)).can("delete")


TEMPLATE = """
[make_folder]
method = "POST"
path = "/api/{zone}/x/{parent}"
query = { name = "{name}", fixed = "a&b" }
body = { inner = [{ name = "<{name}>" }], n = 1 }
"""


@given(st.fixed_dictionaries({name: st.text() for name in ("zone", "parent", "name")}))
def test_a_value_stays_where_its_placeholder_stands(values: dict[str, str]) -> None:
    """The request has exactly the segments, parameters and members of the profile."""
    operation = parse_profile(TEMPLATE, "ours", "ours.toml").operation("make_folder")
    try:
        request = operation.request(values | {"folder": values["parent"]})
        url = httpx.Request(request.method, BASE + request.path, params=request.query).url
    except (Rejected, UnicodeEncodeError):
        return
    raw = url.raw_path.decode("ascii")
    parts = urlsplit(raw)
    assert url.host == "zones.example"
    assert parts.path.count("/") == 4
    assert not set(raw) & set("\r\n\\ #")
    assert parse_qs(parts.query, keep_blank_values=True) == {
        "name": [values["name"]],
        "fixed": ["a&b"],
    }
    sent = json.loads(json.dumps(request.body))
    assert sent == {"inner": [{"name": f"<{values['name']}>"}], "n": 1}


@pytest.mark.parametrize("path", ["/api/x/{entry}/", "x/{entry}/", "/api/x/{entry}"])
async def test_a_slash_at_the_end_of_a_path_is_kept(stage: Stage, path: str) -> None:
    """Some services distinguish a path with this slash from one without."""
    service = stage.service(lambda request: httpx.Response(204))
    text = f'[delete]\nmethod = "DELETE"\npath = "{path}"\nanswer = "none"\n'
    service.profile = parse_profile(text, "ours", "ours.toml")
    await service.delete("z", "e/")
    (request,) = stage.requests
    expected = f"/{path.removeprefix('/')}".replace("{entry}", "e%2F")
    assert request.url.raw_path.decode() == expected


def test_passwords_are_sent_as_the_profile_says() -> None:
    """A password is an array of characters or a text; repr does not show the body."""
    request = load_profile("sandbox").operation("change_password").request(
        {"username": "u", "password": "p{new_password}", "new_password": "né"}
    )  # fmt: skip
    assert request.body == {"password": list("p{new_password}"), "newPassword": ["n", "é"]}
    assert "né" not in repr(request)
    assert "password" not in repr(request).replace("/api/sandbox/password", "")


async def test_versions_with_other_members(stage: Stage) -> None:
    """`fields` gives the place of each member; a missing one has a harmless value."""
    service = stage.service(
        lambda request: httpx.Response(
            200,
            json={"all": [{"no": 2, "made": {"at": "2026-01-01T00:00:00Z"}}, {"no": 1}, 5, {}]},
        )
    )
    text = (
        '[versions]\npath = "/api/{file}"\nanswer = "all"\n'
        'fields = { version = "no", modified = "made.at" }\n'
    )
    service.profile = parse_profile(text, "ours", "ours.toml")
    first, second = await service.versions("z", "f")
    assert (first.version, first.modified_ns) == ("2", 1767225600 * 10**9)
    assert (second.version, second.modified_ns, second.size) == ("1", 0, 0)


@pytest.mark.parametrize("count", [0, 1, 50, 131, 200, 431])
@pytest.mark.parametrize("size", ["1", "50", "100", "1000"])
@pytest.mark.parametrize("cap", [0, 50, 100, 200, 1000])
async def test_a_page_size_of_the_profile(count: int, size: str, cap: int) -> None:
    """A listing is complete for every `pageSize`; `cap` 0 is a service without pages."""
    stage, numbers = Stage(), [str(number) for number in range(count, 0, -1)]

    def answer(request: httpx.Request) -> httpx.Response:
        found, query = numbers, request.url.params
        if cap:
            length = min(cap, int(query["pageSize"]))
            start = (int(query.get("page", 1)) - 1) * length
            found = numbers[start : start + length]
        return httpx.Response(200, json=[{"version": number} for number in found])

    service = stage.service(answer)
    text = f'[versions]\npath = "/api/{{file}}"\nquery = {{ pageSize = "{size}" }}\n'
    service.profile = parse_profile(text, "ours", "ours.toml")
    found = [version.version for version in await service.versions("z", "f")]
    assert found == numbers


async def test_levels_in_more_zones_than_a_page_has(stage: Stage) -> None:
    """The answer may have pages, as the list of zones."""
    every = [{"zoneId": f"z{zone}", "level": "Add"} for zone in range(130)]
    assert await stage.service(on_pages(every)).levels() == {f"z{n}": "Add" for n in range(130)}


@pytest.mark.parametrize("name", ["deletions", "members", "levels"])
async def test_items_with_other_members_are_no_empty_list(stage: Stage, name: str) -> None:
    """An empty list is one, but items of which none is usable are an error."""
    items: list[object] = []
    service = stage.service(lambda request: httpx.Response(200, json=items))

    async def read() -> object:
        return await (service.levels() if name == "levels" else getattr(service, name)("z"))

    assert not await read()
    items += [{"entry": "x", "uid": "y", "zone": "z", "role": "Add"}]
    with pytest.raises(BadAnswer, match="nothing in the answer has the expected members"):
        await read()
    items += [{"id": "x", "name": "x", "memberId": "x", "zoneId": "x", "level": "Add"}]
    assert await read()


async def test_the_time_of_a_deletion(stage: Stage) -> None:
    """The time of deletion is not published: without `fields` in the profile it is unknown."""
    said = [
        {"id": "a", "name": "a", "folder": False, "gone": {"at": "2026-01-01T00:00:00Z"}},
        {"id": "b", "name": "b", "folder": False, "gone": "yesterday"},
        {"no id": 1},
        5,
    ]
    service = stage.service(lambda request: httpx.Response(200, json=said))
    table = '[deleted]\npath = "/api/{zone}"\n'
    for fields, at in (('fields = { deleted_at = "gone.at" }\n', 1767225600 * 10**9), ("", 0)):
        service.profile = parse_profile(table + fields, "ours", "ours.toml")
        found = await service.deletions("z")
        assert [(entry.id, at_ns) for entry, at_ns in found] == [("a", at), ("b", 0)]


async def test_the_zone_log_comes_as_it_is(stage: Stage) -> None:
    """The fields of the log are not published, so they are returned unchanged."""
    messages = [{"id": "2", "text": "x", "odd": [1]}, {"no id": True}]
    service = stage.service(lambda request: httpx.Response(200, json=[*messages, None, 5]))
    assert await service.zone_log("z") == messages
    assert stage.asked() == ["GET /api/sandbox/zones/z/log?since=1970-01-01T00%3A00%3A00%2B00%3A00"]
    service = stage.service(lambda request: httpx.Response(200, json={"log": []}))
    with pytest.raises(BadAnswer):
        await service.zone_log("z")


LOG = '[zone_log]\npath = "/api/{zone}/log"\nanswer = "all"\n'


async def test_the_fields_of_a_log_message(stage: Stage) -> None:
    """A malformed member has no effect on the others, and times are those of the profile."""
    said = [
        {"at": "2026-01-01T00:00:00Z", "by": {"id": "bob"}, "text": "x\x1b[31m", "on": 5},
        {"at": "soon", "by": 7, "where": ["a"]},
        5,
    ]
    service = stage.service(lambda request: httpx.Response(200, json={"all": said}))
    text = LOG + (
        'query = { from = "{since}" }\nfields = { time = "at", user = "by.id", message = "text",'
        ' entry = "on", path = "where" }\n'
    )
    service.profile = parse_profile(text, "ours", "ours.toml")
    first, second, third = await service.log_messages("z", 1767225600 * 10**9)
    assert (first.time_ns, first.user, first.entry_id) == (1767225600 * 10**9, "bob", "5")
    assert first.message.isprintable() and first.event == first.path == ""
    assert second == third and second.time_ns == 0
    assert stage.asked() == ["GET /api/z/log?from=2026-01-01T00%3A00%3A00%2B00%3A00"]


@pytest.mark.parametrize("fields", ["", 'fields = { time = "at" }', 'fields = { message = "m" }'])
async def test_a_log_without_times_or_texts_is_not_guessed(stage: Stage, fields: str) -> None:
    """No field of a message is published, so a profile that names none can show none."""
    service = stage.service(lambda request: httpx.Response(200, json={"all": []}))
    service.profile = parse_profile(LOG + fields, "ours", "ours.toml")
    with pytest.raises(NotSupported, match="does not name the fields"):
        await service.log_messages("z")
    assert stage.asked() == []
    assert await service.zone_log("z") == []


SHARE = '[share]\nmethod = "POST"\npath = "/api/s/{entry}"\n'
LINK = 'fields = { link = "link" }'
KEY = 'fields = { key = "key" }\nlink = '


@pytest.mark.parametrize(
    ("text", "answer", "link"),
    [
        (LINK, {"link": "https://a.example/x?k=1"}, "https://a.example/x?k=1"),
        ('fields = { link = "a.b" }', {"a": {"b": "/s/x"}}, f"{BASE}/s/x"),
        (f'{KEY}"share/{{key}}"', {"key": "a/b?c"}, f"{BASE}/share/a%2Fb%3Fc"),
        (f'{KEY}"https://o.example/#{{key}}"', {"key": 5}, "https://o.example/#5"),
        (LINK, {"link": "http://a.example/x"}, ""),
        (LINK, {"link": "javascript:alert(1)//://"}, ""),
        (LINK, {"link": "https://a.example/a b"}, ""),
        (LINK, {"link": "https://a.example/\x1b[31m"}, ""),
        (LINK, {"link": None}, ""),
        (LINK, [], ""),
        (f'{KEY}"share/{{key}}"', {"key": ".."}, ""),
    ],
)
async def test_the_link_of_a_share(stage: Stage, text: str, answer: object, link: str) -> None:
    """A link is an https:// address, from the answer or made of its key; all else is an error."""
    service = stage.service(lambda request: httpx.Response(201, json=answer))
    service.profile = parse_profile(SHARE + text, "ours", "ours.toml")
    if link:
        assert await service.share("z", "e") == link
    else:
        with pytest.raises(BadAnswer, match="link") as refused:
            await service.share("z", "e")
        assert "may share it anyway" in refused.value.remedy
    assert stage.asked() == ["POST /api/s/e"]


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", 1, 'either "link" or "key"'),
        ('answer = "none"\nfields = { link = "l" }', 4, "must have the link"),
        ('fields = { link = "l", key = "k" }', 4, 'either "link" or "key"'),
        ('fields = { link = "l" }\nlink = "s/{key}"', 4, "made of a key"),
        ('fields = { key = "k" }', 1, "with {key} once"),
        (f'{KEY}"s/{{zone}}"', 5, "with {key} once"),
        (f'{KEY}"http://s.example/{{key}}"', 5, "https:// address"),
        (f'{KEY}"//s.example/{{key}}"', 5, "https:// address"),
        (f'{KEY}"https://{{key}}.example/"', 5, "https:// address"),
        (f'{KEY}"a b{{key}}"', 5, "https:// address"),
        (f'{KEY}"s/{{key}}"\n[unshare]\nlink = "x"', 7, "unknown key"),
    ],
)
def test_a_share_without_a_clear_link(text: str, line: int, word: str) -> None:
    """A profile that does not say how a link is made is refused with its line."""
    with pytest.raises(ProfileError, match=word) as refused:
        parse_profile(SHARE + text, "ours", "ours.toml")
    assert f"line {line}:" in refused.value.message


@pytest.mark.parametrize(
    ("link", "address"),
    [
        ("web/{zone}/{entry}", f"{BASE}/web/z/a%2Fb"),
        ("/web/{entry}", f"{BASE}/web/a%2Fb"),
        ("https://w.example/#/z/{zone}?file={file}", "https://w.example/#/z/z?file=a%2Fb"),
    ],
)
def test_a_link_for_members(stage: Stage, link: str, address: str) -> None:
    """A link is made of the entry's id, and nothing is requested."""
    service = stage.service(lambda request: httpx.Response(500))
    service.profile = parse_profile(f'[member_link]\nlink = "{link}"\n', "ours", "ours.toml")
    assert service.member_link("z", "a/b") == address
    assert stage.asked() == []


def test_links_for_members_by_kind(stage: Stage) -> None:
    """Files and folders may have pages of their own; a kind without a page has no link."""
    service = stage.service(lambda request: httpx.Response(500))
    text = '[member_link.folder]\nlink = "f/{entry}"\n'
    service.profile = parse_profile(text, "ours", "ours.toml")
    assert service.member_link("z", "e", folder=True) == f"{BASE}/f/e"
    with pytest.raises(NotSupported, match="no endpoint for member_link of a file"):
        service.member_link("z", "e", folder=False)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", 1, "link must be a text"),
        ("link = 5", 2, "link must be a text"),
        ('link = "all"', 2, "is not used"),
        ('link = "{entry}/{name}"', 2, "unknown placeholder"),
        ('link = "{entry}}"', 2, "an unmatched brace"),
        ('link = "http://w.example/{entry}"', 2, "https:// address"),
        ('link = "https://{entry}/"', 2, "https:// address"),
        ('link = "//w.example/{entry}"', 2, "https:// address"),
        ('link = "javascript:{entry} "', 2, "https:// address"),
        ('link = "w/{entry}"\npath = "/api/x"', 3, "unknown key"),
    ],
)
def test_a_wrong_template_of_a_link(text: str, line: int, word: str) -> None:
    """A wrong template is refused with its line."""
    with pytest.raises(ProfileError, match=word) as refused:
        parse_profile(f"[member_link]\n{text}\n", "ours", "ours.toml")
    assert f"line {line}:" in refused.value.message


async def test_versions_with_equal_ids_are_kept(stage: Stage) -> None:
    """An id may be that of the file, so that all versions with the same id are kept."""
    said = [{"id": "F", "version": number} for number in (2, 1)]
    service = stage.service(lambda request: httpx.Response(200, json={"versions": said}))
    text = '[versions]\npath = "/api/{file}"\nanswer = "versions"\n'
    service.profile = parse_profile(text, "ours", "ours.toml")
    assert {(each.version, each.id) for each in await service.versions("z", "f")} == {
        ("2", "F"),
        ("1", "F"),
    }


@pytest.mark.parametrize("member", ["id", "number"])
async def test_a_zone_log_is_read_to_its_end(stage: Stage, member: str) -> None:
    """The log is read completely, even if messages have no id or two are equal."""
    every = [{member: number // 2, "text": "x"} for number in range(250)]
    assert await stage.service(on_pages(every)).zone_log("z") == every


def test_every_operation_needs_its_placeholders() -> None:
    """Otherwise an operation would always affect the same entry."""
    for name, kind in OPERATIONS.items():
        if name == "levels":  # which is about the user, and changes nothing
            assert kind.reads and not kind.may
            continue
        assert kind.must, name
        text = 'link = "all"' if kind.shown else 'method = "GET"\npath = "/api/all"'
        with pytest.raises(ProfileError, match="is not used"):
            parse_profile(f"[{name}]\n{text}\n", "ours", "ours.toml")
