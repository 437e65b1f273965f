"""Other users of the machine cannot take over a sign-on in a browser."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.harness import intruder, world
from tests.harness.chromium import key_digest
from tests.harness.deployment import Deployment
from tests.harness.desk import Desk
from tests.harness.machine import Machine
from tests.harness.waiting import eventually

ALICE, CAROL = f"alice@{world.DOMAIN}", f"carol@{world.DOMAIN}"
SECONDS = 60.0
PROVIDERS = """
identity_providers = [{ name = "corp" }]
personal_id = [{ name = "eid" }]
"""
IPV4, MAPPED = "127.0.0.1", "::ffff:127.0.0.1"
CAN_READ = """
import os, sys
print(os.access(sys.argv[1], os.R_OK), end="")
"""
# From which address to which: an IPv6 socket speaks IPv4, and the whole of 127/8 is one's own.
WAYS = ((IPV4, IPV4), ("127.0.0.2", IPV4), (MAPPED, MAPPED), ("::ffff:127.0.0.3", MAPPED))


@pytest.fixture(scope="module")
def service() -> Iterator[Deployment]:
    """Yield a service that allows sign-on in a browser."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    deployment = Deployment(folder, zones=1, organization=PROVIDERS)
    yield deployment
    deployment.close()
    shutil.rmtree(folder, ignore_errors=True)


def ask(method: str, url: str, **more: Any) -> httpx.Response:
    """Send a request to the client or to the provider."""
    return httpx.request(method, url, verify=False, trust_env=False, timeout=SECONDS, **more)


def provider_token(service: Deployment, user: str) -> str:
    """Return the token of a sign-on as `user`, which any user may start."""
    query = {"organization": "Acme", "idpName": "corp", "redirectURI": "http://127.0.0.1:9/",
             "fragmentResponse": "true"}  # fmt: skip
    where = ask("GET", f"{service.base_url}/api/access/idpsignonuri", params=query).json()["uri"]
    password = world.PASSWORDS[user.partition("@")[0]]
    said = ask("POST", where, data={"username": user, "password": password, "do": "sign-on"})
    return parse_qs(urlsplit(said.headers["location"]).fragment)["token"][0]


def redirect_of(start: str, user: str) -> str:
    """Return the final address of a sign-on that starts at `start`."""
    provider = ask("GET", start).headers["location"]
    password = world.PASSWORDS[user.partition("@")[0]]
    page = ask("POST", provider, data={"username": user, "password": password, "do": "sign-on"})
    found = re.search(r'action="([^"]+)"', page.text)
    assert found is not None, page.text
    return found[1].replace("&amp;", "&")


def test_connections_of_another_user_are_closed(machine: Machine, service: Deployment) -> None:
    """Connections of another user are closed, while the user's own browser is answered.

    The other user connects from each address, over IPv4 and IPv6, and may close at once.
    """
    desk = Desk(machine, service, "--idp", "corp")
    start = desk.start()
    port, path = urlsplit(start).port or 0, urlsplit(start).path
    answered = {
        way: said
        for way in WAYS
        if (said := intruder.request(way[1], port, intruder.get(path, port), here=way[0]))
    }
    assert not answered
    redirect = redirect_of(start, CAROL)
    back = f"{urlsplit(redirect).path}?{urlsplit(redirect).query}"
    theirs = intruder.post(back, port, f"token={provider_token(service, CAROL)}")
    desk.terminal.send(signal.SIGSTOP)  # so that all is sent and closed before anyone looks
    try:
        for here, there in WAYS:
            intruder.request(there, port, theirs, here=here, stays=False)
    finally:
        desk.terminal.send(signal.SIGCONT)
    taken = ask("POST", redirect, data={"token": provider_token(service, ALICE)})
    assert taken.status_code == 303, "another user's answer was taken"
    ask("GET", f"http://127.0.0.1:{port}{taken.headers['location']}")
    shown = desk.end(0)
    assert "does not belong to this user" in shown
    assert f"logged on to {service.base_url} as {ALICE}" in shown


def test_the_address_of_a_sign_on_is_in_no_arguments(machine: Machine, service: Deployment) -> None:
    """Process arguments do not contain the address of a sign-on.

    Another user reads the arguments of all processes while a script and then a real browser run,
    and cannot read the page that leads to the address.
    """
    folder, go = machine.folder / "chromium", machine.folder / "go"
    script = machine.folder / "browser"
    script.write_text(
        f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.1; done\n"
        "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
        " --disable-background-networking --no-first-run --no-proxy-server"
        f" --user-data-dir={folder} --remote-debugging-port=0"
        f' --ignore-certificate-errors-spki-list={key_digest(service.base_url)} "$@"\n'
    )
    script.chmod(0o755)
    pages = re.compile(rb"file://(" + re.escape(bytes(machine.folder)) + rb"/\S+?)\0")
    seen = b""

    def given() -> Path | None:
        """Return the page that the script was started with."""
        nonlocal seen
        seen += intruder.arguments()
        found = pages.search(seen)
        return found and Path(os.fsdecode(found[1]))

    def visits() -> int:
        """Return the number of requests for the provider's page."""
        requests = service.stats()["requests"]
        return sum(requests[route] for route in requests if "/api/sandbox/signon" in route)

    def arrived() -> bool:
        nonlocal seen
        seen += intruder.arguments()
        return visits() > before

    desk = Desk(machine, service, "--idp", "corp", browser=script)
    try:
        start = urlsplit(desk.start())
        page = eventually(given, what="the script is started with a page")
        assert page is not None
        assert start.path in page.read_text()
        assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        # A browser in a snap reads nothing hidden.
        assert not any(part.startswith(".") for part in page.relative_to(machine.folder).parts)
        assert intruder.run(CAN_READ, str(page)) == b"False"
        before = visits()
        go.touch()
        eventually(arrived, what="the browser is at the provider")
        seen += intruder.arguments()
        assert f"--user-data-dir={folder}\0".encode() in seen  # the browser's own
        assert start.path.encode() not in seen
        assert not [one for one in intruder.local_addresses(seen) if f":{start.port}/" in one]
        eventually(lambda: not page.parent.exists(), what="the page is gone once it was used")
        desk.terminal.press("\x03")
        desk.end(130)
    finally:
        end_processes(machine.folder)


def end_processes(folder: Path) -> None:
    """End the processes whose arguments contain the folder: the script and the browser."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if bytes(folder) + b"/" in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue
