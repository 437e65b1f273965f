"""Profiles without some operations: these fail at once with EPERM, and all others work."""

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.harness.machine import Mounted

ENTRIES = "/api/sandbox/zones/{zone}/entries/{entry}"
MKDIR = """
[make_folder]
method = "POST"
path = "/api/sandbox/zones/{zone}/folders"
body = { parentId = "{parent}", name = "{name}" }
"""
BOTH = f"""
[move]
method = "PUT"
path = "{ENTRIES}"
body = {{ parentId = "{{parent}}", name = "{{name}}" }}
"""
RENAME = f"""
[rename]
method = "PUT"
path = "{ENTRIES}"
body = {{ name = "{{name}}" }}
"""
MOVE = f"""
[move]
method = "PUT"
path = "{ENTRIES}"
body = {{ parentId = "{{parent}}" }}
answer = "none"
"""
DELETE = f"""
[delete]
method = "DELETE"
path = "{ENTRIES}"
answer = "none"
"""

CALLS: Mapping[str, Callable[[Path], object]] = {
    "mkdir": lambda root: (root / "new").mkdir(),
    "rename": lambda root: (root / "notes.txt").rename(root / "renamed.txt"),
    "rename a folder": lambda root: (root / "docs/2026").rename(root / "docs/2027"),
    "move": lambda root: (root / "docs/report.md").rename(root / "report.md"),
    "move and rename": lambda root: (root / "big.bin").rename(root / "docs/large.bin"),
    "unlink": lambda root: (root / "empty").unlink(),
    "rmdir": lambda root: (root / "void").rmdir(),
}
RENAMES = {"rename", "rename a folder"}
PLACES = {*RENAMES, "move", "move and rename"}

# What the profile has, and which calls it refuses.
PROFILES: Mapping[str, tuple[str, set[str]]] = {
    "everything": (MKDIR + BOTH + DELETE, set()),
    "no make_folder": (BOTH + DELETE, {"mkdir"}),
    "no rename and no move": (MKDIR + DELETE, PLACES),
    "no delete": (MKDIR + BOTH, {"unlink", "rmdir"}),
    "rename alone": (RENAME, {"mkdir", "move", "move and rename", "unlink", "rmdir"}),
    "move alone": (MOVE, {"mkdir", "unlink", "rmdir", *PLACES - {"move"}}),
    "one address for rename, one for move": (MKDIR + RENAME + MOVE + DELETE, set()),
    "delete for files": (DELETE.replace("delete", "delete.file"), {"mkdir", "rmdir", *PLACES}),
    "delete for folders": (
        DELETE.replace("delete", "delete.folder"),
        {"mkdir", "unlink", *PLACES},
    ),
    "rename for files": (
        RENAME.replace("rename", "rename.file"),
        {"mkdir", "unlink", "rmdir", *PLACES - {"rename"}},
    ),
}


@pytest.mark.parametrize("profile", PROFILES)
def test_other_operations_work_without_a_missing_one(
    desk: Mounted, tmp_path: Path, profile: str
) -> None:
    """Operations without a table give EPERM and change nothing; all other changes arrive."""
    require_the_others(desk, tmp_path, profile)


def require_the_others(desk: Mounted, tmp_path: Path, profile: str) -> None:
    """Make all calls with a profile, and compare what the service has then."""
    text, refused = PROFILES[profile]
    file = tmp_path / "ours.toml"
    file.write_text(text, "utf-8")
    desk.zone.make_folder("void")
    desk.restart(f"profile={file}")
    root = desk.root
    before = set(desk.zone.tree())
    for name, call in CALLS.items():
        if name not in refused:
            call(root)
            continue
        with pytest.raises(PermissionError) as refusal:
            call(root)
        assert refusal.value.errno == errno.EPERM, name
    (root / "written.txt").write_bytes(b"new")
    desk.sync()
    after = set(desk.zone.tree())
    moved = {
        "mkdir": ({"new"}, set()),
        "rename": ({"renamed.txt"}, {"notes.txt"}),
        "rename a folder": (
            {"docs/2027", "docs/2027/q1.csv"},
            {"docs/2026", "docs/2026/q1.csv"},
        ),
        "move": ({"report.md"}, {"docs/report.md"}),
        "move and rename": ({"docs/large.bin"}, {"big.bin"}),
        "unlink": (set(), {"empty"}),
        "rmdir": (set(), {"void"}),
    }
    expected = before | {"written.txt"}
    for name in CALLS.keys() - refused:
        come, gone = moved[name]
        expected = (expected - gone) | come
    assert after == expected
    assert set(desk.names(root)) == {path for path in expected if "/" not in path}
