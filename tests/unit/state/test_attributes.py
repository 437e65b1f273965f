"""Attributes of an entry that programs see."""

import stat
from typing import Any

import pytest

from zonedrive.model import Attributes
from zonedrive.state.attributes import Owner, Rules, attr_of, permissions
from zonedrive.state.inode import NOWHERE, Inode, Kind

OWNER = Owner(1000, 1001)


@pytest.mark.parametrize(
    ("kind", "flags", "mode"),
    [
        (Kind.FILE, Attributes(), 0o600),
        (Kind.FOLDER, Attributes(), 0o700),
        (Kind.ZONE, Attributes(), 0o700),
        (Kind.ROOT, Attributes(), 0o555),
        (Kind.FILE, Attributes(executable=True), 0o600),
        (Kind.FILE, Attributes(write_protected=True), 0o400),
        (Kind.FILE, Attributes(read_protected=True), 0o200),
        (Kind.FOLDER, Attributes(write_protected=True), 0o500),
    ],
)
def test_permissions_are_private_and_follow_the_service(
    kind: Kind, flags: Attributes, mode: int
) -> None:
    """Other users of the machine have no access, and protection on the service is visible."""
    assert permissions(Inode(2, 1, "a", kind, attributes=flags), Rules()) == mode


def test_a_coworkers_executable_attribute_needs_the_setting() -> None:
    """A coworker's program is executable only with the setting."""
    program = Inode(2, 1, "a", Kind.FILE, attributes=Attributes(executable=True))
    assert permissions(program, Rules(keep_executable=True)) == 0o700


def test_chmod_is_kept() -> None:
    """A script stays executable."""
    assert permissions(Inode(2, 1, "a", Kind.FILE, mode=0o755), Rules()) == 0o755


def test_the_stat_fields() -> None:
    """Size and times are the entry's, the owner is the user who mounted."""
    attr = attr_of(Inode(7, 1, "a", Kind.FILE, size=5, mtime_ns=3, ctime_ns=4), OWNER, Rules(), 9.0)
    assert stat.S_ISREG(attr.mode)
    assert (attr.ino, attr.size, attr.mtime_ns, attr.ctime_ns, attr.nlink) == (7, 5, 3, 4, 1)
    assert (attr.uid, attr.gid, attr.attr_timeout, attr.entry_timeout) == (1000, 1001, 9.0, 9.0)


def test_an_unlinked_file_has_no_link() -> None:
    """fstat on a deleted file that is still open shows no links."""
    assert attr_of(Inode(7, NOWHERE, "a", Kind.FILE), OWNER, Rules(), 0).nlink == 0


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (Attributes(write_protected=True), 0o555), (Attributes(read_protected=True), 0o333),
        (Attributes(write_protected=True, read_protected=True), 0o111),
    ],
)  # fmt: skip
def test_chmod_never_lifts_a_protection(flags: Attributes, kept: int) -> None:
    """No bit of the owner, the group or others is left."""
    inode = Inode(2, 1, "a", Kind.FILE, mode=0o777, attributes=flags)
    assert permissions(inode, Rules()) == kept


@pytest.mark.parametrize(
    ("kind", "fields", "protected", "mode"),
    [
        (Kind.FILE, {"remote_id": "1"}, True, 0o400),
        (Kind.FOLDER, {"remote_id": "1"}, True, 0o700),
        (Kind.FILE, {}, False, 0o600), (Kind.FILE, {"remote_id": "1", "local": True}, False, 0o600),
        (Kind.ZONE, {"remote_id": "1"}, False, 0o700),
        (Kind.FILE, {"remote_id": "1", "zone": "other"}, False, 0o600),
    ],
)  # fmt: skip
def test_the_add_only_level_protects_what_the_service_has(
    kind: Kind, fields: dict[str, Any], protected: bool, mode: int
) -> None:
    """New and local files can be changed; folders stay writable, so that files can be added."""
    inode = Inode(2, 1, "a", kind, **{"zone": "z", **fields})
    rules = Rules(add_only=frozenset({"z"}))
    assert rules.are_against(inode) == protected
    assert permissions(inode, rules) == mode
