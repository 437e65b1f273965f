"""ASGI middleware that counts requests and applies the active faults.

This module does not depend on the endpoints. Faults apply in this order:

1. A `latency` fault delays the request before it is handled.
2. A `status` fault sends an error response; the request is not handled.
3. After the request was handled, a `drop` or `stall` fault suppresses or delays the response.
4. A `cut` fault resets the connection during the transfer of a request or response body.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zonedrive.sandbox.connection import Connection
from zonedrive.sandbox.errors import error_response
from zonedrive.sandbox.faults import Fault, Faults


class Stats:
    """Counters of requests by method and route, and of received and sent body bytes."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0

    def reset(self) -> None:
        """Reset all counters."""
        self.requests.clear()
        self.bytes_in = self.bytes_out = 0

    def wire(self) -> dict[str, Any]:
        """Return the counters as the JSON object that answers the `stats` command."""
        return {
            "requests": dict(self.requests),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        }


class Traffic:
    """ASGI middleware that counts requests and applies faults."""

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], faults: Faults, stats: Stats
    ) -> None:
        self._app = app
        self._routes = routes
        self._faults = faults
        self._stats = stats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count and serve one request, and apply the faults that match the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._stats.requests[f"{scope['method']} {self._template(scope)}"] += 1
        if self._faults.down:
            await connection_of(scope).reset(flush=False)
            return
        met, cleared = self._faults.meeting(scope["method"], scope["path"]), self._faults.cleared
        passage = Passage(scope, receive, send, met, cleared, self._stats)
        delay = sum(fault.amount for fault in met if fault.kind == "latency" and fault.use())
        if delay:
            await connection_of(scope).sleep(delay / 1000, cleared)
        for fault in met:
            if fault.kind == "status" and fault.use():
                text = "This answer was asked for over the control socket"
                answer = error_response(int(fault.amount), fault.error, text)
                await answer(scope, passage.receive, passage.send)
                return
        passage.take_reply_faults()
        with suppress(ClientDisconnect):
            await self._app(scope, passage.receive, passage.send)
        await passage.finish()

    def _template(self, scope: Scope) -> str:
        for route in self._routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return "(none)"


def connection_of(scope: Scope) -> Connection:
    """Return the connection of a request."""
    connection: Connection = scope["extensions"]["zonedrive.connection"]["itself"]
    return connection


class Passage:
    """One request, with its byte counters and the faults that apply to it."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        met: list[Fault],
        cleared: asyncio.Event,
        stats: Stats,
    ) -> None:
        self._connection = connection_of(scope)
        self._receive, self._send = receive, send
        self._met = met
        self._cleared = cleared
        self._cuts = [fault for fault in met if fault.kind == "cut"]
        self._stats = stats
        self._drop = False
        self._stall = 0.0
        self._in = self._out = 0
        self._over = False

    def take_reply_faults(self) -> None:
        """Consume one use of the first drop fault and of each stall fault; record their effects."""
        self._drop = any(fault.kind == "drop" and fault.use() for fault in self._met)
        self._stall = sum(f.amount for f in self._met if f.kind == "stall" and f.use())

    async def receive(self) -> Message:
        """Return the next ASGI message of the request: a part of its body, or a disconnect."""
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        body = message.get("body", b"")
        self._in += len(body)
        self._stats.bytes_in += len(body)
        if await self._cut(self._in):
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response, subject to drop, stall and cut faults."""
        if self._over or self._drop:
            return
        if message["type"] == "http.response.start":
            if self._stall:
                await self._connection.sleep(self._stall, self._cleared)
        else:
            body = message.get("body", b"")
            for fault in self._cuts:
                left = int(fault.amount) - self._out
                if left < len(body) and fault.left != 0:
                    await self._send({**message, "body": body[: max(0, left)], "more_body": True})
                    await self._cut(self._out + len(body))
                    return
            self._out += len(body)
            self._stats.bytes_out += len(body)
        await self._send(message)

    async def finish(self) -> None:
        """Reset the connection if a drop fault suppressed the response."""
        if self._drop:
            await self._connection.reset(flush=False)

    async def _cut(self, passed: int) -> bool:
        """Reset the connection if a cut fault allows fewer than `passed` bytes of a body.

        Return True if a cut has reset the connection, now or earlier.
        """
        for fault in self._cuts:
            if not self._over and passed > fault.amount and fault.use():
                self._over = True
                await self._connection.reset(flush=True)
        return self._over
