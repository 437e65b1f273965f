"""Logon of a different user: neither user gets data of the other."""

import subprocess

import pytest

from tests.harness import world
from tests.harness.machine import Mounted

NAME = "Gehaltsliste der Geschäftsführung.txt"
ONLY_HERE = "1 file in lost+found is only on this machine"


def log_on(mounted: Mounted, name: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Log on with a password over the existing account."""
    deployment = mounted.deployment
    return mounted.machine.run(
        "logon", deployment.base_url, "--username", f"{name}@{world.DOMAIN}", "--password-stdin",
        "--profile", "sandbox", *options, text=f"{world.PASSWORDS[name]}\n",
    )  # fmt: skip


@pytest.mark.parametrize("still", ["mounted", "unmounted"])
def test_pending_files_are_not_taken_over(mounted: Mounted, still: str) -> None:
    """Bob is refused with a remedy; Alice's pending files are uploaded as hers."""
    mounted.allow("offline", "reach", "took")
    list(mounted.root.iterdir())
    with mounted.deployment.faulty(status=503, path="^/api/zones/", method="POST"):
        (mounted.root / NAME).write_bytes(b"12345")
        if still == "unmounted":
            mounted.unmount("--timeout", "0")
        ended = log_on(mounted, "bob")
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.count("\n") == 1
        assert "holds 1 file (5 bytes) of alice" in ended.stderr
        assert "'zonedrive sync'" in ended.stderr and "--account NAME" in ended.stderr
        assert ("'zonedrive mount DIR'" in ended.stderr) == (still == "unmounted")
    if still == "unmounted":
        mounted.mount()
    mounted.sync()
    assert mounted.zone.read(NAME) == b"12345"
    entry = mounted.zone.find(NAME)
    assert entry is not None and entry["lastModifiedBy"].startswith("alice")
    if still == "mounted":
        ended = log_on(mounted, "bob")
        assert ended.returncode == 1 and "is mounted as alice" in ended.stderr


def test_nothing_cached_is_shown_to_another_user(mounted: Mounted) -> None:
    """The cache is deleted, which is reported; with an account of his own it would be left
    alone."""
    machine = mounted.machine
    (mounted.root / NAME).write_bytes(b"12345")
    (mounted.root / NAME).read_bytes()
    (mounted.root / "notes.txt~").write_bytes(b"never sent")
    mounted.sync()
    mounted.unmount()
    before = {path for path in machine.cache.rglob("*") if path.is_file()}
    ended = log_on(mounted, "carol", "--account", "other", "--ca-file",
                   str(mounted.deployment.ca_file))  # fmt: skip
    assert ended.returncode == 0 and "deleted" not in ended.stderr
    assert machine.cache.exists() and before
    ended = log_on(mounted, "carol")
    assert ended.returncode == 0
    assert f"the local data of alice@{world.DOMAIN} at" in ended.stderr
    assert "is deleted: cache, names, data key, and 1 file of local_only" in ended.stderr
    assert not any(path.exists() for path in before)
    assert not list(machine.state.glob("tree.db*"))
    machine.done("logoff", "--account", "other")
    machine.done("logoff")


def test_a_logon_that_is_lost_from_the_disk(mounted: Mounted) -> None:
    """A damaged or missing account file has a copy; without both, pending files are counted and
    stay Alice's."""
    machine = mounted.machine
    mounted.allow("offline", "reach")
    list(mounted.root.iterdir())
    with mounted.deployment.faulty(down=True):
        (mounted.root / NAME).write_bytes(b"12345")
        mounted.unmount("--timeout", "0")
    authority = str(mounted.deployment.ca_file)
    account = machine.state / "account.json"
    for lose in lambda: account.write_bytes(bytes(100)), account.unlink:
        lose()
        assert "1 file (5 bytes)" in machine.done("status")
        said = machine.run("doctor").stdout
        assert "BAD  logon: account.json cannot be read, so a copy of it is in use" in said
        ended = log_on(mounted, "bob", "--ca-file", authority)
        assert ended.returncode == 1 and "1 file (5 bytes) of alice" in ended.stderr
    (machine.state / "account.copy.json").unlink()
    said = machine.run("doctor").stdout
    assert "BAD  outbox: 1 file (5 bytes) wait here, of a logon whose account.json" in said
    ended = log_on(mounted, "bob", "--ca-file", authority)
    assert ended.returncode == 1 and "the owner of 1 file (5 bytes)" in ended.stderr


def test_files_in_lost_found_are_not_deleted_silently(mounted: Mounted) -> None:
    """Neither a logoff nor another user's logon deletes lost files silently; they are local
    only."""
    machine = mounted.machine
    mounted.allow("offline", "reach", "damaged", "missing", "lost")
    list(mounted.root.iterdir())
    with mounted.deployment.faulty(down=True):
        (mounted.root / NAME).write_bytes(b"12345")
        mounted.unmount("--timeout", "0")
    for each in machine.state.glob("tree.db*"):
        each.unlink()
    here = str(mounted.path)
    for mount in (None, mounted.mount, mounted.unmount):
        if mount is not None:
            mount()
        for asked in ([], [here]) if mounted.is_mounted() else ([],):
            assert machine.done("status", *asked).startswith(ONLY_HERE)
            ended = machine.run("sync", *asked)
            assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1
            assert ONLY_HERE in ended.stderr and "copy the files that you need" in ended.stderr
        ended = machine.run("logoff")
        assert ended.returncode == 1 and "1 file in lost+found is only on this" in ended.stderr
    assert "1 file in lost+found of alice" in log_on(mounted, "bob").stderr
    assert "; dropped 1 file in lost+found" in machine.done("logoff", "--discard")
    assert not machine.state.exists()
