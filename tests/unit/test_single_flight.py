"""Single flight: one piece of work per key, and every caller is woken."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from zonedrive.single_flight import Flight, SingleFlight


async def test_later_callers_wait_for_the_same_flight() -> None:
    """Waiting callers are woken when the flight ends; other keys are independent."""
    flights: SingleFlight[str, Flight] = SingleFlight()
    woken: list[bool] = []

    async def wait(key: str) -> None:
        woken.append(await flights.wait(key))

    async with trio.open_nursery() as nursery:
        with flights.flying("a", Flight()) as flight:
            assert flights.get("a") is flight
            assert ("a" in flights, "b" in flights, len(flights)) == (True, False, 1)
            nursery.start_soon(wait, "a")
            nursery.start_soon(wait, "b")
            await wait_all_tasks_blocked()
            assert woken == [False]
    assert woken == [False, True]
    assert (flights.get("a"), len(flights)) == (None, 0)


async def test_a_failed_flight_wakes_its_callers() -> None:
    """The next caller begins a new flight."""
    flights: SingleFlight[str, Flight] = SingleFlight()
    failed = Flight()
    with pytest.raises(ValueError, match="broken"), flights.flying("a", failed):
        raise ValueError("broken")
    await failed.wait()
    flights.begin("a", Flight())
    flights.end("a")


def test_a_second_flight_of_a_key_is_an_error() -> None:
    """The callers of only one of them would be woken."""
    flights: SingleFlight[str, Flight] = SingleFlight()
    with flights.flying("a", Flight()), pytest.raises(AssertionError):
        flights.begin("a", Flight())
