"""A gateway that answers with pages instead of the service, as firewalls and hotel networks do."""

import threading
from collections.abc import Collection

import pytest

from tests.harness.fault_proxy import Answer, Asked, FaultProxy
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

PAGE = b"<html><title>Request rejected</title>Your administrator knows why</html>"
HARMLESS = "/api/access/authorizationrequirements"
CHANGES = {"PUT", "DELETE"}


class Gateway:
    """Gateway that answers requests of some methods itself."""

    def __init__(self, proxy: FaultProxy, status: int, methods: Collection[str]) -> None:
        """Begin to answer; `methods` may be empty for all."""
        self._proxy, self._status, self._methods = proxy, status, methods
        self.answered = threading.Semaphore(0)
        self._request = threading.local()  # of a thread of the proxy: whether it was replaced
        proxy.about, proxy.alter_request, proxy.alter = lambda _: True, self._replace, self._answer

    def _is_mine(self, method: str) -> bool:
        return not self._methods or method in self._methods

    def _replace(self, asked: Asked) -> None:
        self._request.is_replaced = self._is_mine(asked.method)
        if self._request.is_replaced:
            asked.method, asked.path, asked.body = "GET", HARMLESS, b""

    def _answer(self, answer: Answer) -> None:
        if getattr(self._request, "is_replaced", False):
            answer.status, answer.body, answer.length = self._status, PAGE, len(PAGE)
            answer.headers = {"Content-Type": "text/html"}
            self.answered.release()

    def open(self) -> None:
        """Let all requests pass from now on; replaced ones still get the page."""
        self._proxy.alter_request = self._pass_on

    def _pass_on(self, _: Asked) -> None:
        self._request.is_replaced = False


@pytest.mark.parametrize(
    ("status", "methods"),
    [(status, methods) for status in (200, 403, 404, 405) for methods in (CHANGES, ())]
    + [(401, CHANGES)],
)
def test_changes_wait_until_the_gateway_lets_them_pass(
    proxied: Mounted, proxy: FaultProxy, status: int, methods: Collection[str]
) -> None:
    """None of them counts as done, or is undone."""
    proxied.allow("")
    root = proxied.root
    proxied.names(root / "docs")
    proxied.command("pause")
    (root / "empty").unlink()
    (root / "docs/2026").rename(root / "docs/2027")
    (root / "docs/report.md").rename(root / "moved.md")
    (root / "notes.txt").write_bytes(b"edited\n")
    (root / "made").mkdir()
    gateway = Gateway(proxy, status, methods)
    proxied.command("resume")
    for _ in range(6):
        assert gateway.answered.acquire(timeout=60)
    gateway.open()
    proxied.sync()
    names = proxied.zone.listing()
    assert {"moved.md", "made"} <= set(names)
    assert "empty" not in names
    assert "2027" in proxied.zone.listing("docs")
    assert proxied.zone.read("notes.txt") == b"edited\n"
    assert set(proxied.names(root)) == set(names)


def test_a_mount_stays_readable_while_a_gateway_forbids_everything(
    proxied: Mounted, proxy: FaultProxy
) -> None:
    """Programs list, read and edit what is on this machine."""
    proxied.allow("")
    root = proxied.root
    before = proxied.names(root)
    content = (root / "notes.txt").read_bytes()
    gateway = Gateway(proxy, 403, ())

    def is_offline() -> bool:
        assert proxied.names(root) == before
        return bool(proxied.status()["state"] == "offline")

    eventually(is_offline, what="the state says so")
    assert (root / "notes.txt").read_bytes() == content
    (root / "new.txt").write_bytes(b"new\n")
    gateway.open()
    proxied.sync()
    assert proxied.zone.read("new.txt") == b"new\n"
