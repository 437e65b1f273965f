"""Web server in front of the service, with HTTP/2 and with connections that it closes."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment
from tests.harness.front import Front, front
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually
from tests.harness.world import SEED

FOLDERS = 60
BIG = 40 << 20  # bytes


@pytest.fixture
def behind(
    machine: Machine, deployment: Deployment, zone: str
) -> Callable[[Front], AbstractContextManager[Mounted]]:
    """Mount Alice's zones through a web server; unexpected warnings in the daemon's log fail the
    test."""

    @contextmanager
    def mount(server: Front, *options: str) -> Iterator[Mounted]:
        machine.log_on(server, profile="sandbox")
        with Mounted(machine, deployment, zone, ["settle=0.2", *options]).mounting() as mounted:
            yield mounted
        complaints = mounted.complaints()
        assert not complaints, "the daemon's log complains:\n" + "\n".join(complaints)

    return mount


def folders(mounted: Mounted) -> list[str]:
    """Create FOLDERS folders with a file each, as a coworker; return their names."""
    names = [f"folder {number:03}" for number in range(FOLDERS)]
    for name in names:
        mounted.zone.make_folder(name)
        mounted.zone.write(f"{name}/file.txt", name.encode())
    return names


def contents(root: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_small_requests_share_a_connection(
    deployment: Deployment, behind: Callable[[Front], AbstractContextManager[Mounted]]
) -> None:
    """With HTTP/2, listings and small files use one or two connections, and saves work."""
    with front(deployment) as server, behind(server) as mounted:
        names = folders(mounted)
        found = contents(mounted.root)
        assert found == dict(SEED) | {f"{name}/file.txt": name.encode() for name in names}
        (mounted.root / "new.txt").write_bytes(b"new")
        mounted.sync()
        assert mounted.zone.read("new.txt") == b"new"
        requests = [each for each in server.requests() if "/public/" not in each.path]
        small = [each for each in requests if each.protocol == "HTTP/2.0"]
        listings = [each for each in requests if "/folder/" in each.path]
        assert len(listings) >= FOLDERS
        assert all(each.protocol == "HTTP/2.0" for each in listings)
        # The logon's process has one of its own.
        assert len({each.connection for each in small}) <= 4, small
        assert not [each for each in requests if each.status >= 500]


def test_big_files_use_separate_connections(
    deployment: Deployment, behind: Callable[[Front], AbstractContextManager[Mounted]]
) -> None:
    """Big files are transferred over HTTP/1.1, which costs less CPU per byte."""
    with front(deployment) as server, behind(server) as mounted:
        data = os.urandom(1 << 20) * (BIG >> 20)
        mounted.zone.write("in.bin", data)
        assert (mounted.root / "in.bin").read_bytes() == data
        (mounted.root / "out.bin").write_bytes(data)
        mounted.sync()
        assert mounted.zone.read("out.bin") == data
        came = [each for each in server.requests() if each.path.endswith("/content")]
        went = eventually(
            lambda: [
                each
                for each in server.requests()  # which are noted once they have been answered
                if each.method == "POST" and "/files/" in each.path
            ]
        )
        assert came
        assert {each.protocol for each in [*came, *went]} == {"HTTP/1.1"}


@pytest.mark.parametrize("http2", [True, False], ids=["HTTP/2", "HTTP/1.1"])
def test_a_server_that_ends_its_connections(
    deployment: Deployment,
    behind: Callable[[Front], AbstractContextManager[Mounted]],
    http2: bool,
) -> None:
    """A server that closes each connection after a few requests causes only new connections."""
    with front(deployment, http2=http2, requests=7) as server, behind(server) as mounted:
        names = folders(mounted)
        assert sorted(path.name for path in mounted.root.glob("folder *")) == names
        found = contents(mounted.root)
        assert found == dict(SEED) | {f"{name}/file.txt": name.encode() for name in names}
        for number in range(20):
            (mounted.root / f"new {number}").write_bytes(b"%d" % number)
        mounted.sync()
        for number in range(20):
            assert len(mounted.zone.versions(f"new {number}")) == 1
        requests = server.requests()
        expected = "HTTP/2.0" if http2 else "HTTP/1.1"
        assert {each.protocol for each in requests if "/folder/" in each.path} == {expected}
        most = max(
            sum(each.connection == number for each in requests)
            for number in {each.connection for each in requests}
        )
        assert most <= 7


def test_a_server_that_is_reloaded(
    deployment: Deployment, behind: Callable[[Front], AbstractContextManager[Mounted]]
) -> None:
    """A reload of the server between requests is not noticed."""
    with front(deployment) as server, behind(server) as mounted:
        names = folders(mounted)
        for half in (names[::2], names[1::2]):
            for name in half:
                assert (mounted.root / name / "file.txt").read_bytes() == name.encode()
            (mounted.root / half[0] / "file.txt").write_bytes(b"edited")
            server.reload()
            mounted.sync()
            assert mounted.zone.read(f"{half[0]}/file.txt") == b"edited"
            assert len(mounted.zone.versions(f"{half[0]}/file.txt")) == 2
