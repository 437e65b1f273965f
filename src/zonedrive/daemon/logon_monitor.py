"""Timing of logon renewals, and of notifications about the logon, for one mount.

The code that renews a logon or shows a notification is in other modules.

INVARIANT: each notification has a button for the logon, or shows the complete logon command.
INVARIANT: a notification about an ended logon is shown at most every RESAY_SECONDS, unless the user
has logged on since. A reminder that the logon ends soon is shown once for each bearer token, and
once more if a notification about an ended logon has replaced the reminder.
"""

import contextlib
import logging
import time
from functools import partial

import trio

from zonedrive.daemon.click_actions import ClickActions
from zonedrive.daemon.compose import Parts
from zonedrive.daemon.notification_client import Button, Notification
from zonedrive.errors import NotLoggedOn, ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import AGREED_NS, REJECTED, Bearer
from zonedrive.remote.connectivity import State
from zonedrive.translation import translated

log = logging.getLogger(__name__)

SECOND_NS = 10**9
CALM_SECONDS = 2.0  # a state must last this long before the user is notified
RESAY_SECONDS = 600.0
LOOK_SECONDS = 600.0  # maximum interval between checks of the clock, which may be set
TRY_SECONDS = 60.0  # minimum interval between attempts to renew in advance
LEAD = 5  # a logon is renewed when 1/LEAD of its lifetime is left, but not earlier than:
LONGEST_LEAD_NS = 14 * 86_400 * SECOND_NS
REMIND_NS = 7 * 86_400 * SECOND_NS  # before the end of a token that only the user can renew


class LogonMonitor:
    """Monitor that renews the logon of one mount in time, or notifies the user."""

    def __init__(self, parts: Parts, actions: ClickActions, notification: Notification) -> None:
        self._parts, self._actions, self._notification = parts, actions, notification
        self._woken = trio.Event()
        self._told_at = float("-inf")
        self._is_shown = False  # True until the notification about the end is withdrawn
        self._reminded_of = ""  # kind and expiry of the bearer token in the last reminder
        self._is_reminder_due = False  # True until a desktop has shown this reminder

    def logged_on(self) -> None:
        """Use the new logon and check the service again; call this when the user has logged on."""
        self._told_at = float("-inf")
        self._parts.renewal.forget()
        self._parts.auth.look_again()
        self._parts.service.link.recheck()
        self._woken.set()

    def look(self) -> None:
        """Check now whether a renewal is due; call this after a suspend, which stops timers."""
        self._woken.set()

    # ---- a logon that has ended ----

    async def watch_state(self) -> None:
        """Notify the user when the logon has ended; run until cancelled."""
        link = self._parts.service.link
        state: State = "online"
        while True:
            state = await link.wait_other(state)
            pause = CALM_SECONDS  # a renewal takes less time
            while state == "logon-required":
                with trio.move_on_after(pause):
                    state = await link.wait_other(state)
                    break
                if pause == CALM_SECONDS:
                    log.info("the logon has ended: run %s", logon_command(self._parts))
                pause = await self._notify_logged_out()
            if state == "online" and self._is_shown:
                self._is_shown = False
                self._is_reminder_due = True  # this notification may have replaced the reminder
                await self._notification.withdraw()

    async def _notify_logged_out(self) -> float:
        """Show the notification, if it is due; return the seconds until the next attempt.

        Return infinity if no further attempt is needed. An attempt is needed if no desktop has
        shown the notification, for example because the user has not logged in yet. An attempt is
        also needed if the last notification was withdrawn less than RESAY_SECONDS after it was
        shown.
        """
        wait = self._told_at + RESAY_SECONDS - trio.current_time()
        if wait > 0:
            return float("inf") if self._is_shown else wait
        safe = translated(
            "Your changes are safe on this computer. They are uploaded after you log on."
        )
        text = f"{_reason(self._parts.service.link.last_error)} {safe}"
        is_shown = await self._show(
            translated("Log on to {name} again"), text, logon_command(self._parts)
        )
        if not is_shown:
            return RESAY_SECONDS
        self._told_at, self._is_shown = trio.current_time(), True
        return float("inf")

    # ---- a logon that will end ----

    async def watch_clock(self) -> None:
        """Renew the logon before it ends, or remind the user; run until cancelled.

        When the logon expires, ask the service whether the logon has ended. Also store the data key
        again if the secret store has lost the key.
        """
        while True:
            self._woken = trio.Event()
            seconds = await self._look()
            with trio.move_on_after(min(seconds, LOOK_SECONDS)):
                await self._woken.wait()
            await self._parts.data_key.keep()  # not at the start, which has just read the key

    async def _look(self) -> float:
        """Renew the logon or remind the user, if due; return the seconds until the next check."""
        auth, renewal = self._parts.auth, self._parts.renewal
        bearer = auth.usable()
        if auth.last is None:
            with contextlib.suppress(ZonedriveError):  # the first request reports the error
                bearer = await trio.to_thread.run_sync(auth.find, abandon_on_cancel=True)
        if bearer is None:
            return LOOK_SECONDS
        if self._reminded_of not in ("", _identity(bearer)):  # the user has logged on since
            self._reminded_of = ""
            if not self._is_shown:
                await self._notification.withdraw()
        if not bearer.expires_ns:
            return LOOK_SECONDS
        possible = await trio.to_thread.run_sync(renewal.is_possible)
        until_end = bearer.expires_ns + AGREED_NS - auth.clock.now_ns()
        if until_end <= 0:
            return await self._check_end()
        left = until_end - AGREED_NS - _lead(bearer, possible)
        if left > 0:
            return left / SECOND_NS
        if not possible:
            await self._remind(bearer)
            return until_end / SECOND_NS
        try:
            early = partial(renewal, bearer, ended=False)
            fresh = await trio.to_thread.run_sync(early, abandon_on_cancel=True)
        except NotLoggedOn as refused:
            await self._remind(bearer, refused)
            return until_end / SECOND_NS
        if fresh is None or fresh.secret == bearer.secret:
            return TRY_SECONDS
        auth.renewed(fresh)
        log.info("the logon was renewed; the %s is valid until %s", fresh.kind, fresh.until)
        return TRY_SECONDS  # not earlier, because the service may state a wrong lifetime

    async def _check_end(self) -> float:
        """Send a request with the expired bearer token; return the seconds until the next check.

        Without a request, an idle mount would stay `online`. The service decides whether the logon
        has ended, because requests may have prolonged a session.
        """
        service = self._parts.service
        if service.link.state == "online":
            await service.probe("online")
        return LOOK_SECONDS if service.link.state == "online" else TRY_SECONDS

    async def _remind(self, bearer: Bearer, refused: ZonedriveError | None = None) -> None:
        """Notify the user, once per bearer token, that the logon ends soon.

        If no desktop shows the notification, for example because the user has not logged in yet,
        the next call tries again. `refused` is the error of a rejected renewal. If the bearer token
        is a session id, which is short-lived, notify the user only if `refused` is given.
        """
        if bearer.kind == "session" and refused is None:
            return
        command = logon_command(self._parts)
        if self._reminded_of != _identity(bearer):
            self._reminded_of, self._is_reminder_due = _identity(bearer), True
            log.info("the logon ends on %s: run %s", bearer.until, command)
        if not self._is_reminder_due:
            return
        why = f"{_reason(refused)} " if refused else ""
        text = translated("It is valid until {time}. After that, changes wait on this computer.")
        text = why + text.format(time=bearer.until)
        title = translated("Your logon to {name} ends soon")
        self._is_reminder_due = not await self._show(title, text, command)

    async def _show(self, title: str, text: str, command: str) -> bool:
        return await self._notification.show(
            title.format(name=self._parts.account.service_name),
            text,
            (Button(translated("Log on"), self._actions.open_window("logon")),),
            translated("To log on, run: {command}").format(command=command),
        )


def logon_command(parts: Parts) -> str:
    """Return the command that repeats the last logon, according to the account file."""
    bearer = parts.auth.last
    session_only = bearer is not None and bearer.kind == "session"
    command = Account.logon_again(parts.paths, session_only)
    return command or parts.account.logon_command(session_only=session_only)


def _identity(bearer: Bearer) -> str:
    """Return the kind and the expiry of the bearer token, which together identify the logon."""
    return f"{bearer.kind} {bearer.expires_ns}"


def _lead(bearer: Bearer, possible: bool) -> int:
    """Return the time in nanoseconds from the renewal of the bearer token to the token's expiry.

    `possible` is False if only the user can renew the token. The result is then the time from the
    reminder to the expiry.
    """
    life = bearer.expires_ns - (bearer.began_ns or time.time_ns())
    lead = max(0, life) // LEAD
    return min(lead, LONGEST_LEAD_NS if possible else REMIND_NS)


def _reason(error: ZonedriveError | None) -> str:
    """Return the reason for the end of the logon as a sentence.

    The sentence is translated only if the bearer token was rejected or the reason is unknown.
    """
    if error is None or REJECTED in error.message:
        return translated("Your logon has ended.")
    text = error.message
    return f"{text[:1].upper()}{text[1:]}."
