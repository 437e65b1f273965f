"""Complete listings from a service whose pagination is not documented.

Knows nothing about addresses, and only the ids of items. The published facts: `page` counts from
1, and `pageSize` defaults to 100. Which listings support these parameters is not published.

The first request of a listing therefore has no parameters, and the number of items decides:

- fewer than 100 items: the listing is complete, paginated or not;
- more than 100: this kind of listing is not paginated, which is remembered;
- exactly 100: page 2 is requested.  If the service sends the same items again, it does not
  paginate, which is remembered; other items, or none, show that it does.

Once a kind is known to paginate, a full first page is read again in pages of up to 1,000 items. The
service may cap the page size, so the length of its first page is taken as the page size.

Between two pages, entries are added and removed. An entry that moves to a later page arrives twice,
and the later copy is kept. An entry that moves to an earlier page would be missed. So after several
pages the page boundaries are compared with single-item pages. If they differ, everything is read
once more and merged. A deleted entry may therefore stay listed until the next refresh, but no
existing entry is missed unless the folder changes faster than it can be read.
"""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, NamedTuple, Protocol, TypeVar

from zonedrive.errors import BadAnswer, NotFound, Rejected
from zonedrive.remote.response_limits import LISTING

logger = logging.getLogger(__name__)

PAGE = 100  # default size of a page
LARGE_PAGE = 1000
PASSES = 3  # maximum readings of a listing that changes meanwhile


class Item(Protocol):
    """Any object with an id as in the JSON."""

    @property
    def id(self) -> object:
        """Identifier, or a malformed value."""


ItemT = TypeVar("ItemT", bound=Item)
Query = dict[str, str]
Fetch = Callable[[Query], Awaitable[list[ItemT]]]


AnyT = TypeVar("AnyT")


class Whole(NamedTuple, Generic[AnyT]):
    """An item that has no known id member: `id` is computed from its whole content."""

    id: str
    item: AnyT


def whole(page: Iterable[AnyT]) -> list[Whole[AnyT]]:
    """Return the items of one page with computed ids, for a Reader.

    Equal items of a page get different ids, so that none is lost.
    """
    before: Counter[str] = Counter()
    found = []
    for item in page:
        said = blake2b(repr(item).encode("utf-8", "replace"), digest_size=16).hexdigest()
        before[said] += 1
        found.append(Whole(f"{before[said]} {said}", item))
    return found


@dataclass(frozen=True)
class Bounds:
    """Limits of one listing, over the requests for all its pages."""

    pages: int = 10_000
    items: int = 500_000
    size: int = LISTING  # bytes
    seconds: float = 1800.0  # within which the last page is asked for


BOUNDS = Bounds()


class Budget:
    """Remaining part of the bounds of one listing in progress."""

    def __init__(self, doing: str = "reading a list", bounds: Bounds = BOUNDS) -> None:
        """Start with full bounds; `doing` begins the message of every error."""
        self._doing = doing
        self._bounds = bounds
        self._pages = self._items = 0
        self._end = time.monotonic() + bounds.seconds
        self.size = bounds.size
        """Maximum size of the next page, in bytes."""

    def begin_page(self) -> None:
        """Count one more page. Raises BadAnswer if no further page may be requested."""
        self._pages += 1
        if self._pages > self._bounds.pages:
            raise self._endless(f"{self._bounds.pages} pages")
        if time.monotonic() > self._end:
            raise self._endless(f"{self._bounds.seconds:g} seconds")

    def spend(self, size: int) -> None:
        """Count the bytes of a received page. Raises BadAnswer if the listing is too long."""
        self.size -= size
        if self.size <= 0:
            raise self.too_long()

    def too_long(self) -> BadAnswer:
        """Return the error for a listing with too many bytes."""
        return self._endless(f"{self._bounds.size} bytes")

    def count(self, items: int) -> None:
        """Count the items of a received page. Raises BadAnswer if there are too many."""
        self._items += items
        if self._items > self._bounds.items:
            raise self._endless(f"{self._bounds.items} items")

    def _endless(self, what: str) -> BadAnswer:
        return BadAnswer(f"{self._doing}: the list does not end after {what}")


class Pagination:
    """Knowledge about the pagination of one kind of listing; None while unknown."""

    def __init__(self) -> None:
        self.paginated: bool | None = None


class Reader(Generic[ItemT]):
    """Reader of one complete listing; `fetch` makes one request with the given query."""

    def __init__(
        self,
        fetch: Fetch[ItemT],
        known: Pagination,
        budget: Budget | None = None,
        *,
        page: int = LARGE_PAGE,
    ) -> None:
        self._fetched = fetch
        self._known = known
        self._budget = budget or Budget()
        self._page = page

    async def read(self) -> list[ItemT]:
        """Return all items, each id once. Raises the errors of `fetch`."""
        return _joined([], await self._pages())

    async def _fetch(self, query: Query) -> list[ItemT]:
        self._budget.begin_page()
        page = await self._fetched(query)
        self._budget.count(len(page))
        return page

    async def _pages(self) -> list[list[ItemT]]:
        first = await self._fetch({})
        if len(first) > PAGE:
            self._known.paginated = False
        if len(first) != PAGE or self._known.paginated is False:
            return [first]
        if self._known.paginated is None:
            second = await self._beyond(2, None)
            if second is None:
                return [first]
            if len(second) > PAGE or _mostly_known(second, first):
                self._known.paginated = False
                return [second]
            self._known.paginated = True
            if not second:
                return [first]
            if len(second) < PAGE:
                return await self._settled([first, second], None)
        return await self._settled([], self._page)

    async def _settled(self, pages: list[list[ItemT]], size: int | None) -> list[list[ItemT]]:
        """Return `pages` merged with further readings while the page boundaries move.

        An empty `pages` means that nothing was read yet; `size` is the page size of the requests.
        """
        read: list[list[ItemT]] = []
        for number in range(PASSES):
            if number or not pages:
                pages, size = await self._walk(size)
            read += pages
            if len(pages) < 2 or not await self._moved(pages):
                break
            logger.info("a listing of %d pages changed while it was read", len(pages))
        return read

    async def _walk(self, size: int | None) -> tuple[list[list[ItemT]], int | None]:
        """Return every page from the first, and the page size that the service accepted."""
        first = await self._beyond(1, size)
        if first is None:  # the service rejects this page size: use its default
            size = None
            first = await self._fetch({"page": "1"})
        pages, seen = [first], _ids(first)
        # The first page's length is the size of a page, unless it is the only one.  A shorter
        # one is the last; so is one that brings nothing new.
        while pages[-1] and len(pages[-1]) >= len(first):
            following = await self._beyond(len(pages) + 1, size)
            if not following or not _ids(following) - seen:
                break
            seen |= _ids(following)
            pages.append(following)
        return pages, size

    async def _moved(self, pages: Sequence[list[ItemT]]) -> bool:
        """Return True if the last item of any page but the last has changed."""
        for number, page in enumerate(pages[:-1], 1):
            last = await self._beyond(number * len(pages[0]), 1)
            if last is None or len(last) > 1:
                return False  # the service ignores pageSize, so no comparison is possible
            if not last or last[0].id != page[-1].id:
                return True
        return False

    async def _beyond(self, number: int, size: int | None) -> list[ItemT] | None:
        """Return a page, or None if the service rejects its number."""
        query = {"page": str(number)}
        if size is not None:
            query["pageSize"] = str(size)
        try:
            return await self._fetch(query)
        except (Rejected, NotFound) as refused:
            logger.info("page %d is refused, which ends the listing: %s", number, refused)
            return None


def _ids(items: Sequence[Item]) -> set[str]:
    return {item.id for item in items if isinstance(item.id, str)}


def _mostly_known(second: Sequence[Item], first: Sequence[Item]) -> bool:
    """Return True if `second` is mostly the same page as `first`."""
    return bool(second) and len(_ids(second) & _ids(first)) * 2 > len(second)


def _joined(old: list[ItemT], pages: Sequence[list[ItemT]]) -> list[ItemT]:
    """Return all items with the later copy of each id; items without an id are all kept."""
    found: dict[object, ItemT] = {}
    for item in (*old, *(item for page in pages for item in page)):
        found[item.id if isinstance(item.id, str) else id(item)] = item
    return list(found.values())
