"""The sources of content ask the service whether doubtful content is that of the file."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.content.scripted import KIB, MIB, Script, content
from tests.unit.content.test_cache import running
from zonedrive.errors import BadAnswer, Changed, NotFound
from zonedrive.model import Revision
from zonedrive.sync.remote_source import CurrentSource, VersionSource


class Gateway:
    """Service behind a network's gateway, which answers all requests with a page while `is_up`."""

    def __init__(self, data: bytes) -> None:
        self.is_up = True
        self.transfer = self
        self._data, self._page = Script(data), Script(content(5 * KIB, seed=2))
        self._page.ranges, self._page.is_size_stated, self._page.validator = False, False, None

    def download(
        self, _zone: str, _file: str, *, offset: int, end: int | None, version: str | None
    ) -> Any:
        """Return a stream of the page or of the version."""
        assert version == "1"
        return (self._page if self.is_up else self._data).open(offset, end)

    async def entry(self, _zone: str, _file: str) -> object:
        """Return an entry, or raise BadAnswer for the page."""
        if self.is_up:
            raise BadAnswer("the answer is not JSON")
        return SimpleNamespace()


async def test_a_page_is_not_the_content_of_an_earlier_version(tmp_path: Path) -> None:
    """No byte of a page without a length becomes part of the version's content."""
    data = content(2 * MIB)
    service: Any = Gateway(data)
    async with running(tmp_path / "cache") as cache:
        reader = cache.open(7, "r", len(data), VersionSource(service, "z", "f", "1"))
        with pytest.raises(BadAnswer, match="not JSON"):
            await reader.read(0, 100)
        service.is_up = False
        assert await reader.read(0, 100) == data[:100]
        reader.close()


@pytest.mark.parametrize(
    ("listed", "told"),
    [("1000000000", "3000000000"), ("1234567000", "1000000000"), ("1000000000", "1234567000")],
)
async def test_a_large_file_is_read_although_times_have_two_precisions(
    tmp_path: Path, listed: str, told: str
) -> None:
    """A second stream without a validator needs the answer of the service."""
    data = content(12 * MIB)
    stream = Script(data)
    stream.validator = None
    size = len(data)

    async def entry(_zone: str, _file: str) -> object:
        return SimpleNamespace(revision=Revision(f"{told}|{size}|bob"))

    service: Any = SimpleNamespace(entry=entry, transfer=SimpleNamespace())
    service.transfer.download = lambda _zone, _file, *, offset, end, version: stream.open(
        offset, end
    )
    inode: Any = SimpleNamespace(zone="z", remote_id="f", revision=Revision(f"{listed}|{size}|bob"))
    is_same = told != "3000000000"
    async with running(tmp_path / "cache") as cache:
        reader = cache.open(7, inode.revision, size, CurrentSource(service, inode))
        assert await reader.read(0, 100) == data[:100]
        with nullcontext() if is_same else pytest.raises(Changed):
            assert await reader.read(size - 100, 100) == data[-100:]
        reader.close()


async def test_a_file_without_an_entry_cannot_be_fetched(tmp_path: Path) -> None:
    """A program with the file open gets ENOENT, and no request is sent."""
    service: Any = SimpleNamespace()
    inode: Any = SimpleNamespace(zone="z", remote_id=None, revision=Revision("r"))
    async with running(tmp_path / "cache") as cache:
        reader = cache.open(7, "r", 100, CurrentSource(service, inode))
        with pytest.raises(NotFound, match="deleted on the service"):
            await reader.read(0, 100)
        reader.close()
