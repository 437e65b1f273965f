"""Profiles without some operations; see also tests/in_process/test_partial_profiles.py."""

from pathlib import Path

import pytest

from tests.harness.fault_proxy import Answer, Asked, FaultProxy
from tests.harness.machine import Mounted
from tests.in_process.test_partial_profiles import MKDIR, MOVE, RENAME, require_the_others


@pytest.mark.parametrize("profile", ["one address for rename, one for move", "delete for files"])
def test_other_operations_work_without_a_missing_one(
    mounted: Mounted, tmp_path: Path, profile: str
) -> None:
    """Calls that a profile allows are requests, and the others give EPERM."""
    require_the_others(mounted, tmp_path, profile)


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
