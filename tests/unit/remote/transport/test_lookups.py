"""Lookups of names that take longer than anybody waits: the loop goes on.

Each test runs in a process of its own, because it replaces the name server of the machine.
"""

import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pycurl
import pytest
import trio
import trustme

from tests.harness.name_server import APART, IPV4, NameServer
from tests.unit.remote.transport.conftest import Peer, received
from tests.unit.remote.transport.test_connections import Once
from zonedrive.remote.transport.tls import trust
from zonedrive.remote.transport.transports import LoopTransport

ROOT = Path(__file__).parents[4]
PATIENCE = 120.0  # seconds
STARTS_EARLY = pycurl.version_info()[2] >= 0x081400
"""True if this libcurl connects to an IPv4 address before it knows the IPv6 addresses (8.20)."""


async def ask(transport: LoopTransport, method: str, port: int = 443) -> int:
    """Send a request, whose answer may take any time; return the status of the answer."""
    request = httpx.Request(method, f"https://service.example:{port}/")
    response = await transport.handle_async_request(request)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for _ in response.stream:
        pass
    await response.stream.aclose()
    return response.status_code


async def abandon(folder: Path, *methods: str) -> None:
    """Cancel requests during a lookup, and close the transport before the lookup ends."""
    names = NameServer(folder)
    transport = LoopTransport(trust(None))
    async with trio.open_nursery() as nursery:
        for method in methods:
            nursery.start_soon(ask, transport, method)
        await trio.to_thread.run_sync(names.is_asked.wait)
        nursery.cancel_scope.cancel()
    transport.drop_idle()
    await transport.aclose()
    assert not names.is_repeated


async def abandon_behind_proxy(folder: Path, *methods: str) -> None:
    """Do the same with a SOCKS proxy, which needs the address of the service."""

    def talk(connection: socket.socket) -> None:
        received(connection)
        connection.sendall(b"\5\0")  # version; no authentication
        received(connection)

    proxy = Peer(None, talk)
    os.environ["https_proxy"] = f"socks5://127.0.0.1:{proxy.port}"
    await abandon(folder, *methods)


async def close(folder: Path, *methods: str) -> None:
    """Close connections that were made after half of a lookup, before the other half ends."""
    names = NameServer(folder, answered=[IPV4])
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("service.example").configure_cert(context)
    peer = Peer(context, Once(times=len(methods)))
    transport = LoopTransport(trust(str(folder / "ca.pem")))
    for method in methods:
        assert await ask(transport, method, peer.port) == 200
    assert names.is_asked.is_set()
    transport.drop_idle()
    await transport.aclose()
    assert not names.is_repeated


CHECKS = {check.__name__: check for check in (abandon, abandon_behind_proxy, close)}


def run(check: str, folder: Path, *methods: str) -> None:
    """Run a check in a process that has the machine's network and name server replaced."""
    ended = subprocess.run(
        [*APART, sys.executable, "-m", __name__, check, folder, *methods],
        cwd=ROOT, timeout=PATIENCE, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("check", ["abandon", "abandon_behind_proxy"])
@pytest.mark.parametrize("methods", [["GET", "GET"], ["PUT"]], ids=["shared", "not shared"])
def test_requests_that_are_cancelled_during_a_lookup(
    tmp_path: Path, check: str, methods: list[str]
) -> None:
    """Nothing waits for the end of the lookup."""
    run(check, tmp_path, *methods)


def test_connections_that_are_closed_during_their_lookup(tmp_path: Path) -> None:
    """Some name servers never answer for IPv6.

    The first GET shows that the peer does not support HTTP/2, which retires its connection.
    """
    assert STARTS_EARLY, "needs libcurl 8.20 or later, as the locked pycurl has it"
    run("close", tmp_path, "GET", "PUT", "GET")


if __name__ == "__main__":
    trio.run(CHECKS[sys.argv[1]], Path(sys.argv[2]), *sys.argv[3:])
