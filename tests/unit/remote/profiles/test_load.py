"""Profiles: what a deployment offers beyond the published interface, as checked data."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from zonedrive.config import ADMINISTRATOR
from zonedrive.errors import NotSupported, ProfileError
from zonedrive.remote.profiles import load
from zonedrive.remote.profiles.load import (
    load_profile,
    packaged,
    parse_profile,
    require_profile,
)
from zonedrive.remote.profiles.operations import OPERATIONS

GOOD = """\
description = "test"

[delete]
method = "DELETE"
path = "/api/zones/{zone}/x/{entry}"
query = { reason = "by {entry}" }

[move]
method = "POST"
path = "zones/{zone}/move"
body = { target = { parent = "{parent}", name = "{name}" }, list = ["{entry}", 5, true], n = 1 }
answer = "result.entry"
"""


def test_both_packaged_profiles_are_good() -> None:
    """`published` defines no operation, `sandbox` defines all."""
    assert packaged() == ["published", "sandbox"]
    published, sandbox = load_profile("published"), load_profile("sandbox")
    assert not any(published.can(operation) for operation in OPERATIONS)
    assert all(sandbox.can(operation) for operation in OPERATIONS)
    with pytest.raises(NotSupported, match="published"):
        published.operation("move")


def test_a_profile_from_a_file(tmp_path: Path) -> None:
    """An administrator's file works by its path."""
    file = tmp_path / "ours.toml"
    file.write_text(GOOD)
    profile = load_profile(str(file))
    assert profile.name == "ours"
    assert profile.can("delete")
    assert not profile.can("purge")
    with pytest.raises(ValueError, match="no operation"):
        profile.can("fly")


def test_a_request_is_filled_in_everywhere() -> None:
    """Path, query and every text in the body; other values stay as they are."""
    profile = parse_profile(GOOD, "ours", "ours.toml")
    values = {"zone": "z/1", "entry": "e?", "file": "e?", "parent": "p", "folder": "p",
              "name": 'a"{zone}'}  # fmt: skip
    delete = profile.operation("delete").request(values)
    assert (delete.method, delete.path) == ("DELETE", "/api/zones/z%2F1/x/e%3F")
    assert delete.query == {"reason": "by e?"}
    assert delete.body is None
    move = profile.operation("move").request(values)
    assert move.path == "/zones/z%2F1/move"
    assert move.body == {
        "target": {"parent": "p", "name": 'a"{zone}'},
        "list": ["e?", 5, True],
        "n": 1,
    }
    located = profile.operation("move").located
    assert located({"result": {"entry": {"id": 1}}}) == {"id": 1}
    assert located({"result": []}) is None
    assert located([]) is None


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ('x = "y"\n', 1, "unknown operation 'x'"),
        ("\n\n[fly]\n", 3, "unknown operation 'fly'"),
        ("description = 1\n", 1, "description"),
        ("delete = 1\n", 1, "must be a table"),
        ('[delete]\nmethod = "DELETE"\nurl = "/api"\n', 3, "unknown key 'url'"),
        ('[delete]\npath = "/api/{zone}/{entry}"\n', 1, "method must be"),
        ('[delete]\nmethod = "KILL"\npath = "/api/{entry}"\n', 2, "method must be"),
        ('[version_content]\nmethod = "POST"\npath = "/api/{file}/{version}"\n', 2, "method"),
        ('[delete]\nmethod = "DELETE"\npath = 5\n', 3, "path is missing"),
        ('[delete]\nmethod = "DELETE"\npath = "https://evil.example/{entry}"\n', 3, "another host"),
        ('[delete]\nmethod = "DELETE"\npath = "//evil.example/{entry}"\n', 3, "another host"),
        ('[delete]\nmethod = "DELETE"\npath = "evil:/{entry}"\n', 3, "another host"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/../{entry}"\n', 3, r"\.\."),
        ('[delete]\nmethod = "DELETE"\npath = "/api/%2e%2e/{entry}"\n', 3, "characters"),
        ('[delete]\nmethod = "DELETE"\npath = "/api//{entry}"\n', 3, "empty segment"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}//"\n', 3, "empty segment"),
        ('[delete]\nmethod = "DELETE"\npath = "/admin/{entry}"\n', 3, "begin with /api/"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}?a=b"\n', 3, "characters"),
        ('[delete]\nmethod = "DELETE"\npath = "\\\\\\\\evil\\\\{entry}"\n', 3, "characters"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{name}"\n', 3, "unknown placeholder {name}"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{}"\n', 3, "unknown placeholder"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}/{"\n', 3, "characters|brace"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{zone}"\n', 3, "is not used"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}"\nquery = "a"\n', 4, "query"),
        ('[delete]\nmethod = "GET"\npath = "/api/{entry}"\nbody = { a = 1 }\n', 4, "body"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}"\nbody = "text"\n', 4, "body"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}"\nbody = { a = "{b}" }\n', 4, "{b}"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}"\nbody = { a = "{" }\n', 4, "brace"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}"\nanswer = "a..b"\n', 4, "answer"),
        ('[delete]\nmethod = "DELETE"\npath = "/api/{entry}"\n[delete.body]\na = "{b}"\n', 5,
         "{b}"),
        ('[purge]\nmethod = "DELETE"\npath = "/api/{entry}"\n[delete]\npath = "x"\n', 4, "method"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_line(text: str, line: int, word: str) -> None:
    """The error names the file, the line and the remedy."""
    with pytest.raises(ProfileError, match=word) as refused:
        parse_profile(text, "ours", "/etc/ours.toml")
    assert refused.value.message.startswith(f"/etc/ours.toml, line {line}: ")
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize("name", ["nothing", "/nowhere/x.toml", "x.toml", ""])
def test_a_profile_that_is_not_there(name: str) -> None:
    """The error is one line that names the profile."""
    with pytest.raises(ProfileError):
        load_profile(name)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "other"])
def test_a_name_that_no_installed_profile_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is too long for a file is the name of no profile, as any other unknown name."""
    monkeypatch.setattr(load, "SYSTEM_FOLDER", tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "ours.toml").write_text('description = "Ours."', "utf-8")
    require_profile("ours")
    assert load_profile("ours").name == "ours"
    for function in (load_profile, require_profile):
        with pytest.raises(ProfileError, match="there is no profile"):
            function(name)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(str(file))


def test_an_addition_to_the_error_of_a_profile_is_not_kept() -> None:
    """Each use raises an error of its own, so that the message of the next one does not grow."""
    profile = replace(
        load_profile("published"), wrong=ProfileError("x.toml, line 1: no", remedy="r")
    )
    for _ in range(2):
        with pytest.raises(ProfileError) as found:
            profile.operation("deleted")
        assert found.value.line() == "x.toml, line 1: no; r"
        found.value.message += " (zone 'Board')"


def test_a_profile_without_access_is_not_a_missing_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user must ask the administrator for access to the folder or the file."""
    monkeypatch.setattr(load, "SYSTEM_FOLDER", tmp_path)

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for name in ("stat", "open"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(ProfileError) as found:
        load_profile("acme")
    monkeypatch.undo()
    assert found.value.message.endswith("acme.toml cannot be read (Permission denied)")
    assert found.value.remedy == ADMINISTRATOR
