"""Programs that have a former version of a file open."""

import time

import pytest

from tests.harness.machine import Mounted

pytestmark = pytest.mark.mount("settle=0", "refresh=1")


@pytest.mark.parametrize("own", [b"short", b"longer than the former version\n" * 9])
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
def test_a_version_of_another_program_stays_readable(desk: Mounted, own: bytes, name: str) -> None:
    """A program has the file open while another one saves it, and then a coworker."""
    path, theirs = desk.root / name, b"their version"
    if name == "new.txt":
        path.write_bytes(b"the first of two versions here")
    with path.open("rb", buffering=0) as reader:
        reader.read(1)
        path.write_bytes(own)
        desk.sync()
        desk.zone.write(name, theirs)
        time.sleep(5)
        assert path.read_bytes() == theirs
        reader.seek(0)
        assert reader.read(1000) == own
