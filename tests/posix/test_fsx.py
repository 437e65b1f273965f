"""Random operations on one file on a mount: the view of programs, and the versions on the
service."""

import hashlib
import random
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.posix.fsx import Exerciser, Mismatch, Op, exercise, operations

START = random.Random(3).randbytes(200_001)


def arrived(mounted: Mounted, done: Exerciser) -> list[bytes]:
    """Return digests of all versions on the service after the upload; the content must be right."""
    mounted.sync()
    name = done.path.name
    assert mounted.zone.read(name) == bytes(done.model)
    assert {each for each in mounted.zone.listing() if each.startswith("fsx")} <= {
        name,
        f"{name}.new",  # where it was uploaded before it could be renamed, and cannot be deleted
    }
    found = []
    entry_id = mounted.zone.entry_id(name)
    for version in mounted.zone.versions_id(entry_id):
        content = mounted.zone.read_version(entry_id, version["version"])
        found.append(hashlib.sha256(content).digest())
    return found


@pytest.mark.mount("settle=30")
def test_a_new_file_is_a_file(mounted: Mounted) -> None:
    """Reads, writes, mappings, truncations, appends and renames agree, byte by byte."""
    done = exercise(mounted.root / "fsx.bin", list(operations(11, 3000)))
    assert len(arrived(mounted, done)) == 1


@pytest.mark.mount("settle=0")
def test_uploads_all_the_time_change_nothing_below_the_writer(mounted: Mounted) -> None:
    """With fast or slow uploads at every close, only complete states become versions."""
    quick = exercise(mounted.root / "fsx.bin", list(operations(12, 1500)))
    with mounted.deployment.faulty(latency_ms=15):
        slow = exercise(quick.path, list(operations(17, 800)), bytes(quick.model))
    found = arrived(mounted, slow)
    assert found  # how many depends on the speed of the service
    assert set(found) <= {*quick.whole, *slow.whole}


@pytest.mark.mount("settle=0", profile="published")
def test_a_file_of_the_service_that_was_never_read(mounted: Mounted) -> None:
    """The same holds for a file that is not cached, with the profile that cannot rename."""
    mounted.zone.write("fsx.bin", START)
    ops = list(operations(13, 1500, leave_out=["replace"]))
    found = arrived(mounted, exercise(mounted.root / "fsx.bin", ops, START))
    assert len(found) > 1


@pytest.mark.mount("settle=0")
def test_a_service_that_comes_and_goes_is_not_noticed(mounted: Mounted) -> None:
    """Writing continues while the service is unreachable; the last state is uploaded afterwards."""
    path = mounted.root / "fsx.bin"
    path.write_bytes(START)
    mounted.sync()
    done = exercise(path, list(operations(14, 300)), START)
    with mounted.deployment.faulty(down=True):
        done = exercise(path, list(operations(15, 600)), bytes(done.model))
    with mounted.deployment.faulty(status=503, method="POST"):
        done = exercise(path, list(operations(16, 300)), bytes(done.model))
    assert arrived(mounted, done)[0] == hashlib.sha256(done.model).digest()


def test_the_exerciser_finds_and_shortens_a_failure(tmp_path: Path) -> None:
    """A byte that changes by itself is found, and reported with the few operations that matter."""

    class Rotten(Exerciser):
        """File that loses a byte whenever more than 100 are written at an offset over 1000."""

        def write(self, op: Op) -> None:
            super().write(op)
            if op.offset > 1000 and op.length > 100:
                self.model[op.offset] ^= 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.posix.fsx.Exerciser", Rotten)
        with pytest.raises(Mismatch) as found:
            exercise(tmp_path / "a", list(operations(1, 200)))
    assert str(found.value).split("shortest:")[1].count("Op(") <= 3
