"""Comparison with the service's content: correct, and without delay for other requests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import trio
import trio.testing

from zonedrive.content.content_file import ContentFile
from zonedrive.remote.service import Service
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.reconcile import Reconciler

DEADLINE = 60


class Transfer:
    """Downloads that wait until the test releases them."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.number = 0

    @contextmanager
    def download(self, zone: str, file: str, *, version: str | None) -> Iterator[list[bytes]]:
        """Yield the content of a file, in two pieces."""
        self.number += 1
        self.begun.release()
        assert self.go.wait(DEADLINE)
        yield [b"as ", file.encode()]


class Bytes:
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def pread(self, offset: int, size: int) -> bytes:
        """Read as a ContentFile does."""
        return self._data[offset : offset + size]


async def test_downloads_for_comparison_take_only_their_own_threads() -> None:
    """However many files are compared, the number of simultaneous downloads is limited."""
    transfer, found = Transfer(), dict[str, bool]()
    state = SimpleNamespace(settings=SimpleNamespace(transfers=2))
    service = SimpleNamespace(transfer=transfer)
    reconciler = Reconciler(
        cast("LocalState", state), cast("Service", service), cast("DirectoryCache", None)
    )

    async def compare(name: str) -> None:
        here = cast("ContentFile", Bytes(b"as it is"))
        found[name] = await reconciler.same_bytes(here, "zone", name)

    try:
        with trio.fail_after(DEADLINE):
            async with trio.open_nursery() as nursery:
                for name in ("it is", "it was", "it", "it is now", "it is "):
                    nursery.start_soon(compare, name)
                for _ in range(2):
                    await trio.to_thread.run_sync(transfer.begun.acquire, True, DEADLINE)
                await trio.testing.wait_all_tasks_blocked()
                assert transfer.number == 2
                transfer.go.set()
    finally:
        transfer.go.set()
    assert found == {
        "it is": True, "it was": False, "it": False, "it is now": False, "it is ": False,
    }  # fmt: skip
