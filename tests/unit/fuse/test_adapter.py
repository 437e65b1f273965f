"""Handlers on a real mount, with a file system in memory."""

import errno
import os
import subprocess
import threading

import pytest

from tests.harness.waiting import eventually
from tests.unit.fuse.mounted import Mount


def test_opening_with_truncation_reaches_open(mount: Mount) -> None:
    """`> file` truncates the file in `open`: the kernel sends no separate truncation."""
    served = mount()
    path = served.path / "a.txt"
    path.write_bytes(b"old content")
    before = served.tell()["calls"].get("setattr", 0)
    path.write_bytes(b"new")
    seen = served.tell()
    assert path.read_bytes() == b"new"
    assert seen["calls"].get("setattr", 0) == before
    assert any(flags & os.O_TRUNC for flags in seen["flags"])


def test_a_large_folder_is_listed_whole_with_one_stat_for_free(mount: Mount) -> None:
    """`ls -l` of many entries looks up no single entry, and shows each of them once."""
    served = mount()
    names = {f"file {number:05}.txt" for number in range(5000)}
    served.tell(put=[*names], data="x", quietly=True)  # or the kernel may hear of it in between
    before = served.tell()["calls"]
    with os.scandir(served.path) as entries:
        sizes = {entry.name: entry.stat().st_size for entry in entries}
    after = served.tell()["calls"]
    assert set(sizes) == names
    assert set(sizes.values()) == {1}
    assert after.get("lookup", 0) == before.get("lookup", 0)


def test_a_folder_that_stays_as_it_is_is_encoded_once(mount: Mount) -> None:
    """Repeated listings cost almost nothing, and a change is still visible."""
    served = mount()
    for name in ("a.txt", "b.txt"):
        served.tell(put=name, data="x")
    for _ in range(5):
        assert sorted(os.listdir(served.path)) == ["a.txt", "b.txt"]
    assert served.tell()["calls"]["readdir"] == 1
    served.tell(put="b.txt", data="longer")
    served.tell(put="c.txt", data="")
    with os.scandir(served.path) as entries:
        assert {entry.name for entry in entries} == {"a.txt", "b.txt", "c.txt"}
    assert served.tell()["calls"]["readdir"] == 2
    assert (served.path / "b.txt").stat().st_size == 6


def test_the_kernels_references_are_counted(mount: Mount) -> None:
    """Each name from a lookup, a creation or a listing counts; `.` does not."""
    served = mount()
    served.tell(put="seen.txt", data="x", quietly=True)
    served.tell(put="listed.txt", data="x", quietly=True)
    (served.path / "seen.txt").stat()
    (served.path / "made.txt").touch()
    assert served.tell()["lookups"] == {"seen.txt": 1, "made.txt": 1}
    assert len(os.listdir(served.path)) == 3
    counts = served.tell()["lookups"]
    assert counts["listed.txt"] == 1
    assert counts["seen.txt"] >= 1


def test_attributes_are_read_and_foreign_ones_cost_nothing(mount: Mount) -> None:
    """User attributes can be read; other attribute names never reach the file system."""
    served = mount()
    path = served.path / "a.txt"
    path.write_text("x")
    assert os.getxattr(path, "user.zonedrive.id").isdigit()
    assert os.listxattr(path) == ["user.zonedrive.id", "user.zonedrive.zone"]
    for name in ("security.capability", "system.posix_acl_access", "trusted.x"):
        with pytest.raises(OSError, match="not supported") as none:
            os.getxattr(path, name)
        assert none.value.errno == errno.ENOTSUP
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(path, "user.other", b"x")
    path.write_text("more")  # makes the kernel ask for security.capability
    assert served.tell()["calls"]["getxattr"] == 1


def test_a_missing_name_is_remembered_where_that_is_allowed(mount: Mount) -> None:
    """Desktops look for a trash in each new mount; only such names are cached as missing."""
    served = mount()
    for _ in range(5):
        assert not (served.path / "never").exists()
    assert served.tell()["calls"]["lookup never"] == 1
    for _ in range(3):
        assert not (served.path / "perhaps").exists()
    assert served.tell()["calls"]["lookup perhaps"] == 3


@pytest.mark.parametrize(
    ("error", "number"), [("Unreachable", errno.ENETUNREACH), ("KeyError", errno.EIO)]
)
def test_an_error_reaches_the_program_and_the_mount_lives_on(
    mount: Mount, error: str, number: int
) -> None:
    """Every error becomes an errno for the calling program; none ends the mount."""
    served = mount()
    served.tell(put="a.txt", data="x")
    served.tell(fail={"open": error})
    with pytest.raises(OSError, match=os.strerror(number)) as refused:
        (served.path / "a.txt").read_bytes()
    assert refused.value.errno == number
    served.tell(fail={})
    assert (served.path / "a.txt").read_bytes() == b"x"
    _, said = served.stop()
    assert ("KeyError" in said) == (error == "KeyError")


def test_changes_on_the_service_are_visible(mount: Mount) -> None:
    """Cached attributes, pages and names are dropped when the service has newer ones."""
    served = mount()
    path = served.path / "a.txt"
    served.tell(put="a.txt", data="first")
    assert path.read_text() == "first"
    served.tell(put="a.txt", data="the second version")
    eventually(lambda: path.stat().st_size == 18 and path.read_text() == "the second version")
    served.tell(remove="a.txt")
    eventually(lambda: not path.exists())
    assert not (served.path / "never").exists()


def test_one_stuck_request_does_not_stop_the_others(mount: Mount) -> None:
    """While a lookup waits, other files can be read and changes are sent to the kernel."""
    served = mount()
    (served.path / "sub").mkdir()
    (served.path / "sub" / "b.txt").write_text("b")
    served.tell(put="a.txt", data="first")
    assert (served.path / "a.txt").read_text() == "first"
    before = served.tell(stall=["lookup"])["calls"]["lookup"]
    with subprocess.Popen(["stat", served.path / "stuck"], stderr=subprocess.PIPE) as stuck:
        eventually(lambda: served.tell()["calls"]["lookup"] > before)
        served.tell(put="a.txt", data="second one")
        descriptor = os.open(served.path / "sub" / "b.txt", os.O_RDONLY)
        assert os.read(descriptor, 10) == b"b"
        os.close(descriptor)
        served.stop()
        assert b"not connected" in stuck.communicate(timeout=60)[1]


def test_waiting_programs_get_an_error_at_the_end(mount: Mount) -> None:
    """SIGTERM unmounts at once: waiting programs get an error, and none hangs."""
    served = mount()
    path = served.path / "a.txt"
    served.tell(put="a.txt", data="x" * 100)
    errors: list[int | None] = []

    def read() -> None:
        try:
            path.read_bytes()
        except OSError as wrong:
            errors.append(wrong.errno)

    served.tell(stall=["read"])
    readers = [threading.Thread(target=read) for _ in range(20)]
    for reader in readers:
        reader.start()
    eventually(lambda: served.tell()["calls"].get("open", 0) == len(readers))
    eventually(lambda: served.tell()["calls"].get("read", 0) > 0)
    served.tell(put="a.txt", data="y")  # the kernel waits for the pages that are being read
    said, log = served.stop()
    for reader in readers:
        reader.join(60)
    assert len(errors) == 20
    # The second one is the kernel's own, for what it had not handed over yet.
    assert set(errors) <= {errno.ENOTCONN, errno.ECONNABORTED}
    assert (said, log, served.process.returncode) == ("ended\n", "", 0)
    assert os.listdir(served.path) == []
