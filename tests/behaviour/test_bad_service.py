"""A service that refuses, fails, disconnects or loses its state: a clear error, no data loss."""

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator

import pytest

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

# What a program is told for each answer of the service to a request that it waits for.
# (A service that fails several requests in a row counts as unreachable.)
READ_ERRNO = {
    401: {errno.EACCES},
    403: {errno.EACCES},
    404: {errno.ENOENT},
    409: {errno.EEXIST},
    500: {errno.EREMOTEIO},
    502: {errno.EREMOTEIO, errno.ENETUNREACH},
    503: {errno.EREMOTEIO, errno.ENETUNREACH},
}

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


@NOTHING_AHEAD
def test_a_refused_download(mounted: Mounted) -> None:
    """A refused download gives a fitting errno, and works once access is granted."""
    mounted.allow(WARNED)
    for status in READ_ERRNO:
        mounted.zone.write(f"{status}.txt", b"theirs\n")
    for status, fitting in READ_ERRNO.items():
        name = f"{status}.txt"
        assert (mounted.root / name).exists()
        with mounted.deployment.faulty(status=status, method="GET", path="/content$"):
            assert refusal(mounted, name) in fitting, status
        await_no_refusal(mounted, name)
        assert (mounted.root / name).read_bytes() == b"theirs\n"


@NOTHING_AHEAD
def test_a_refused_listing(mounted: Mounted) -> None:
    """A folder that cannot be listed is never shown as an empty folder."""
    mounted.allow(WARNED)
    for status in READ_ERRNO:
        mounted.zone.make_folder(f"{status}")
        mounted.zone.write(f"{status}/theirs.txt", b"theirs\n")
    for status, fitting in READ_ERRNO.items():
        assert (mounted.root / f"{status}").is_dir()
        with mounted.deployment.faulty(status=status, method="GET", path="/folder/"):
            assert refusal(mounted, f"{status}/") in fitting, status
        await_no_refusal(mounted, f"{status}/")
        assert os.listdir(mounted.root / f"{status}") == ["theirs.txt"]


def await_no_refusal(mounted: Mounted, relative: str) -> None:
    """Wait until the path can be read or listed and the service counts as online."""
    eventually(lambda: refusal(mounted, relative) is None, what=f"{relative} can be read")
    eventually(lambda: mounted.status()["state"] == "online", what="the service is back")


def test_a_refused_upload_is_kept_shown_and_sent_later(mounted: Mounted) -> None:
    """After any error of an upload, the file stays readable and is uploaded in the end."""
    mounted.allow(WARNED)
    refusals = (400, 401, 403, 404, 409, 500, 502, 503)
    for status in refusals:
        mounted.zone.write(f"{status}.txt", b"theirs\n")
    for status in refusals:
        path = mounted.root / f"{status}.txt"
        with mounted.deployment.faulty(status=status, method="POST", path="^/api/zones/"):
            path.write_bytes(b"mine\n")
            assert mounted.machine.run("sync", "--timeout", "3").returncode in (1, 3, 4), status
            (upload,) = mounted.status()["uploads"]
            assert upload["path"] == f"{mounted.root.name}/{path.name}"
            assert upload["state"] in ("failed", "pending", "uploading"), status
            assert path.read_bytes() == b"mine\n"
        eventually(
            lambda: mounted.machine.run("sync", "--timeout", "20").returncode == 0,
            what="the file is on the service",
        )
        assert mounted.zone.read(path.name) == b"mine\n", status
        assert len(mounted.zone.versions(path.name)) == 2, status


@pytest.mark.parametrize("status", [500, 503])
def test_a_change_of_names_arrives_after_a_failure(mounted: Mounted, status: int) -> None:
    """Folders that are created and entries that are renamed or removed during a failure are sent
    later."""
    mounted.allow(WARNED)
    mounted.zone.make_folder("void")
    mounted.zone.write("old", b"theirs\n")
    eventually((mounted.root / "void").is_dir, what="the new folder shows up")
    changes = (
        (mounted.root / "new").mkdir,
        lambda: (mounted.root / "notes.txt").rename(mounted.root / "renamed"),
        (mounted.root / "old").unlink,
        (mounted.root / "void").rmdir,
    )
    for change in changes:
        with mounted.deployment.faulty(status=status, path="^/api/sandbox/", times=2):
            change()
            mounted.sync()
        assert set(mounted.zone.listing()) == set(os.listdir(mounted.root))
    assert set(os.listdir(mounted.root)) == {"big.bin", "docs", "empty", "new", "renamed"}


def test_an_interrupted_download_is_completed(mounted: Mounted) -> None:
    """The reader does not notice a connection reset in the middle of a download."""
    with mounted.deployment.faulty(cut_after=1_000_000, times=1, method="GET", path="/content$"):
        assert (mounted.root / "big.bin").read_bytes() == mounted.zone.read("big.bin")


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


def test_a_lost_reply_to_a_new_file_makes_one_file(mounted: Mounted) -> None:
    """A new file whose reply was lost exists once, with one version."""
    with mounted.deployment.faulty(drop_reply=True, times=1, method="POST", path="^/api/zones/"):
        (mounted.root / "new.txt").write_bytes(b"new\n")
        mounted.sync()
    assert len(mounted.zone.versions("new.txt")) == 1
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt", "new.txt"}
    assert mounted.status()["outbox"]["conflicts"] == 0


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE"])
def test_a_lost_reply_to_a_change_of_names(mounted: Mounted, verb: str) -> None:
    """A creation, rename or deletion whose reply was lost happens once, and blocks nothing."""
    with mounted.deployment.faulty(drop_reply=True, times=1, method=verb, path="^/api/sandbox/"):
        match verb:
            case "POST":
                (mounted.root / "new").mkdir()
            case "PUT":
                (mounted.root / "notes.txt").rename(mounted.root / "renamed.txt")
            case "DELETE":
                (mounted.root / "notes.txt").unlink()
        mounted.sync()
    assert set(mounted.zone.listing()) == set(os.listdir(mounted.root))


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
def test_a_file_deleted_on_the_service_while_edited_is_kept(mounted: Mounted) -> None:
    """An edit of a file that a coworker deleted is uploaded as a new file, and reported."""
    mounted.allow(WARNED)
    with (mounted.root / "notes.txt").open("ab", buffering=0) as file:
        file.write(b"third line\n")
        mounted.zone.delete("notes.txt")
    mounted.sync()
    content = b"first line\nsecond line\nthird line\n"
    assert (mounted.root / "notes.txt").read_bytes() == content
    assert mounted.zone.read("notes.txt") == content
    assert mounted.status()["outbox"]["conflicts"] == 1


@pytest.mark.mount("refresh=0.2")
def test_a_folder_deleted_on_the_service_vanishes_here(mounted: Mounted) -> None:
    """A folder that a coworker deletes disappears; programs inside it get an error."""
    docs = mounted.root / "docs"
    assert os.listdir(docs)
    mounted.zone.delete("docs")
    eventually(lambda: not docs.exists(), what="the folder is gone")
    with pytest.raises(FileNotFoundError):
        os.listdir(docs)


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
