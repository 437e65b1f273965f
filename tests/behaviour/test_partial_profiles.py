"""Profiles without some operations: these fail at once with EPERM, and all others work."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.harness.fault_proxy import Answer, Asked, FaultProxy
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
def test_other_operations_work_without_a_missing_one(mounted: Mounted, profile: str) -> None:
    """Operations without a table give EPERM and change nothing; all other changes arrive."""
    text, refused = PROFILES[profile]
    file = mounted.machine.folder / "ours.toml"
    file.write_text(text, "utf-8")
    mounted.zone.make_folder("void")
    mounted.restart(f"profile={file}")
    root = mounted.root
    before = set(mounted.zone.tree())
    for name, call in CALLS.items():
        if name not in refused:
            call(root)
            continue
        with pytest.raises(PermissionError) as refusal:
            call(root)
        assert refusal.value.errno == errno.EPERM, name
    (root / "written.txt").write_bytes(b"new")
    mounted.sync()
    after = set(mounted.zone.tree())
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
    assert set(os.listdir(root)) == {path for path in expected if "/" not in path}


@pytest.mark.parametrize("unanswered", [False, True])
def test_of_two_requests_for_a_new_place_the_second_is_refused(
    proxied: Mounted, proxy: FaultProxy, unanswered: bool
) -> None:
    """The file ends up at the place that the service has for it."""
    file = proxied.machine.folder / "ours.toml"
    file.write_text(RENAME + MOVE, "utf-8")
    proxied.restart(f"profile={file}")
    before = set(proxied.zone.tree())

    def forbid(answer: Answer) -> None:
        answer.status = 403
        answer.say({"error": "NOT_ALLOWED", "message": "no"})

    def hinder(asked: Asked) -> None:
        if not unanswered and proxy.about(asked):
            asked.path = "/nowhere"

    proxy.about = lambda asked: asked.method == "PUT" and b"parentId" in asked.body
    proxy.alter_request, proxy.alter = hinder, forbid
    proxied.allow("refused")
    (proxied.root / "big.bin").rename(proxied.root / "docs/large.bin")
    ended = proxied.machine.run("sync", "--timeout", "30")
    where = "docs/large.bin" if unanswered else "large.bin"
    assert set(proxied.zone.tree()) == (before - {"big.bin"}) | {where}
    assert (proxied.root / where).exists()
    assert (ended.returncode, f"{proxied.root.name}/large.bin: " in ended.stderr) == (
        (0, False) if unanswered else (1, True)
    )
    proxy.alter_request = lambda asked: None


def test_commands_report_missing_operations(mounted: Mounted) -> None:
    """versions, trash and restore give one line with a remedy each, and the mount stays usable."""
    mounted.restart("profile=published")
    for command in (
        ("versions", mounted.root / "notes.txt"),
        ("trash",),
        ("restore", "notes.txt"),
    ):
        ended = mounted.machine.run(*command)
        assert (ended.returncode, ended.stdout) == (1, ""), command
        assert ended.stderr.count("\n") == 1
        assert "has no endpoint for" in ended.stderr
        assert "--profile" in ended.stderr
    assert (mounted.root / "notes.txt").read_bytes() == mounted.zone.read("notes.txt")


def test_a_restored_entry_is_in_the_mount_at_once(mounted: Mounted) -> None:
    """When `restore` returns, the file exists in the mount, even for programs that saw it
    missing."""
    (mounted.root / "notes.txt").unlink()
    mounted.sync()
    assert not (mounted.root / "notes.txt").exists()
    assert "restored" in mounted.machine.done("restore", "notes.txt", "--zone", mounted.root.name)
    assert (mounted.root / "notes.txt").read_bytes() == b"first line\nsecond line\n"


def test_a_relative_path_of_a_profile(mounted: Mounted) -> None:
    """A relative path works at logon, for a mount in the background, and with a comma in it."""
    folder = mounted.machine.folder
    (folder / "a, b").mkdir()
    (folder / "a, b/ours.toml").write_text(MKDIR, "utf-8")
    mounted.restart("profile=a\\, b/ours.toml")
    (mounted.root / "new").mkdir()
    with pytest.raises(PermissionError):
        (mounted.root / "empty").unlink()
    mounted.unmount()
    (folder / "ours.toml").write_text('[delete]\nmethod = "DELETE"\npath = "//evil/{entry}"\n')
    refused = mounted.machine.run("mount", mounted.path, "-oprofile=ours.toml")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
    assert "ours.toml, line 3: delete: path leads to another host" in refused.stderr
