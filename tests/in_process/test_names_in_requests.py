"""Paths in requests to the daemon that no entry can have."""

import os

import pytest

from tests.harness.machine import Mounted
from tests.harness.virtual_mount import ZONE
from tests.in_process.test_entry_states import virtual
from zonedrive.errors import ZonedriveError

BYTES = os.fsdecode(b"no\xff.txt")


@pytest.mark.parametrize(
    ("command", "folder"),
    [("status", "docs/.versions/"), ("sync", ""), ("send", ""), ("pin", ""), ("unpin", ""),
     ("versions", "")],
)  # fmt: skip
def test_a_name_that_is_not_unicode_does_not_exist(
    desk: Mounted, command: str, folder: str
) -> None:
    """The error names the path, as for any other name."""
    path = f"{ZONE}/{folder}{BYTES}"
    with pytest.raises(ZonedriveError, match="does not exist") as refused:
        virtual(desk).command(command, paths=[path], path=path, timeout=0)
    assert path in str(refused.value)


@pytest.mark.parametrize("path", [BYTES, f"{BYTES}/a.txt", f"{ZONE}/{BYTES}/a.txt"])
def test_a_folder_that_is_not_unicode_does_not_exist(desk: Mounted, path: str) -> None:
    with pytest.raises(ZonedriveError, match="does not exist"):
        virtual(desk).command("status", paths=[path])


def test_the_place_of_a_name_that_is_not_unicode_is_missing(desk: Mounted) -> None:
    """With this answer, `share` and `unshare` say that it does not exist, and `log` finds no
    message."""
    assert virtual(desk).command("place", path=f"{ZONE}/{BYTES}")["missing"] is True


def test_a_name_that_is_not_unicode_is_not_in_the_database(desk: Mounted) -> None:
    """After a start, the names of a listed folder are not in memory."""
    path = f"{ZONE}/docs/{BYTES}"
    desk.system.listdir(desk.root / "docs")
    desk.restart()
    assert virtual(desk).command("states", paths=[path, f"{path}/a"])["states"] == [None, None]
    with pytest.raises(ZonedriveError, match="does not exist"):
        virtual(desk).command("pin", paths=[path])
