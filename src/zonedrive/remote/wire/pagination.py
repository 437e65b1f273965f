"""Complete listings from a service whose pagination is not documented.

This module contains no URLs, and interprets only the ids of the items. The published facts: `page`
counts from 1, and `pageSize` defaults to 100. Which listings support these parameters is not
published.

The first request of a listing therefore has no parameters. Exactly 100 items may be a full page;
any other number of items is the complete listing. After 100 items, page 2 is requested. If page 2
repeats the items, this kind of listing is not paginated. If page 2 has other items or none, this
kind is paginated. Only the fact that a kind is paginated is remembered, because an administrator or
an update of the service may begin the pagination of the other kinds at any time.

If a kind is known to be paginated and the first page is full, the listing is read again in pages of
up to 1,000 items. The service may limit the page size, so the length of its first page is taken as
the page size.

The request of a profile may have its own `pageSize`. A page with this number of items may then be
full as well, and so may a page with a smaller multiple of 50: services often limit the page size to
such a number.

Entries may be added and removed while pages are read. An entry that moves to a later page arrives
twice, and the later copy is kept. An entry that moves to an earlier page would be missed. So after
the last page, the last item of each full page is requested again as a page of one item. If an item
differs, the whole listing is read again, and both results are merged. A deleted entry may therefore
stay listed until the next refresh, but no existing entry is missed unless the folder changes faster
than it can be read.
"""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec

from zonedrive.errors import BadAnswer, NotFound, Rejected
from zonedrive.remote.clients import LISTING
from zonedrive.remote.wire.fields import identifier

logger = logging.getLogger(__name__)

PAGE = 100  # default size of a page
LARGE_PAGE = 1000
ROUND = 50  # limits of the page size are multiples of it
BEGIN = 10  # number of items at the start of a page that `_is_same_page` compares separately
PAST_THE_END = frozenset({400, 404, 409, 410, 416, 422, 500, 501})
"""Statuses with which services refuse a page that they do not have, or a page size."""
PASSES = 3  # maximum number of readings of a listing that changes meanwhile

ValueT = TypeVar("ValueT")
Query = dict[str, str]


class Item(msgspec.Struct, Generic[ValueT], eq=False, gc=False):
    """One item of a listing: its id as in the JSON (possibly malformed), and its content."""

    id: object = None
    value: Any = None


Page = list[Item[ValueT]]
Fetch = Callable[[Query], Awaitable[Page[ValueT]]]
"""Function that sends one request with the given query parameters and returns the page."""


def identified(values: Iterable[dict[str, Any]], key: str) -> Page[dict[str, Any]]:
    """Return the objects of one page as items.

    The id of an item is the object's member `key`. If the object lacks this member, the id is
    computed from the object's content. Equal objects get different ids, so that none is lost.
    """
    before: Counter[str] = Counter()
    found: Page[dict[str, Any]] = []
    for value in values:
        if (own := identifier(value.get(key))) != "":
            found.append(Item(own, value))
            continue
        digest = blake2b(repr(value).encode("utf-8", "replace"), digest_size=16).hexdigest()
        before[digest] += 1
        found.append(Item(f"{before[digest]} {digest}", value))
    return found


@dataclass(eq=False)
class Budget:
    """Limits on the requests for all pages of one listing."""

    pages: int = 10_000
    items: int = 500_000
    size: int = LISTING  # bytes
    seconds: float = 1800.0  # within which the last page must be requested

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._pages = self._items = 0
        self.left = self.size  # maximum size of the next page, in bytes

    def spend(self, doing: str, *, pages: int = 0, items: int = 0, size: int = 0) -> None:
        """Count requested pages, received items and bytes. Raises BadAnswer if a limit is exceeded.

        `doing` begins the error message.
        """
        self._pages += pages
        self._items += items
        self.left -= size
        for is_exceeded, what in (
            (self._pages > self.pages, f"{self.pages} pages"),
            (self._items > self.items, f"{self.items} items"),
            (self.left <= 0, f"{self.size} bytes"),
            (pages and time.monotonic() - self._began > self.seconds, f"{self.seconds:g} seconds"),
        ):
            if is_exceeded:
                raise BadAnswer(f"{doing}: the list does not end after {what}")


class Pagination:
    """Reader of complete listings of one kind; detects whether the service paginates this kind."""

    def __init__(self) -> None:
        self.paginated = False  # True if a page has ended a listing of this kind

    async def read(self, fetch: Fetch[ValueT], size: int | None = None) -> Page[ValueT]:
        """Return all items of one listing, without duplicate ids.

        Of several items with the same id, the last is returned. `fetch` requests one page. Without
        a `pageSize` in its query, the request has the page size `size`, or the service's default if
        `size` is None. Raises the errors of `fetch`.
        """
        found: dict[object, Item[ValueT]] = {}
        for page in await self._pages(fetch, size):
            for item in page:
                found[identifier(item.id) or id(item)] = item
        return list(found.values())

    async def _pages(self, fetch: Fetch[ValueT], size: int | None) -> list[Page[ValueT]]:
        first = await fetch({})
        is_limited = size is not None and 0 < len(first) < size and len(first) % ROUND == 0
        if len(first) not in (PAGE, size) and not is_limited:
            return [first]
        if not self.paginated:
            second = await _page(fetch, 2, None)
            if second is None:
                return await _consistent(fetch, [first], None)
            if len(second) > len(first) or _is_same_page(second, first):
                return [second]
            self.paginated = True
            if len(second) < len(first):
                return await _consistent(fetch, [first, second] if second else [first], None)
        return await _consistent(fetch, [], LARGE_PAGE)


async def _consistent(
    fetch: Fetch[ValueT], pages: list[Page[ValueT]], size: int | None
) -> list[Page[ValueT]]:
    """Read the listing until its page boundaries stay the same; return the pages of all readings.

    There are at most PASSES readings. `pages` is the result of the first reading, or empty if the
    listing was not read yet. `size` is the page size of the requests (None: default).
    """
    read: list[Page[ValueT]] = []
    for number in range(PASSES):
        if number or not pages:
            pages, size = await _walk(fetch, size)
        read += pages
        if not await _has_moved(fetch, pages):
            break
        logger.info("a listing of %d pages changed while it was read", len(pages))
    return read


async def _walk(fetch: Fetch[ValueT], size: int | None) -> tuple[list[Page[ValueT]], int | None]:
    """Read all pages; return the pages, and the page size that was used (None: the default)."""
    first = await _page(fetch, 1, size)
    if first is None:  # the service rejects this page size: use its default
        size = None
        first = await fetch({"page": "1"})
    pages, seen = [first], _ids(first)
    # The length of the first page is the page size, unless it is the only page. A shorter page
    # is the last one, and so is a page without new items.
    while pages[-1] and len(pages[-1]) >= len(first):
        following = await _page(fetch, len(pages) + 1, size)
        if not following or not _ids(following) - seen:
            break
        seen |= _ids(following)
        pages.append(following)
    return pages, size


async def _has_moved(fetch: Fetch[ValueT], pages: Sequence[Page[ValueT]]) -> bool:
    """Return True if any full page now ends with a different item.

    A shorter last page is not checked, because no item can move to this page from a later page.
    Return False if the service ignores `pageSize` or refuses the request for an item, because no
    comparison is then possible.
    """
    for number, page in enumerate(pages, 1):
        if not page or len(page) < len(pages[0]):
            break
        last = await _page(fetch, number * len(pages[0]), 1)
        if last is None or len(last) > 1:
            return False  # the service ignores pageSize, so no comparison is possible
        if last and last[0].id == page[-1].id:
            continue
        # An empty page may also come from a service that ignores pageSize.
        return bool(last) or len(await _page(fetch, 1, 1) or ()) == 1
    return False


async def _page(fetch: Fetch[ValueT], number: int, size: int | None) -> Page[ValueT] | None:
    query = {"page": str(number)}
    if size is not None:
        query["pageSize"] = str(size)
    try:
        return await fetch(query)
    except (Rejected, NotFound) as refused:
        if refused.status not in PAST_THE_END:
            raise  # for example a gateway's 421: the listing would end in the middle
        logger.info("page %d is refused, which ends the listing: %s", number, refused)
        return None


def _ids(page: Page[Any]) -> set[str]:
    return {found for item in page if (found := identifier(item.id))}


def _is_same_page(second: Page[Any], first: Page[Any]) -> bool:
    """Return True if `second` repeats `first`, apart from some changes between the requests.

    At least half of the first BEGIN items must be repeated: if entries are added at the start of a
    paginated listing, page 2 repeats items of page 1 too, but only the last ones.
    """
    found, begin = _ids(second), _ids(first[:BEGIN])
    return len(found & _ids(first)) * 2 > len(second) and len(found & begin) * 2 >= len(begin)
