"""Asks logind for time while something waits to be uploaded, and hears of suspends and resumes.

Must not know how things are uploaded.  See org.freedesktop.login1(5) and systemd-inhibit(1).

Two locks on a shutdown, with how much waits as their reason:
- `delay` whenever something waits.  logind then gives a few seconds, in which all is tried at once.
- `block` besides, as long as waiting helps: the service is there and takes what comes.  Desktops
  show its reason and let a person wait or shut down nevertheless.  Offline, without a logon, for
  what was refused or is still open in a program nobody is kept from shutting down: what waits is
  safe, and goes on at the next mount.

INVARIANT: there is never a lock on sleep, and none at all while nothing waits.
INVARIANT: without a system bus or a logind everything here is quiet.
"""

import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Literal

import trio
from jeepney import DBusAddress, MatchRule, Message, MessageType, Properties, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.trio import open_dbus_connection, open_dbus_router

from zonedrive.amounts import unsent, verb
from zonedrive.daemon.racing import first
from zonedrive.remote.link import Link
from zonedrive.vfs.report import Report

log = logging.getLogger(__name__)

Mode = Literal["delay", "block"]

SECONDS = 3.0  # that logind may take to answer
CALM_SECONDS = 2.0  # what waits for less needs no lock
REWORD_SECONDS = 10.0  # between two wordings of one lock
RETRY_SECONDS = 600.0  # between two looks for a bus
SHUTDOWN_SECONDS = 5.0  # that logind gives, where it does not say how many
SPARE = 0.8  # the part of them that is used
DEAD_SECONDS = 30.0  # after a sleep of this length no connection lives any more

NAME = "org.freedesktop.login1"
MANAGER = DBusAddress(
    "/org/freedesktop/login1", bus_name=NAME, interface="org.freedesktop.login1.Manager"
)

FROM_LOGIND = MatchRule(  # the bus knows whose name that is, the message does not say it
    type="signal", sender=NAME, interface=MANAGER.interface, path=MANAGER.object_path
)


class Held:
    """One lock; logind holds it for as long as its descriptor is open."""

    def __init__(self, descriptor: int, why: str) -> None:
        self._descriptor = descriptor
        self.why = why
        self.since = trio.current_time()

    def release(self) -> None:
        """Give it back."""
        os.close(self._descriptor)


def asleep() -> float:
    """Seconds that this machine has slept since it started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Inhibitor:
    """One mount's."""

    def __init__(
        self,
        report: Report,
        link: Link,
        send_all: Callable[[float], Awaitable[object]],
        woken: Callable[[bool], Awaitable[object]],
        slept: Callable[[], float] = asleep,
    ) -> None:
        """`send_all` tries to send everything within so many seconds.

        `woken` is called after a sleep; with True where it was so long that connections are dead.
        """
        self._report, self._link = report, link
        self._send_all, self._woken, self._slept = send_all, woken, slept
        self._asleep = slept()
        self._locks: dict[Mode, Held] = {}
        self._refused: set[Mode] = set()
        self._ending = False  # of the machine
        self._is_over = False  # what could be sent before that, and all locks were given back
        self._stirred = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if (address := system_bus()) is not None:
                try:
                    await self._attend(address)
                except Exception as wrong:
                    # Whatever a bus, or what stands in its place, does: the mount matters more.
                    log.debug("logind cannot be asked: %s", type(wrong).__name__)
                finally:
                    self._release()
            await trio.sleep(RETRY_SECONDS)

    async def _attend(self, address: str) -> None:
        """As long as the bus is there.

        Who listens has a connection of its own, and every question has: with both in one, the
        library fails when it is cancelled.
        """
        async with await open_dbus_connection(address) as bus:
            rule = MatchRule(type="signal", interface=MANAGER.interface, path=MANAGER.object_path)
            with trio.fail_after(SECONDS):
                await bus.send(message_bus.AddMatch(FROM_LOGIND))
                while (await bus.receive()).header.message_type is not MessageType.method_return:
                    pass  # a greeting of the bus
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hold, address)
                with contextlib.suppress(trio.EndOfChannel):
                    while True:
                        message = await bus.receive()
                        if rule.matches(message):
                            await self._hear(message, address)
                nursery.cancel_scope.cancel()

    async def _asked(self, address: str, call: Message) -> Message | None:
        """Return the reply of logind, None if there is none in time.

        The end of the mount waits for it, because a lock may be in it.
        """
        with trio.move_on_after(SECONDS, shield=True):
            async with open_dbus_router(address, enable_fds=True) as bus:
                return await bus.send_and_get_reply(call)
        return None

    # ---- what logind says ----

    async def _hear(self, message: Message, address: str) -> None:
        match message.header.fields.get(3), message.body:
            case "PrepareForShutdown", (True,):
                await self._end(address)
            case "PrepareForShutdown", (False,):
                self._ending = self._is_over = False
                self._stirred.set()
            case "PrepareForSleep", (False,):
                before, self._asleep = self._asleep, self._slept()
                await self._woken(self._asleep - before >= DEAD_SECONDS)

    async def _end(self, address: str) -> None:
        """Use the time that logind gives; as soon as nothing is left to do, it need not wait."""
        self._ending = True
        work = self._report.work()
        if self._helps(work):
            log.info("shutdown: %s; trying to send it", _why(work))
            await self._send_all(SPARE * await self._given(address))
        self._is_over = True
        self._release()

    async def _given(self, address: str) -> float:
        """Seconds."""
        question = Properties(MANAGER).get("InhibitDelayMaxUSec")
        reply = await self._asked(address, question)
        if reply is None or not _is_granted(reply):
            return SHUTDOWN_SECONDS
        return float(reply.body[0][1]) / 1e6

    # ---- what is asked of it ----

    async def _hold(self, address: str) -> None:
        """Have the locks that are due."""
        while True:
            self._stirred = trio.Event()
            changed, state = self._report.changed, self._link.state
            stale = await self._adjust(address)
            with trio.move_on_after(REWORD_SECONDS if stale else float("inf")):
                await first(changed.wait, self._stirred.wait, partial(self._link.wait_other, state))
            await trio.sleep(CALM_SECONDS)

    async def _adjust(self, address: str) -> bool:
        """Take and give back locks; return True if one is missing or has former words."""
        if self._ending:  # all is given back when what can be sent is
            return False
        work = self._report.work()
        wanted, why = self._wanted(work), _why(work)
        for mode in self._locks.keys() - wanted:
            self._locks.pop(mode).release()
        for mode in wanted:
            await self._take(address, mode, why)
        due = wanted - self._refused
        return any(mode not in self._locks or self._locks[mode].why != why for mode in due)

    def _wanted(self, work: dict[str, int]) -> set[Mode]:
        if not work["files"]:
            return set()
        return {"delay", "block"} if self._helps(work) else {"delay"}

    def _helps(self, work: dict[str, int]) -> bool:
        """Whether to wait is of use."""
        return self._link.state == "online" and work["files"] > work["failed"] + work["open"]

    async def _take(self, address: str, mode: Mode, why: str) -> None:
        """Take a lock, or one with newer words in place of the former."""
        held = self._locks.get(mode)
        if mode in self._refused or (
            held is not None
            and (held.why == why or trio.current_time() < held.since + REWORD_SECONDS)
        ):
            return
        call = new_method_call(MANAGER, "Inhibit", "ssss", ("shutdown", "zonedrive", why, mode))
        reply = await self._asked(address, call)
        if reply is None:
            return  # logind was too slow: the next round asks again
        if not _is_granted(reply):
            self._refused.add(mode)  # by the administrator's rules
            return
        former = self._locks.pop(mode, None)  # none, if all were given back meanwhile
        lock = Held(reply.body[0].to_raw_fd(), why)
        if self._is_over:
            lock.release()
        else:
            self._locks[mode] = lock
        if former is not None:
            former.release()

    def _release(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()


def system_bus() -> str | None:
    """The address of the machine's D-Bus, None where there is none."""
    if address := os.environ.get("DBUS_SYSTEM_BUS_ADDRESS"):
        return address
    path = Path("/run/dbus/system_bus_socket")
    return f"unix:path={path}" if path.is_socket() else None


def _is_granted(reply: Message) -> bool:
    """Return True unless the reply is an error."""
    return reply.header.message_type is MessageType.method_return


def _why(work: dict[str, int]) -> str:
    left = {**work, "bytes": work["bytes"] - work["sent"]}
    return f"{unsent(left)} {verb(work['files'])} not on the service yet"
