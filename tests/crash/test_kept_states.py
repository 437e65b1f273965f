"""State folders that earlier versions of zonedrive left when they were killed, opened by this one.

The archives in `states` were made by earlier code: `0.1.0` by that of commit cf52775c (schema 5 of
the database, 2 of the cache index), `schema-8` by that of commit 842fcfe2, later on that day.
Each has the folders of the machine, what its sandbox had stored, and the content that programs saw
before the kill (`expected.json`, hexadecimal, null for a folder).  The client had: a decided
conflict, a pinned folder, an upload whose answer was lost, and, from a time without the service,
new files, edits, renames, a removal, moves and a save by temporary file and rename, none of them
sent.  With 0.1.0 it also had a file that is still open, a backup file, and names that this version
shows otherwise.
"""

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import damage
from tests.crash.mounts import Mortal
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.waiting import eventually
from tests.harness.workplace import Tree, content
from zonedrive.state.names import safe

STATES = Path(__file__).with_name("states")
CONFLICT = "both (conflict, "
PINNED = "pinned"
LOCAL = {"notes~"}
VERSIONS = {"sent once.txt": 1, "edited.txt": 2, "replaced.txt": 2, "new name.txt": 1}


@pytest.fixture(params=["0.1.0", "schema-8"])
def left(request: pytest.FixtureRequest) -> Iterator[tuple[Mortal, Tree]]:
    """Yield the folders that an earlier version left; their service starts at another port."""
    with tempfile.TemporaryDirectory(prefix="zdk", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with tarfile.open(STATES / f"{request.param}.tar.xz") as archive:
            # Python before 3.11.4 has no filters; later versions ask for one.
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)
            archive.extractall(folder)
        expected = {
            path: None if data is None else bytes.fromhex(data)
            for path, data in json.loads((folder / "expected.json").read_bytes()).items()
        }
        service = folder / "service"
        (service / "data" / "port").unlink()
        deployment = Deployment(service, world_file=service / "world.toml")
        machine = Machine(folder / "machine")
        for path in (machine.state / "account.json", machine.state / "account.copy.json"):
            account = json.loads(path.read_bytes())
            account |= {"base_url": deployment.base_url, "ca_file": str(machine.state / "ca.pem")}
            path.write_text(json.dumps(account))
        mount = Mortal(machine, deployment, "Zone 01", ["settle=0", "refresh=600"])
        mount.allow("kept as a conflict copy")  # in the log of then
        try:
            machine.log_on(deployment, profile="sandbox")  # the session of then has ended
            yield mount, expected
        finally:
            mount.tear_down()
            deployment.close()
            shutil.rmtree(machine.folders["RUNTIME_DIR"], ignore_errors=True)


def test_an_earlier_outbox_is_shown_and_sent_once(left: tuple[Mortal, Tree]) -> None:
    """Every change arrives under its name as one version; conflicts and pins are still listed."""
    mount, expected = left
    mount.mount()
    assert content(mount.root) == {
        "/".join(map(safe, path.split("/"))): data for path, data in expected.items()
    }
    mount.sync()
    assert mount.zone.tree() == {path: data for path, data in expected.items() if path not in LOCAL}
    assert {name: len(mount.zone.versions(name)) for name in VERSIONS} == VERSIONS
    local = len(LOCAL & expected.keys())
    eventually(lambda: len(mount.outgoing()) == local, what="no sent bytes are left")
    (conflict,) = json.loads(mount.machine.done("conflicts", "--json"))
    assert CONFLICT in json.dumps(conflict)
    assert f"Zone 01/{PINNED}" in mount.machine.done("pin")
    assert mount.complaints() == []


def test_a_damaged_earlier_database_loses_no_bytes(left: tuple[Mortal, Tree]) -> None:
    """Bytes that were not sent are found again, with their names if these are still readable."""
    mount, expected = left
    known = set(mount.zone.tree())
    damage.lose_table(mount.machine.state / "tree.db", "inodes")
    mount.mount()
    found = {data for data in content(mount.path).values() if data is not None}
    unsent = {data for path, data in expected.items() if path not in known and data is not None}
    assert len(unsent) > len(VERSIONS)
    assert unsent <= found
