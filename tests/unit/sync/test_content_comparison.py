"""Comparison with the service's content: correct, and without delay for other requests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from zonedrive.content.content_file import ContentFile
from zonedrive.errors import Changed
from zonedrive.remote.service import Service
from zonedrive.state.local_state import LocalState
from zonedrive.sync.compare import Comparer

DEADLINE = 60


class Download:
    """Content of a file, in two pieces."""

    def __init__(self, rest: bytes, *, is_sized: bool) -> None:
        self._pieces = [b"as ", rest]
        self.total = sum(map(len, self._pieces)) if is_sized else None

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)


class Transfer:
    """Downloads that wait until the test releases them."""

    is_sized = True

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.number = 0

    @contextmanager
    def download(self, zone: str, file: str, *, version: str | None) -> Iterator[Download]:
        """Yield the content of a file."""
        self.number += 1
        self.begun.release()
        assert self.go.wait(DEADLINE)
        yield Download(file.encode(), is_sized=self.is_sized)


class Bytes:
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def pread(self, offset: int, size: int) -> bytes:
        """Read as a ContentFile does."""
        return self._data[offset : offset + size]


def _comparer(transfer: Transfer) -> Comparer:
    state = SimpleNamespace(settings=SimpleNamespace(transfers=2))
    service = SimpleNamespace(transfer=transfer)
    return Comparer(cast("LocalState", state), cast("Service", service))


async def _compare(comparer: Comparer, name: str, size: int) -> bool:
    here = cast("ContentFile", Bytes(b"as it is"))
    return await comparer.same_bytes(here, size, "zone", name)


async def test_downloads_for_comparison_take_only_their_own_threads() -> None:
    """However many files are compared, the number of simultaneous downloads is limited."""
    transfer, found = Transfer(), dict[str, bool]()
    comparer = _comparer(transfer)

    async def compare(name: str) -> None:
        found[name] = await _compare(comparer, name, len(f"as {name}"))

    try:
        with trio.fail_after(DEADLINE):
            async with trio.open_nursery() as nursery:
                for name in ("it is", "it was", "if", "it is now", "it is "):
                    nursery.start_soon(compare, name)
                for _ in range(2):
                    await trio.to_thread.run_sync(transfer.begun.acquire, True, DEADLINE)
                await trio.testing.wait_all_tasks_blocked()
                assert transfer.number == 2
                transfer.go.set()
    finally:
        transfer.go.set()
    assert found == {
        "it is": True, "it was": False, "if": False, "it is now": False, "it is ": False,
    }  # fmt: skip


@pytest.mark.parametrize("is_sized", [True, False])
@pytest.mark.parametrize("name", ["it", "not available"])
async def test_content_of_another_size_says_nothing(name: str, *, is_sized: bool) -> None:
    """The page of a gateway that answers with a success is no version of a coworker."""
    transfer = Transfer()
    transfer.is_sized = is_sized
    transfer.go.set()
    with pytest.raises(Changed):
        await _compare(_comparer(transfer), name, len("as it is"))


async def test_contents_are_compared_without_an_announced_size() -> None:
    """The number of bytes that came decides."""
    transfer = Transfer()
    transfer.is_sized = False
    transfer.go.set()
    assert await _compare(_comparer(transfer), "it is", len("as it is"))
    assert not await _compare(_comparer(transfer), "it was", len("as it was"))
