"""Complete listings from services with and without pagination."""

from collections.abc import Callable

import pytest

from zonedrive.errors import NotFound, Rejected, Unavailable
from zonedrive.remote.wire.error_mapping import refusal
from zonedrive.remote.wire.pagination import Item, Page, Pagination, Query


class Shelf:
    """Listing of a service with its form of pagination, which counts requests and sent items."""

    def __init__(
        self, count: int, *, cap: int = 10**9, paginates: bool = True, fixed: bool = False
    ) -> None:
        self.ids: list[object] = [f"id{number}" for number in range(count)]
        self.cap, self.paginates, self.fixed = cap, paginates, fixed
        self.queries: list[Query] = []
        self.sent = 0
        self.before: Callable[[int], None] = lambda number: None

    async def fetch(self, query: Query) -> Page[object]:
        """Return one page."""
        self.before(len(self.queries))
        self.queries.append(dict(query))
        ids = self.ids
        if self.paginates:
            size = 100 if self.fixed else min(int(query.get("pageSize", 100)), self.cap)
            start = (int(query.get("page", 1)) - 1) * size
            ids = ids[start : start + size]
        self.sent += len(ids)
        return [Item(each) for each in ids]


async def read(shelf: Shelf, known: Pagination | None = None) -> list[object]:
    """Return the ids that a reader finds."""
    return [item.id for item in await (known or Pagination()).read(shelf.fetch)]


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 199, 200, 250, 999, 1000, 1001, 2500])
@pytest.mark.parametrize("habit", ["plain", "pages", "capped at 100", "capped at 300"])
async def test_everything_comes_once(count: int, habit: str) -> None:
    """Every entry appears once for each form of pagination, at the first listing and later ones."""
    cap = {"capped at 100": 100, "capped at 300": 300}.get(habit, 10**9)
    known = Pagination()
    for _ in range(3):
        shelf = Shelf(count, cap=cap, paginates=habit != "plain")
        assert await read(shelf, known) == shelf.ids


async def test_a_huge_plain_listing_is_sent_once() -> None:
    """10,000 entries without pages are never transferred twice, not even at first."""
    known = Pagination()
    for _ in range(3):
        shelf = Shelf(10_000, paginates=False)
        await read(shelf, known)
        assert shelf.queries == [{}]


async def test_exactly_a_hundred_without_pages_is_asked_about() -> None:
    """One extra request decides each time if there are more pages."""
    known = Pagination()
    for _ in range(2):
        shelf = Shelf(100, paginates=False)
        await read(shelf, known)
        assert shelf.queries == [{}, {"page": "2"}]


@pytest.mark.parametrize("count", [100, 150, 250])
@pytest.mark.parametrize("first", [True, False])
async def test_a_service_that_begins_or_ends_the_pagination_meanwhile(
    count: int, first: bool
) -> None:
    """The listings after the change are complete, too."""
    known = Pagination()
    for paginates in (first, not first, first):
        shelf = Shelf(count, paginates=paginates)
        assert await read(shelf, known) == shelf.ids


async def test_exactly_a_hundred_of_a_service_that_ignores_page_size_are_read_once() -> None:
    """Its second page is empty, and so is the page with which the last entry is compared."""
    shelf = Shelf(100, fixed=True)
    assert await read(shelf) == shelf.ids
    assert [query.get("page") for query in shelf.queries] == [None, "2", "100", "1"]


async def test_entries_with_numbers_as_ids_come_from_all_pages() -> None:
    """A page is recognized by its ids, whatever their type."""
    shelf = Shelf(350, cap=100)
    shelf.ids = list(range(1000, 1350))
    assert await read(shelf) == shelf.ids


async def test_small_folders_cost_one_request() -> None:
    """One request is enough even if the service is known to paginate."""
    known = Pagination()
    await read(Shelf(150), known)
    assert known.paginated is True
    shelf = Shelf(99)
    await read(shelf, known)
    assert shelf.queries == [{}]


async def test_large_folders_come_in_large_pages() -> None:
    """10,000 entries need fewer than 100 requests."""
    shelf = Shelf(10_000)
    assert await read(shelf) == shelf.ids
    entries = [query for query in shelf.queries if query.get("pageSize") != "1"]
    assert len(entries) <= 14


async def test_an_entry_pushed_to_the_next_page_comes_once() -> None:
    """If a file is added at the top while the pages are read, no entry appears twice."""
    shelf = Shelf(250)
    shelf.before = lambda number: shelf.ids.insert(0, "new") if number == 1 else None
    found = await read(shelf)
    assert len(found) == len(set(found))
    assert set(found) >= {f"id{number}" for number in range(250)}


@pytest.mark.parametrize("when", range(1, 6))
async def test_an_entry_pulled_to_an_earlier_page_is_not_missed(when: int) -> None:
    """If a file is deleted at the top while the pages are read, no other entry is missing."""
    shelf = Shelf(2500)
    shelf.before = lambda number: shelf.ids.pop(0) if number == when else None  # type: ignore[assignment]
    found = await read(shelf)
    assert set(found) >= set(shelf.ids)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize(("count", "known"), [(101, False), (101, True), (201, False), (301, True)])
async def test_an_entry_pulled_from_the_page_after_the_last_one_is_not_missed(
    count: int, known: bool, refuses: bool
) -> None:
    """The next page is empty, or refused, after an entry was deleted; the last page is full."""
    shelf, pagination = Shelf(count, cap=100), Pagination()
    pagination.paginated = known

    async def fetch(query: Query) -> Page[object]:
        if query.get("page") == str(count // 100 + 1) and len(shelf.ids) == count:
            shelf.ids.pop(count - 50)
        found = await shelf.fetch(query)
        if refuses and "page" in query and not found:
            raise NotFound("x", status=404)
        return found

    found = [item.id for item in await pagination.read(fetch)]
    assert set(found) >= set(shelf.ids)
    assert len(found) == len(set(found))


async def test_a_listing_of_a_changing_folder_ends() -> None:
    """A listing ends even if entries are deleted faster than it is read."""
    shelf = Shelf(5000)
    shelf.before = lambda number: shelf.ids.pop(0)  # type: ignore[assignment]
    found = await read(shelf)
    assert len(found) == len(set(found))
    assert len(shelf.queries) < 60


async def test_a_plain_listing_that_changes_is_not_taken_for_pages() -> None:
    """A file is added between the two requests that detect pagination."""
    known = Pagination()
    shelf = Shelf(100, paginates=False)
    shelf.before = lambda number: shelf.ids.append("new") if number == 1 else None
    assert await read(shelf, known) == shelf.ids
    assert not known.paginated


@pytest.mark.parametrize("added", [1, 49, 60, 90, 150])
async def test_pages_that_are_shifted_by_new_entries_are_not_taken_for_a_plain_listing(
    added: int,
) -> None:
    """The second page then has many entries of the first one, but not those at its beginning."""
    shelf, known = Shelf(250), Pagination()
    new = [f"new{number}" for number in range(added)]
    shelf.before = lambda number: shelf.ids.__setitem__(slice(0, 0), new) if number == 1 else None
    assert set(await read(shelf, known)) == set(shelf.ids)
    assert known.paginated is True


@pytest.mark.parametrize(
    "error", [Rejected("x", status=400), NotFound("x", status=404), Rejected("x", status=501)]
)
@pytest.mark.parametrize("count", [100, 200])
async def test_a_service_that_refuses_further_pages_is_believed(
    error: Exception, count: int
) -> None:
    """A page after the last one, or any page, may be an error of the service."""
    shelf = Shelf(count)

    async def fetch(query: Query) -> Page[object]:
        found = await shelf.fetch(query)
        if "page" in query and not found:
            raise error
        return found

    assert [item.id for item in await Pagination().read(fetch)] == shelf.ids


@pytest.mark.parametrize("count", [100, 150, 250])
async def test_a_service_that_refuses_large_pages_is_read_in_its_own(count: int) -> None:
    """The service may reject a large pageSize instead of reducing it."""
    shelf, known = Shelf(count), Pagination()

    async def fetch(query: Query) -> Page[object]:
        if int(query.get("pageSize", 1)) > 200:
            raise Rejected("too large", status=400)
        return await shelf.fetch(query)

    for _ in range(2):
        assert [item.id for item in await known.read(fetch)] == shelf.ids


async def test_a_failure_on_a_later_page_is_a_failure() -> None:
    """A failed page fails the whole listing."""
    shelf = Shelf(250)

    async def fetch(query: Query) -> Page[object]:
        if query.get("page") == "2":
            raise Unavailable("x", status=503)
        return await shelf.fetch(query)

    with pytest.raises(Unavailable):
        await Pagination().read(fetch)


@pytest.mark.parametrize("status", [405, 414, 421, 431, 451])
@pytest.mark.parametrize("known", [False, True])
async def test_a_page_that_is_refused_in_the_middle_does_not_end_the_listing(
    status: int, known: bool
) -> None:
    """A gateway refuses one request. Before, the entries of the later pages seemed deleted."""
    shelf, pagination = Shelf(450, cap=100), Pagination()
    pagination.paginated = known
    refused = refusal(status, b"<html>", "listing a folder", origin="published")

    async def fetch(query: Query) -> Page[object]:
        if query.get("page") == ("3" if known else "2"):
            raise refused
        return await shelf.fetch(query)

    with pytest.raises(Unavailable):
        await pagination.read(fetch)


async def test_items_without_an_id_are_counted_but_never_joined() -> None:
    """An invalid item does not make a full page look like the last one."""
    pages: list[Page[object]] = [[Item() for _ in range(100)], [Item("a")]]

    async def fetch(query: Query) -> Page[object]:
        number = int(query.get("page", 1))
        return pages[number - 1] if number <= 2 and "pageSize" not in query else []

    assert len(await Pagination().read(fetch)) == 101
