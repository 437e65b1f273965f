"""Inhibitor locks for pending uploads, and handling of logind's suspend and shutdown signals.

This module contains no code for uploads. See org.freedesktop.login1(5) and systemd-inhibit(1).

Two kinds of locks postpone a shutdown. The reason text of a lock says how much is pending.

- A `delay` lock is held whenever uploads are pending. logind then postpones the shutdown by a few
  seconds, and all pending uploads are attempted at once.
- A `block` lock is also held while uploads can make progress. Desktops show the reason, and let the
  user wait or shut down anyway. There is no `block` lock while the service is offline or requires a
  logon, while uploads are paused, or if all pending files were rejected or are still open in a
  program. Pending changes are stored on disk and uploaded after the next mount.

INVARIANT: this module never takes a lock on sleep, and holds no lock while nothing is pending.
INVARIANT: if there is no system bus or no logind, this module does nothing.
"""

import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import trio
from jeepney import DBusAddress, MatchRule, Properties, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.trio import open_dbus_connection, open_dbus_router
from jeepney.low_level import HeaderFields, Message, MessageType

from zonedrive.formatting import not_sent
from zonedrive.remote.connectivity import Connectivity
from zonedrive.views.status_report import StatusReport

log = logging.getLogger(__name__)

Mode = Literal["delay", "block"]

SECONDS = 3.0  # timeout of a call to logind
CALM_SECONDS = 2.0  # changes that are pending for less time need no lock
REWORD_SECONDS = 10.0  # minimum interval between changes of a lock's reason
RETRY_SECONDS = 600.0  # interval between searches for a bus
SHUTDOWN_SECONDS = 5.0  # time until a shutdown if logind does not report it
SPARE = 0.8  # fraction of the time until the shutdown that is used to send changes
DEAD_SECONDS = 30.0  # duration of a suspend that no connection survives
NAME = "org.freedesktop.login1"
MANAGER = DBusAddress(
    "/org/freedesktop/login1", bus_name=NAME, interface="org.freedesktop.login1.Manager"
)

FROM_LOGIND = MatchRule(  # the bus resolves the sender's name, a message has only its id
    type="signal", sender=NAME, interface=MANAGER.interface, path=MANAGER.object_path
)


@dataclass(frozen=True)
class InhibitorLock:
    """Inhibitor lock, which logind holds until the file descriptor is closed."""

    descriptor: int
    why: str
    since: float

    def release(self) -> None:
        os.close(self.descriptor)


def suspended_seconds() -> float:
    """Return the number of seconds for which this machine has been suspended since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Inhibitor:
    """Manager of the inhibitor locks of one mount."""

    def __init__(
        self,
        report: StatusReport,
        link: Connectivity,
        send_all: Callable[[float], Awaitable[object]],
        woken: Callable[[bool], Awaitable[object]],
    ) -> None:
        """Set the callbacks.

        `send_all` tries to upload all pending changes within the given number of seconds. `woken`
        is called after a suspend, with True if the suspend was so long that connections are dead.
        """
        self._report, self._link = report, link
        self._send_all, self._woken = send_all, woken
        self._suspended = suspended_seconds()
        self._locks: dict[Mode, InhibitorLock] = {}
        self._refused: set[Mode] = set()
        self._ending = False  # True while the machine is shutting down
        self._is_over = False  # True after the last uploads, when all locks are released
        self._pause = trio.CancelScope()  # ends the wait for the next check of the locks

    async def run(self) -> None:
        while True:
            try:
                await self._attend()
            except Exception as wrong:
                # An error of the bus, or its absence, must not affect the mount.
                log.debug("logind cannot be reached: %s", type(wrong).__name__)
            finally:
                self._release()
            await trio.sleep(RETRY_SECONDS)

    async def _attend(self) -> None:
        """Hold the locks and handle the signals of logind until the connection to the bus ends.

        Each method call uses a separate connection, because the library fails on cancellation if
        one connection is used for signals and calls.
        """
        async with await open_dbus_connection("SYSTEM") as bus:
            rule = MatchRule(type="signal", interface=MANAGER.interface, path=MANAGER.object_path)
            with trio.fail_after(SECONDS):
                await bus.send(message_bus.AddMatch(FROM_LOGIND))
                while (await bus.receive()).header.message_type is not MessageType.method_return:
                    pass  # the greeting signal of the bus
            self._ending = self._is_over = False  # an earlier shutdown was cancelled
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hold)
                with contextlib.suppress(trio.EndOfChannel):
                    while True:
                        message = await bus.receive()
                        if rule.matches(message):
                            await self._handle_signal(message)
                nursery.cancel_scope.cancel()

    async def _asked(self, call: Message) -> Message | None:
        """Return the reply of logind to `call`, or None if no reply arrives within SECONDS.

        A cancellation takes effect only after the reply, because the reply may contain a lock,
        which must be released.
        """
        with trio.move_on_after(SECONDS, shield=True):
            async with open_dbus_router("SYSTEM", enable_fds=True) as bus:
                return await bus.send_and_get_reply(call)
        return None

    # ---- signals of logind ----

    async def _handle_signal(self, message: Message) -> None:
        match message.header.fields.get(HeaderFields.member), message.body:
            case "PrepareForShutdown", (True,):
                await self._end()
            case "PrepareForShutdown", (False,):
                self._ending = self._is_over = False
                self._pause.cancel()
            case "PrepareForSleep", (False,):
                before, self._suspended = self._suspended, suspended_seconds()
                await self._woken(self._suspended - before >= DEAD_SECONDS)

    async def _end(self) -> None:
        """Upload pending changes before the delay of the shutdown ends, then release the locks."""
        self._ending = True
        work = self._report.work()
        if self._helps(work):
            log.info("the computer is shutting down: %s; sending changes now", _why(work))
            reply = await self._asked(Properties(MANAGER).get("InhibitDelayMaxUSec"))
            seconds = SHUTDOWN_SECONDS
            if reply is not None and _is_granted(reply):
                seconds = reply.body[0][1] / 1e6
            await self._send_all(SPARE * seconds)
        self._is_over = True
        self._release()

    # ---- locks ----

    async def _hold(self) -> None:
        while True:
            changed, self._pause = self._report.changed, trio.CancelScope()
            if await self._adjust():
                self._pause.deadline = trio.current_time() + REWORD_SECONDS
            with self._pause:
                await changed.wait()
            await trio.sleep(CALM_SECONDS)

    async def _adjust(self) -> bool:
        """Take the locks that are needed now, and release the others; do nothing during a shutdown.

        Return True if a needed lock that logind has not refused is still missing or has an outdated
        reason.
        """
        if self._ending:  # `_end` releases all locks after the last uploads
            return False
        work = self._report.work()
        why, wanted = _why(work), set[Mode]()
        if work["files"]:
            wanted = {"delay", "block"} if self._helps(work) else {"delay"}
        for mode in self._locks.keys() - wanted:
            self._locks.pop(mode).release()
        self._refused &= wanted
        for mode in wanted:
            await self._take(mode, why)
        due = wanted - self._refused
        return any(mode not in self._locks or self._locks[mode].why != why for mode in due)

    def _helps(self, work: dict[str, int]) -> bool:
        """Return True if uploads can be completed while the shutdown is delayed."""
        is_sending = self._link.state == "online" and not work["paused"]
        return is_sending and work["files"] > work["failed"] + work["open"]

    async def _take(self, mode: Mode, why: str) -> None:
        """Take the lock with this mode, or replace a held lock if its reason has changed.

        A lock is replaced at most every REWORD_SECONDS. A lock that logind has refused is requested
        again only after it has become unnecessary and then necessary again. By then, logind may
        allow the lock, for example because the user has logged in to the desktop.
        """
        held = self._locks.get(mode)
        if mode in self._refused or (
            held is not None
            and (held.why == why or trio.current_time() < held.since + REWORD_SECONDS)
        ):
            return
        call = new_method_call(MANAGER, "Inhibit", "ssss", ("shutdown", "zonedrive", why, mode))
        reply = await self._asked(call)
        if reply is None:
            return  # logind was too slow; the next `_adjust` tries again
        if not _is_granted(reply):
            self._refused.add(mode)  # forbidden, or not allowed without a session
            return
        former = self._locks.pop(mode, None)  # None if all locks were released meanwhile
        lock = InhibitorLock(reply.body[0].to_raw_fd(), why, trio.current_time())
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


def _is_granted(reply: Message) -> bool:
    return reply.header.message_type is MessageType.method_return


def _why(work: dict[str, int]) -> str:
    return not_sent({**work, "bytes": work["bytes"] - work["sent"]})
