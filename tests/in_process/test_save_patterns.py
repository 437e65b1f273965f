"""Saves of real programs: the service gets one new version of the same file and nothing else.

The recordings in tests/traces/data are repeated call by call: on a plain folder, which gives the
expected names and bytes, and on a mount with the profile of the recording, because programs behave
differently if a rename or a removal is refused.
"""

from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.harness.workplace import Workplace, content
from tests.traces import player
from tests.traces.trace import DATA, expand, load

TRACES = {path.stem: load(path) for path in sorted(DATA.glob("*.json"))}
MOUNTED = (
    "emacs.sandbox", "git-work-tree.sandbox", "keepassxc.published", "libreoffice-store.sandbox",
    "mousepad.sandbox", "rsync-a.sandbox", "tar-x.sandbox", "vim-typed.published", "vim.sandbox",
)  # fmt: skip
CASES = [
    pytest.param(name, marks=pytest.mark.mount("settle=30", "refresh=0.5", profile=trace.profile))
    for name, trace in TRACES.items()
]


@pytest.mark.also_mounted(name=MOUNTED)
@pytest.mark.parametrize("name", CASES)
def test_a_program_saves(desk: Mounted, tmp_path: Path, name: str) -> None:
    """A program leaves the same files as on a local disk, and one version on the service."""
    trace = TRACES[name]
    desk.zone.make_folder(name)
    for path, kept in sorted(trace.before.items()):
        if kept is None:
            desk.zone.make_folder(f"{name}/{path}")
        else:
            desk.zone.write(f"{name}/{path}", expand(kept))
    plain = tmp_path / "plain"
    plain.mkdir()
    player.prepare(plain, trace)
    before = content(plain)
    for _ in player.Player(plain, refuses=False).play(trace):
        pass
    place, folder = Workplace(desk), desk.root / name
    eventually(lambda: content(folder) == before, what="the folder shows")
    known = place.known(name)
    for _ in player.Player(folder, refuses=True, system=desk.system).play(trace):
        pass
    assert content(folder) == content(plain)
    place.check(name, before, known)
    assert content(folder) == content(plain)
