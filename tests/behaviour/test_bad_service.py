"""Downloads that fail, and zones that are listed ahead; see also in_process/test_refusals.py."""

import json
import os

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually


def is_refused(mounted: Mounted, name: str) -> bool:
    """Return True if a file cannot be read."""
    try:
        (mounted.root / name).read_bytes()
    except OSError:
        return True
    return False


# With so few connections nothing is listed or fetched before it is asked for.
@pytest.mark.mount("connections=2")
def test_the_reason_of_a_failed_download_can_be_found(mounted: Mounted) -> None:
    """The log, `status` and `doctor` report the failure, until the file can be read."""
    mounted.allow("not reached|cannot be reached")
    run, place = mounted.machine.run, f"{mounted.root.name}/notes.txt"

    def check() -> dict[str, object]:
        found = json.loads(run("doctor", "--json").stdout)["checks"]
        (downloads,) = [each for each in found if each["name"] == "downloads"]
        return dict(downloads)

    assert (mounted.root / "notes.txt").exists()
    with mounted.deployment.faulty(status=500, method="GET", path="/content$"):
        assert is_refused(mounted, "notes.txt")
    assert mounted.log().count("its content could not be fetched: reading a file: ") == 1
    assert f"{place} could not be fetched recently: reading a file: " in mounted.status()["notice"]
    assert "could not be fetched recently" in " ".join(run("status").stdout.split())
    failed = check()
    assert not failed["ok"]
    assert "notes.txt" not in str(failed)
    eventually(lambda: not is_refused(mounted, "notes.txt"), what="the file can be read")
    assert "notice" not in mounted.status()
    assert check()["ok"]


@pytest.mark.mount("connections=1")
def test_the_tops_of_zones_are_listed_also_over_a_single_connection(mounted: Mounted) -> None:
    """Zones are listed ahead over a single connection while no other request needs it."""
    zones = [each for each in mounted.path.iterdir() if each != mounted.root]
    eventually(
        lambda: {os.getxattr(each, "user.zonedrive.state") for each in zones} == {b"cached"},
        what="every zone has been listed",
    )
