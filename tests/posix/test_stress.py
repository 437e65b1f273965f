"""Several processes work in one folder at random: no errors, and the service ends up the same."""

import pytest

from tests.harness.machine import Mounted
from tests.harness.workplace import content
from tests.posix.stress import stress


def size(tree: dict[str, bytes | None], path: str) -> int:
    """Return the size of a file; -1 for a folder."""
    data = tree[path]
    return -1 if data is None else len(data)


@pytest.mark.mount("settle=0", "refresh=1")
def test_several_processes_at_once(mounted: Mounted) -> None:
    """Each process gets the errnos of a local disk, and no file changes unexpectedly.

    In the end the service has exactly what the folder shows.
    """
    mounted.allow("sync.dispatcher: inode .* refused")  # an outdated step is done again
    folder = mounted.root / "work"
    folder.mkdir()
    assert stress(folder, processes=3, operations=300, seed=5) == []
    mounted.sync()
    here = content(folder)
    assert len(here) > 5
    found = mounted.zone.tree("work")
    there = {path.removeprefix("work/"): data for path, data in found.items()}
    assert {path: size(there, path) for path in there} == {path: size(here, path) for path in here}
    assert there == here
    mounted.restart()
    assert content(folder) == here
