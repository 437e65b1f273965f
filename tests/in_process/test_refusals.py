"""A service that refuses or fails: a clear error, no data loss; see also behaviour/."""

import errno
import time

import pytest
import trio

from tests.harness.fake_service import Node
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import virtual
from zonedrive.sandbox.errors import ApiError

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

WARNED = r"refused|logon|log on|not reached|cannot be reached"


def refusal(desk: Mounted, relative: str) -> int | None:
    """Return the errno of reading a file or listing a folder, or None."""
    try:
        if relative.endswith("/"):
            desk.names(desk.root / relative)
        else:
            (desk.root / relative).read_bytes()
    except OSError as wrong:
        return wrong.errno
    return None


@NOTHING_AHEAD
def test_a_refused_download(desk: Mounted) -> None:
    """A refused download gives a fitting errno, and works once access is granted."""
    desk.allow(WARNED)
    for status in READ_ERRNO:
        desk.zone.write(f"{status}.txt", b"theirs\n")
    for status, fitting in READ_ERRNO.items():
        name = f"{status}.txt"
        assert (desk.root / name).exists()
        with desk.deployment.faulty(status=status, method="GET", path="/content$"):
            assert refusal(desk, name) in fitting, status
        await_no_refusal(desk, name)
        assert (desk.root / name).read_bytes() == b"theirs\n"


@NOTHING_AHEAD
def test_a_refused_listing(desk: Mounted) -> None:
    """A folder that cannot be listed is never shown as an empty folder."""
    desk.allow(WARNED)
    for status in READ_ERRNO:
        desk.zone.make_folder(f"{status}")
        desk.zone.write(f"{status}/theirs.txt", b"theirs\n")
    for status, fitting in READ_ERRNO.items():
        assert (desk.root / f"{status}").is_dir()
        with desk.deployment.faulty(status=status, method="GET", path="/folder/"):
            assert refusal(desk, f"{status}/") in fitting, status
        await_no_refusal(desk, f"{status}/")
        assert desk.names(desk.root / f"{status}") == ["theirs.txt"]


def await_no_refusal(desk: Mounted, relative: str) -> None:
    """Wait until the path can be read or listed and the service counts as online."""
    eventually(lambda: refusal(desk, relative) is None, what=f"{relative} can be read")
    eventually(lambda: desk.status()["state"] == "online", what="the service is back")


def test_a_refused_upload_is_kept_shown_and_sent_later(desk: Mounted) -> None:
    """After any error of an upload, the file stays readable and is uploaded in the end."""
    desk.allow(WARNED)
    refusals = (400, 401, 403, 404, 409, 500, 502, 503)
    for status in refusals:
        desk.zone.write(f"{status}.txt", b"theirs\n")
    for status in refusals:
        path = desk.root / f"{status}.txt"
        with desk.deployment.faulty(status=status, method="POST", path="^/api/zones/"):
            path.write_bytes(b"mine\n")
            assert desk.try_sync(seconds=3) in (1, 3, 4), status
            (upload,) = desk.status()["uploads"]
            assert upload["path"] == f"{desk.root.name}/{path.name}"
            assert upload["state"] in ("failed", "pending", "uploading"), status
            assert path.read_bytes() == b"mine\n"
        eventually(
            lambda: desk.try_sync(seconds=20) == 0,
            what="the file is on the service",
        )
        assert desk.zone.read(path.name) == b"mine\n", status
        assert len(desk.zone.versions(path.name)) == 2, status


def test_a_refused_folder_does_not_block_other_files(desk: Mounted) -> None:
    """`sync` ends and names the refused folder, instead of waiting for its files."""
    desk.allow(WARNED)
    desk.deployment.fault(status=403, method="POST", path="/folders$")
    (desk.root / "plans").mkdir()
    (desk.root / "plans/a.txt").write_bytes(b"mine\n")
    (desk.root / "other.txt").write_bytes(b"mine\n")
    began = time.monotonic()  # of the virtual clock
    answer = desk.command("sync", timeout=600)
    assert time.monotonic() - began < 60
    assert answer["exit"] == 1
    assert f"{desk.root.name}/plans" in [each["path"] for each in answer["failed"]]
    assert desk.zone.read("other.txt") == b"mine\n"
    desk.deployment.heal()
    desk.sync()
    assert desk.zone.read("plans/a.txt") == b"mine\n"


@pytest.mark.parametrize("status", [500, 503])
def test_a_change_of_names_arrives_after_a_failure(desk: Mounted, status: int) -> None:
    """Folders that are created and entries that are renamed or removed during a failure are sent
    later."""
    desk.allow(WARNED)
    desk.zone.make_folder("void")
    desk.zone.write("old", b"theirs\n")
    eventually((desk.root / "void").is_dir, what="the new folder shows up")
    changes = (
        (desk.root / "new").mkdir,
        lambda: (desk.root / "notes.txt").rename(desk.root / "renamed"),
        (desk.root / "old").unlink,
        (desk.root / "void").rmdir,
    )
    for change in changes:
        with desk.deployment.faulty(status=status, path="^/api/sandbox/", times=2):
            change()
            desk.sync()
        assert set(desk.zone.listing()) == set(desk.names(desk.root))
    assert set(desk.names(desk.root)) == {"big.bin", "docs", "empty", "new", "renamed"}


@pytest.mark.mount("refresh=0")
def test_a_refused_list_of_zones_is_in_the_status(desk: Mounted) -> None:
    """The status shows the service's answer, until the service lists the zones again."""
    desk.allow(WARNED, "403", "rights")
    with desk.deployment.faulty(status=403, error="USER_INACTIVE", path="^/api/zones$"):
        assert refusal(desk, "../") == errno.EACCES
        assert "USER_INACTIVE" in desk.status()["notice"]
    desk.names(desk.root.parent)
    assert "notice" not in desk.status()


@pytest.mark.mount("settle=0")
def test_a_failing_file_is_not_sent_with_each_save_of_another(
    desk: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses between its attempts grow. Before, each success sent all its bytes again."""
    desk.allow(WARNED)
    service = virtual(desk).deployment.world
    store, attempts = service.upload, list[str]()

    def upload(zone_id: str, folder_id: str, name: str, data: bytes, user: str) -> Node:
        attempts.append(name)
        if name == "bad":
            raise ApiError(500, "FAILED", "An error")
        return store(zone_id, folder_id, name, data, user)

    monkeypatch.setattr(service, "upload", upload)
    (desk.root / "bad").write_bytes(b"bad\n")
    time.sleep(60)
    attempts.clear()
    for number in range(60):
        (desk.root / "good").write_bytes(b"%d" % number)
        time.sleep(2)
    assert attempts.count("good") == 60
    assert 1 <= attempts.count("bad") <= 16  # a pause is at least 7.5 s


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("number", [1, 8, 40])
def test_sync_ends_although_the_service_fails(desk: Mounted, number: int) -> None:
    """`sync` without a timeout reports what is not sent. Before, many files made it endless."""
    desk.allow(WARNED)
    desk.deployment.fault(status=500, method="POST", path="^/api/zones/")
    for each in range(number):
        (desk.root / f"new{each}").write_bytes(b"new\n")
    began = time.monotonic()

    async def sync() -> int:
        with trio.fail_after(600):
            code: int = (await virtual(desk).client.command("sync", timeout=None))["exit"]
            return code

    assert virtual(desk).call(sync) != 0
    assert time.monotonic() - began < 120
    desk.deployment.heal()
    desk.sync()
    assert len(desk.zone.listing()) == 4 + number
