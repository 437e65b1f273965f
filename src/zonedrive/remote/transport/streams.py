"""Concurrent requests on one or two shared connections, if the service supports HTTP/2.

This module contains no endpoints. It runs on the trio loop: libcurl runs in the tasks that wait for
responses.

INVARIANT: only repeatable requests are sent this way. libcurl repeats a request by itself if the
service refuses a stream, or closes a reused connection without a response.
INVARIANT: no response is paused. If a paused response is cancelled, libcurl 7.88 mixes the bytes of
this response with those of other responses.
INVARIANT: while tasks wait, exactly one of the tasks waits for the sockets. This task also wakes up
if another task has received data for it, or if libcurl has set an earlier timer.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import httpx
import pycurl
import trio

from zonedrive.remote.transport.engine import (
    TIMERS,
    Engine,
    carry,
    configure,
    failure,
    release,
    was_sent,
    watch_peer,
)
from zonedrive.remote.transport.exchange import Exchange
from zonedrive.remote.transport.tls import Trust

HTTP_2: Final = bool(pycurl.version_info()[4] & pycurl.VERSION_HTTP2)
"""True if this libcurl supports HTTP/2."""
KEPT: Final = 32  # maximum number of idle libcurl handles


class Streams(Engine):
    """HTTP/2 connections to one origin, shared by all tasks."""

    def __init__(self, trust: Trust, url: httpx.URL) -> None:
        super().__init__(url)
        self._trust = trust
        self._free: list[pycurl.Curl] = []
        self._running: dict[pycurl.Curl, Exchange] = {}
        self._waiting: dict[Exchange, trio.Event] = {}
        self.is_used = False  # a request was answered
        self.is_retired = self.is_closed = False
        self._driver: tuple[Exchange, trio.CancelScope] | None = None

    def begin(self, exchange: Exchange) -> None:
        """Start sending a GET request, without waiting."""
        easy = self._free.pop() if self._free else self._new()
        carry(easy, exchange)
        exchange.easy, exchange.is_first = easy, not self.is_used
        self._running[easy] = exchange
        self.multi.add_handle(easy)
        self._step(())

    async def wait(self, exchange: Exchange) -> None:
        """Wait until more of the response has arrived, or the response has ended.

        Raises httpx.TimeoutException after the deadline of `exchange`.
        """
        seen = exchange.seen
        try:
            while exchange.seen == seen and not exchange.is_over:
                end, kind = exchange.due()
                left = end - time.monotonic()
                if left <= 0:
                    raise kind("no data arrived in time")
                with trio.move_on_after(left):
                    await self._turn(exchange)
        finally:
            if self._driver is None and self._waiting:  # another task must wait for the sockets
                next(iter(self._waiting.values())).set()
        exchange.moves()

    def leave(self, exchange: Exchange) -> None:
        """Stop receiving a response.

        If `retire` was called, and no other request is in progress, also close the connections.
        """
        if exchange.easy is not None:
            self._finish(exchange.easy)
        if self.is_retired and not self._running:
            self.close()

    def retire(self) -> None:
        """Allow no new requests, and close the connections once no request is in progress."""
        self.is_retired = True
        if not self._running:
            self.close()

    def close(self) -> None:
        """Abort all requests in progress and close all connections."""
        if self.is_closed:
            return
        self.is_retired = True
        for easy, exchange in list(self._running.items()):
            exchange.wrong = exchange.wrong or httpx.ReadError("the transfer was aborted")
            self._finish(easy)
        for event in self._waiting.values():
            event.set()
        for easy in self._free:
            easy.close()
        self._free.clear()
        self.is_closed = True
        trio.lowlevel.notify_closing(self.epoll.fileno())
        self.dispose()

    async def _turn(self, exchange: Exchange) -> None:
        """Wait for the sockets, or for a wake-up by the task that already waits for the sockets."""
        if self._driver is not None:
            event = self._waiting[exchange] = trio.Event()
            try:
                await event.wait()
            finally:
                self._waiting.pop(exchange, None)
            return
        with trio.CancelScope(deadline=self._due()) as scope, suppress(trio.ClosedResourceError):
            self._driver = exchange, scope
            try:
                await trio.lowlevel.wait_readable(self.epoll.fileno())
            finally:
                self._driver = None
        if not self.is_closed:
            self._step(self.epoll.poll(0))

    def _due(self) -> float:
        if self.alarm is None:
            return float("inf")
        return trio.current_time() + self.alarm - time.monotonic()

    def _step(self, events: Iterable[tuple[int, int]]) -> None:
        before = {each: each.seen for each in self._waiting}
        if self._driver is not None:
            before[self._driver[0]] = self._driver[0].seen
        self.act(events)
        self.act_on_timers(TIMERS)
        for easy, exchange in self._running.items():
            if not exchange.is_sent and was_sent(easy):
                exchange.is_sent, exchange.moved = True, time.monotonic()
        while True:
            left, good, bad = self.multi.info_read()
            for easy in good:
                self.is_used = True
                self._finish(easy)
            for easy, code, text in bad:
                exchange = self._running[easy]
                exchange.wrong = exchange.wrong or failure(easy, exchange, code, text, self._proxy)
                self._finish(easy)
            if not left:
                break
        for exchange, seen in before.items():
            if exchange in self._waiting and (exchange.is_over or exchange.seen != seen):
                self._waiting[exchange].set()
        if self._driver is not None:
            driver, scope = self._driver
            scope.deadline = min(scope.deadline, self._due())
            if driver.is_over or driver.seen != before[driver]:
                scope.cancel()

    def _finish(self, easy: pycurl.Curl) -> None:
        exchange = self._running.pop(easy)
        exchange.easy, exchange.is_over = None, True
        exchange.is_reused = not easy.getinfo(pycurl.NUM_CONNECTS)
        self.remove(easy)
        if len(self._free) < KEPT:
            release(easy)
            self._free.append(easy)
        else:
            easy.close()

    def _new(self) -> pycurl.Curl:
        easy = pycurl.Curl()
        configure(easy, self._trust, self._proxy)
        easy.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        easy.setopt(pycurl.PIPEWAIT, 1)
        easy.setopt(pycurl.SOCKOPTFUNCTION, watch_peer)
        return easy
