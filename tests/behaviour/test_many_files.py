"""Many small files at once need few requests, are sent once, and overwrite no other file."""

from pathlib import Path

import pytest

from tests.harness.machine import Mounted

UPLOAD = "POST /api/zones/{zone_id}/files/{file_id}"
LISTING = "GET /api/zones/{zone_id}/folder/{folder_id}"
MAKE = "POST /api/sandbox/zones/{zone_id}/folders"
FILES = 120


def requests(mounted: Mounted) -> dict[str, int]:
    """Return the service's request counts so far."""
    return dict(mounted.deployment.stats()["requests"])


def asked(mounted: Mounted, before: dict[str, int]) -> dict[str, int]:
    """Return the number of requests of each kind since then."""
    now = requests(mounted)
    return {kind: now[kind] - before.get(kind, 0) for kind in now}


def fill(folder: Path) -> dict[str, bytes]:
    """Create small files of every length; return their bytes by name."""
    files = {f"f{number:03}": b"%d\n" % number * number for number in range(FILES)}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return files


@pytest.mark.mount("settle=600")
def test_new_files_cost_one_request_each(mounted: Mounted) -> None:
    """One listing checks the names of many files; each file is uploaded once."""
    before = requests(mounted)
    files = fill(mounted.root)
    mounted.sync()
    found = asked(mounted, before)
    for name, data in files.items():
        assert mounted.zone.read(name) == data
    assert found[UPLOAD] == FILES
    assert found[LISTING] < FILES / 4


def test_new_folders_are_not_listed(mounted: Mounted) -> None:
    """Unpacking a tree needs one request for each folder and each file."""
    before = requests(mounted)
    trees = [mounted.root / f"d{number}/e/f" for number in range(5)]
    for tree in trees:
        tree.mkdir(parents=True)
        for number in range(5):
            (tree / f"f{number}").write_bytes(b"content\n")
    mounted.sync()
    found = asked(mounted, before)
    assert found[MAKE] == 15
    assert found[UPLOAD] == 25
    assert mounted.zone.tree().keys() >= {f"d{n}/e/f/f{k}" for n in range(5) for k in range(5)}


@pytest.mark.mount("settle=600")
def test_a_coworkers_file_among_many_is_not_overwritten(mounted: Mounted) -> None:
    """New files whose names a coworker took meanwhile are stored as conflict copies."""
    mounted.allow("a conflict copy")
    fill(mounted.root)
    taken = ["f003", "f070", "f119"]
    for name in taken:
        mounted.zone.write(name, b"a coworker's\n")
    mounted.sync()
    for name in taken:
        assert mounted.zone.read(name) == b"a coworker's\n"
        assert len(mounted.zone.versions(name)) == 1
    copies = [name for name in mounted.zone.tree() if "(conflict" in name]
    assert sorted(name[:4] for name in copies) == taken
