"""Waiting for whichever comes first.

Must not know what is waited for.
"""

from collections.abc import Awaitable, Callable

import trio


async def first(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when one of them does; the others are cancelled."""
    async with trio.open_nursery() as nursery:

        async def one(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel()

        for wait in waits:
            nursery.start_soon(one, wait)
