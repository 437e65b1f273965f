"""Local-only names: files that programs create next to a file while they edit it.

The list must be safe: a name that could be a person's document must not be on it, because nobody
would notice that the document is missing on the service.
"""

import fcntl
import os
from fnmatch import fnmatch

import pytest

from tests.harness.machine import Mounted
from zonedrive.config import LOCAL_ONLY

both_profiles = pytest.mark.parametrize(
    "_profile",
    [
        pytest.param(name, marks=pytest.mark.mount("settle=60", profile=name))
        for name in ("sandbox", "published")
    ],
)

LOCAL_NAMES = (
    ".~lock.Report.odt#", "lu55988ch5w.tmp", ".notes.txt.swp", ".notes.txt.swo", ".swp",
    "notes.swp", ".notes.txt.swx", "4913", "notes.txt~", "notes.txt.un~", ".notes.txt.kate-swp",
    ".#notes.txt", "#notes.txt#", ".goutputstream-OCY5Y3", ".~tmp~", "~$Report.docx", ".DS_Store",
    "._notes.txt", ".xdp-.~lock.notes.txt#-qO3971",
    ".Trash-1000", ".Trash", ".fuse_hidden0000000300000001", ".nfs000000000000001400000001",
)  # fmt: skip
PEOPLES_NAMES = (
    "intro.swf", "library.swc", "macro.swb", "swp", "swap.txt", "4914", "lunch.txt", "letter.tmp",
    ".notes.txt.26lczb", "poetry.lock", "index.lock", "#1 hit", "DS_Store", ".nfsrc", "lock.odt",
    "notes.bak", "notes.orig", ".Trashed", "notes.txt.part",
)  # fmt: skip


def test_every_default_glob_has_a_name_here() -> None:
    """Each default glob has a test name, with the program that creates it."""
    assert {glob for glob in LOCAL_ONLY if not any(fnmatch(n, glob) for n in LOCAL_NAMES)} == set()


@both_profiles
def test_lock_swap_and_probe_files_come_and_go(mounted: Mounted, _profile: str) -> None:
    """Local-only files can be created, locked, renamed and removed without a request."""
    before = mounted.zone.listing()
    for name in LOCAL_NAMES:
        path = mounted.root / name
        with path.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b"pid 4711\n")
            os.fsync(file.fileno())
        assert os.getxattr(path, "user.zonedrive.state") == b"local", name
    mounted.sync()
    assert mounted.zone.listing() == before
    for name, other in zip(LOCAL_NAMES, [*LOCAL_NAMES[1:], LOCAL_NAMES[0]], strict=True):
        (mounted.root / name).replace(mounted.root / other)
    (mounted.root / LOCAL_NAMES[0]).unlink()
    mounted.sync()
    assert mounted.zone.listing() == before
    assert not {*LOCAL_NAMES} & {*os.listdir(mounted.root)}


@pytest.mark.mount("settle=60", profile="published")
def test_a_persons_document_is_not_taken_for_one(mounted: Mounted) -> None:
    """Files with merely similar names are uploaded as usual."""
    for name in PEOPLES_NAMES:
        (mounted.root / name).write_bytes(b"mine\n")
    mounted.sync()
    assert mounted.zone.listing().keys() >= set(PEOPLES_NAMES)
