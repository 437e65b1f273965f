"""Data on the disk reveal neither the work nor the coworkers of a user to readers without the
key."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Machine, Mounted, files_below
from tests.harness.waiting import eventually

SECRETS = {
    "a name": b"merger plan",
    "a name that was given up": b"first draft",
    "a name of a folder": b"board papers",
    "a name on the service": b"report.md",
    "a name with umlauts": "Grüße aus".encode(),
    "what was read": world.SEED["notes.txt"],
    "a part of what was read": world.SEED["big.bin"][1_000_000:1_000_032],
    "what was written": b"we buy them all",
    "what was written over": b"we buy nothing",
    # Three bytes alone occur by chance in megabytes of ciphertext.
    "a coworker": b"bob@acme",
    "what a coworker wrote": b"bob was",
    "another coworker": b"carol",
    "the domain of the coworkers": b"@acme.example",
}


def work(mounted: Mounted) -> None:
    """Read, write, rename and remove files; cause conflicts, refusals and a pending change."""
    root = mounted.root
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()
    (root / "board papers").mkdir()
    plan = root / "board papers/merger plan.txt"
    (root / "board papers/first draft.txt").write_bytes(b"we buy nothing\n")
    (root / "board papers/first draft.txt").rename(plan)
    mounted.sync()
    with plan.open("r+b", buffering=0) as file:
        file.write(b"we buy them all\n")
        mounted.zone.write("board papers/merger plan.txt", b"bob was faster\n")
    mounted.deployment.person("carol").zone(root.name).write("by carol.txt", b"hello")
    eventually((root / "by carol.txt").exists)
    mounted.sync()
    assert len(mounted.machine.done("conflicts").splitlines()) > 2
    mounted.deployment.fault(status=400, path="files", method="POST")
    (root / "board papers/merger plan 2.txt").write_bytes(b"we buy them all, again\n")
    (root / "empty").unlink()
    mounted.machine.done("pin", root / "board papers")
    eventually(lambda: mounted.status()["outbox"]["failed"] == 1)


def files(machine: Machine) -> Iterator[tuple[Path, bytes]]:
    """Yield all files that zonedrive stores, except the logon."""
    for folder in machine.folders.values():
        for path, data in files_below(folder):
            if not path.name.startswith(("account.", "secrets.")):
                yield path, data


def told(machine: Machine) -> list[str]:
    """Return the searched words that appear in the raw bytes or in the names of files."""
    found = []
    for path, content in files(machine):
        data = content + str(path.relative_to(machine.folder)).encode()
        found += [f"{path.name}: {what}" for what, text in SECRETS.items() if text in data]
    return found


@pytest.mark.mount("refresh=0.2")
def test_the_disk_contains_no_names_or_content(mounted: Mounted) -> None:
    """Neither content nor names of files or coworkers can be read, not even in the databases'
    logs."""
    mounted.allow("a conflict copy", "refused")
    work(mounted)
    assert told(mounted.machine) == []
    mounted.kill()
    assert told(mounted.machine) == []
    mounted.mount()
    mounted.deployment.heal()
    mounted.unmount()
    assert told(mounted.machine) == []


@pytest.mark.mount("encrypt=false")
def test_the_search_finds_unencrypted_data(mounted: Mounted) -> None:
    """The search finds data that are not encrypted."""
    (mounted.root / "merger plan.txt").write_bytes(b"we buy them all\n")
    (mounted.root / "notes.txt").read_bytes()
    mounted.sync()

    def is_found() -> bool:
        found = " ".join(told(mounted.machine))
        return "a name" in found and "what was written" in found

    eventually(is_found, what="a search finds both; the cache writes what is small a moment later")


def test_a_copy_of_the_disk_is_unreadable_after_a_logoff(mounted: Mounted, tmp_path: Path) -> None:
    """After a logoff the key is gone: a copy of the folders cannot be opened, even with the same
    logon."""
    (mounted.root / "merger plan.txt").write_bytes(b"we buy them all\n")
    (mounted.root / "notes.txt").read_bytes()
    mounted.sync()
    machine = mounted.machine
    mounted.unmount()
    shutil.copytree(machine.cache, tmp_path / "cache")
    shutil.copytree(machine.state, tmp_path / "state", ignore=shutil.ignore_patterns("secrets.*"))
    machine.done("logoff")
    assert not machine.state.exists()
    assert not machine.cache.exists()
    machine.log_on(mounted.deployment, profile="sandbox")
    shutil.copytree(tmp_path / "cache", machine.cache, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "state", machine.state, dirs_exist_ok=True)
    ended = machine.run("mount", mounted.path)
    assert ended.returncode == 1
    assert "data key is missing" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_changed_encrypt_setting_is_refused(mounted: Mounted) -> None:
    """Changing `encrypt` for a used account is refused with a remedy, and no data are changed."""
    (mounted.root / "notes.txt").read_bytes()
    mounted.deployment.fault(status=503, path="^/api/zones/.*/files", method="POST")
    (mounted.root / "waiting.txt").write_bytes(b"12345")
    mounted.unmount("--now")
    ended = mounted.machine.run("mount", mounted.path, "-oencrypt=false")
    assert ended.returncode == 1
    assert "set encrypt = true again" in ended.stderr
    mounted.deployment.heal()
    mounted.mount()
    assert (mounted.root / "waiting.txt").read_bytes() == b"12345"
    mounted.sync()
    assert mounted.zone.read("waiting.txt") == b"12345"
