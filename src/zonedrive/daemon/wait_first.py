"""Wait for the first of several events.

Knows nothing about the events.
"""

from collections.abc import Awaitable, Callable

import trio


async def first(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when the first of `waits` returns; cancel the others."""
    async with trio.open_nursery() as nursery:

        async def one(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel()

        for wait in waits:
            nursery.start_soon(one, wait)
