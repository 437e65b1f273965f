"""`zonedrive pause`, `resume` and `send` on a mount, from the shell."""

import os

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

BIG = os.urandom(3_000_000)


@pytest.mark.mount("upload_limit=20000", "connections=2")
def test_a_pause_from_the_shell(mounted: Mounted) -> None:
    """A long upload is put back without a version, and sent after `resume`; `send` sends one file.

    With the limit, the upload takes minutes on any machine. The second mount has no limit.
    """
    machine, root = mounted.machine, mounted.root
    (root / "film.bin").write_bytes(BIG)

    def film() -> dict[str, object]:
        found = {each["path"].rpartition("/")[2]: each for each in mounted.status()["uploads"]}
        return dict(found.get("film.bin", {}))

    eventually(lambda: film().get("sent"), what="it is on its way")
    assert machine.done("pause").startswith("uploads are paused; 1 file (2.9 MiB) waits")
    assert (film()["state"], film()["sent"]) == ("pending", 0)
    (root / "a.txt").write_bytes(b"one\n")
    (root / "b.txt").write_bytes(b"two\n")
    ended = machine.run("sync")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "3 files" in ended.stderr
    assert "uploads are paused; run 'zonedrive resume'" in ended.stderr
    assert "uploads are paused since" in machine.done("status")
    assert machine.done("send", root / "a.txt") == ""
    assert mounted.zone.read("a.txt") == b"one\n"
    ended = machine.run("logoff", "--timeout", "0")
    assert ended.returncode == 1
    assert "uploads are paused; run 'zonedrive resume' first" in ended.stderr

    ended = machine.run("unmount", mounted.path)
    assert ended.returncode == 0
    assert "uploads are paused, and continue after the next mount" in ended.stderr
    ended = machine.run("mount", mounted.path, "-oupload_limit=0")
    assert "uploads are paused; to end that, run 'zonedrive resume'" in ended.stderr
    assert (root / "film.bin").read_bytes() == BIG
    assert mounted.status()["outbox"]["pending"] == 2
    assert set(mounted.zone.listing()) & {"film.bin", "b.txt"} == set()
    assert machine.done("resume").startswith("uploads continue; 2 files")
    mounted.sync()
    assert mounted.zone.read("film.bin") == BIG
    assert len(mounted.zone.versions("film.bin")) == 1
    assert mounted.zone.read("b.txt") == b"two\n"
