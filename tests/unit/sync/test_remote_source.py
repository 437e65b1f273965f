"""The sources of content ask the service whether doubtful content is that of the file."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.content.scripted import KIB, MIB, Script, content
from tests.unit.content.test_cache import running
from zonedrive.errors import BadAnswer
from zonedrive.sync.remote_source import VersionSource


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
