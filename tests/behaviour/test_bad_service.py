"""A service that fails, disconnects or loses its state; see also in_process/test_refusals.py."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

# With so few connections nothing is listed or fetched before it is asked for.
NOTHING_AHEAD = pytest.mark.mount("connections=2")

WARNED = r"refused|logon|log on|not reached|cannot be reached|conflict copy|deleted on the service"


def refusal(mounted: Mounted, relative: str) -> int | None:
    """Return the errno of reading a file or listing a folder, or None."""
    path = mounted.root / relative
    try:
        if relative.endswith("/"):
            os.listdir(path)
        else:
            path.read_bytes()
    except OSError as wrong:
        return wrong.errno
    return None


def test_a_file_is_read_over_many_short_connections(mounted: Mounted) -> None:
    """A proxy that ends each connection after a few bytes makes a file slow, but not unreadable."""
    theirs = os.urandom(1 << 20)
    mounted.zone.write("theirs.bin", theirs)
    eventually((mounted.root / "theirs.bin").exists, what="the file shows up")
    with mounted.deployment.faulty(cut_after=20_000, method="GET", path="/content$"):
        assert (mounted.root / "theirs.bin").read_bytes() == theirs


@NOTHING_AHEAD
def test_a_download_that_is_always_interrupted_is_an_error(mounted: Mounted) -> None:
    """An incomplete download is an error, never a short file, and the reason can be found."""
    mounted.allow(WARNED)
    run, place = mounted.machine.run, f"{mounted.root.name}/notes.txt"

    def check() -> dict[str, object]:
        found = json.loads(run("doctor", "--json").stdout)["checks"]
        (downloads,) = [each for each in found if each["name"] == "downloads"]
        return dict(downloads)

    assert (mounted.root / "notes.txt").exists()
    with mounted.deployment.faulty(cut_after=0, method="GET", path="/content$"):
        assert refusal(mounted, "notes.txt") is not None
    assert mounted.log().count("its content could not be fetched: reading a file: ") == 1
    assert f"{place} could not be fetched recently: reading a file: " in mounted.status()["notice"]
    assert "could not be fetched recently" in " ".join(run("status").stdout.split())
    failed = check()
    assert not failed["ok"]
    assert "notes.txt" not in str(failed)
    eventually(lambda: refusal(mounted, "notes.txt") is None, what="the file can be read")
    assert "notice" not in mounted.status()
    assert check()["ok"]


def test_an_interrupted_listing_is_never_shown_in_part(mounted: Mounted) -> None:
    """A truncated listing is requested again or gives an error; no entry is missing."""
    mounted.allow(WARNED)
    with mounted.deployment.faulty(cut_after=100, times=2, method="GET", path="/folder/"):
        found = refusal(mounted, "docs/")
    if found is None:
        assert set(os.listdir(mounted.root / "docs")) == set(mounted.zone.listing("docs"))


@pytest.mark.mount("refresh=0.2")
def test_a_slow_service_does_not_block_known_folders(mounted: Mounted) -> None:
    """A folder that was listed before is listed within seconds, however slow the service is."""
    names = os.listdir(mounted.root)
    mounted.allow(WARNED)
    with mounted.deployment.faulty(stall=300):
        started = time.monotonic()
        assert os.listdir(mounted.root) == names
        assert time.monotonic() - started < 14  # not the 15 that a listing has


def test_a_lost_reply_to_a_change_of_names(mounted: Mounted) -> None:
    """A creation, rename or deletion whose reply was lost happens once, and blocks nothing."""
    root = mounted.root
    changes: dict[str, Callable[[], object]] = {
        "POST": (root / "new").mkdir,
        "PUT": lambda: (root / "notes.txt").rename(root / "renamed.txt"),
        "DELETE": (root / "renamed.txt").unlink,
    }
    for verb, change in changes.items():
        with mounted.deployment.faulty(
            drop_reply=True, times=1, method=verb, path="^/api/sandbox/"
        ):
            change()
            mounted.sync()
        assert set(mounted.zone.listing()) == set(os.listdir(root)), verb
    assert set(os.listdir(root)) == {"big.bin", "docs", "empty", "new"}


@pytest.mark.mount("refresh=0.2")
def test_a_file_deleted_on_the_service_can_be_read_to_its_end(mounted: Mounted) -> None:
    """A reader of a file that a coworker deletes keeps the bytes read so far, or gets an error."""
    with (mounted.root / "notes.txt").open("rb") as file:
        assert file.read(5) == b"first"
        mounted.zone.delete("notes.txt")
        eventually(
            lambda: not (mounted.root / "notes.txt").exists(), what="the deleted file is gone"
        )
        file.seek(0)
        assert file.read() == b"first line\nsecond line\n"


@pytest.mark.mount("refresh=0.2")
def test_pending_files_survive_the_deletion_of_their_folder(mounted: Mounted) -> None:
    """Pending files in a folder that a coworker deletes stay readable and stay pending."""
    mounted.allow(WARNED)
    with mounted.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        (mounted.root / "docs/mine.txt").write_bytes(b"mine\n")
        mounted.zone.delete("docs")
        eventually(lambda: not (mounted.root / "docs/report.md").exists(), what="the rest is gone")
        assert (mounted.root / "docs/mine.txt").read_bytes() == b"mine\n"
        waits = mounted.status()["outbox"]
        assert waits["pending"] + waits["uploading"] + waits["failed"] >= 1, waits


def test_the_service_comes_back_and_everything_goes_on(mounted: Mounted) -> None:
    """While offline, files are saved and cached ones read; back online, all changes are
    uploaded."""
    mounted.allow(WARNED)
    known = (mounted.root / "notes.txt").read_bytes()
    with mounted.deployment.faulty(down=True):
        (mounted.root / "offline.txt").write_bytes(b"written in a train\n")
        (mounted.root / "folder").mkdir()
        (mounted.root / "folder/inside.txt").write_bytes(b"inside\n")
        assert (mounted.root / "notes.txt").read_bytes() == known
        eventually(lambda: mounted.status()["state"] == "offline", what="it notices")
        started = time.monotonic()
        assert refusal(mounted, "big.bin") is not None
        assert time.monotonic() - started < 60
    eventually(lambda: mounted.status()["outbox"]["pending"] == 0, what="all has been sent")
    mounted.sync()
    assert mounted.zone.read("folder/inside.txt") == b"inside\n"
    assert mounted.zone.read("offline.txt") == b"written in a train\n"


@pytest.fixture
def as_carol(machine: Machine, deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """Yield a mount of a member who can be removed from a zone."""
    machine.log_on(deployment, name="carol", profile="sandbox")
    with Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.3"]).mounting() as mount:
        yield mount


def test_a_zone_that_the_user_loses_disappears(as_carol: Mounted) -> None:
    """A zone that the user loses disappears; its open files give an error, other zones stay."""
    root = as_carol.root
    zones = set(os.listdir(as_carol.path))
    with (root / "big.bin").open("rb") as file:
        assert file.read(10)
        alice = as_carol.deployment.person("alice").http
        where = f"/api/sandbox/zones/{as_carol.zone.id}/members/carol@acme.example"
        assert alice.put(where, params={"accesslevel": "None"}).status_code == 204
        eventually(lambda: not root.exists(), what="the zone is gone")
        file.seek(2_000_000)
        with contextlib.suppress(OSError):
            assert file.read(10) == alice_reads(as_carol)[2_000_000:2_000_010]
    assert set(os.listdir(as_carol.path)) == zones - {root.name}
    with pytest.raises(FileNotFoundError):
        os.listdir(root)


def alice_reads(mounted: Mounted) -> bytes:
    """Return the big file of the service."""
    return mounted.zone.read("big.bin")
