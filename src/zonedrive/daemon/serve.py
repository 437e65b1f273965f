"""Life cycle of a daemon: build, mount, serve, orderly shutdown.

INVARIANT: the shutdown has a fixed order: detach from the kernel (no new requests), close the file
system (all written data is in the outbox), close the stores, remove the socket file, release the
lock, and last answer the clients that requested the shutdown. A client that receives this answer
can therefore start a new daemon at once.
"""

import dataclasses
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import trio

from zonedrive import config, process_setup
from zonedrive.daemon import last_run, logs
from zonedrive.daemon.click_actions import ClickActions
from zonedrive.daemon.compose import Parts, build
from zonedrive.daemon.control_server import Server
from zonedrive.daemon.daemonize import RECOVERY_SECONDS, START_SECONDS, Pipe
from zonedrive.daemon.handlers import ENDING, Commands
from zonedrive.daemon.inhibitor import Inhibitor
from zonedrive.daemon.last_run import Run
from zonedrive.daemon.local_data import forbidden
from zonedrive.daemon.lock import LISTEN, Lock, reading
from zonedrive.daemon.logon_monitor import LogonMonitor, logon_command
from zonedrive.daemon.notification_client import NORMAL, Desktop, Notification
from zonedrive.daemon.notifications import Alerts
from zonedrive.daemon.service_manager import Notifier, StatusLine, wait_for_unlock
from zonedrive.errors import StoreError, ZonedriveError, first_of
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mount import Session
from zonedrive.fuse.options import Options, parse
from zonedrive.logon.account import Account
from zonedrive.logon.secrets import KeyringLocked
from zonedrive.paths import NO_ROOM, AccountPaths, config_file, note_state_dir
from zonedrive.state.inode import ROOT
from zonedrive.supervisor import Task
from zonedrive.translation import marked

log = logging.getLogger(__name__)

# Maximum duration of closing; the next start recovers anything not closed by then.
CLOSE_SECONDS = 20.0
FAREWELL_SECONDS = 5.0  # maximum time to send the last answers


@dataclass(frozen=True)
class Start:
    """Start parameters of one daemon."""

    paths: AccountPaths
    folder: str  # as the user wrote the folder; `mountpoint.check` resolves the path
    options: tuple[str, ...]  # the arguments of all -o options
    foreground: bool = False


def run(start: Start, ready: Pipe) -> None:
    """Mount and serve until the mount ends.

    Report to `ready` that the mount is ready, or the error that prevented the mount. Raises this
    error, or an error that ends the mount later.
    """
    lock = Lock(start.paths.lock, start.paths.account)
    record = Run(start.paths)
    parts: Parts | None = None
    try:
        options = parse(start.options)
        with reading(start.paths.lock) as is_free:
            if is_free:
                last_run.keep_last_sign(start.paths)  # the log may change from here on
        if start.foreground:
            fields = {"ACCOUNT": start.paths.account, "MOUNTPOINT": start.folder}
            logs.to_stderr(fields, debug=options.debug)
        else:
            logs.to_file(start.paths.log, debug=options.debug)
        logs.add_anonymous(start.paths.log)
        process_setup.forbid_dumps()
        process_setup.raise_limits()
        note_state_dir()  # an earlier version may have made the account
        shared = config.organization(start.paths.account)
        settings = config.load(
            config_file(), start.paths.account, options.settings, system=shared, tell=log.warning
        )
        if (most := process_setup.affordable_connections()) < settings.connections:
            log.warning("the limit of open files (ulimit -n) allows only %d connections", most)
            settings = msgspec.structs.replace(settings, connections=most)
        if shared.is_read_only:
            kernel = (*(each for each in options.kernel if each != "rw"), "ro")
            options = dataclasses.replace(options, kernel=kernel)

        def before_recovery() -> None:
            Notifier().extend_start("opening the local data", RECOVERY_SECONDS)
            ready.extend(RECOVERY_SECONDS)

        def make(account: Account) -> Parts:
            if policy := forbidden(start.paths):
                raise policy
            return build(account, settings, start.paths, before_recovery)

        folder, parts = _opened(start, lock, make)
        ready.extend(START_SECONDS)
        trio.run(Daemon(start, folder, options, parts, lock, ready, record).main)
    except Exception as raised:
        error = first_of(raised)
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            error = StoreError(
                f"the disk of {error.filename or start.paths.state} is full",
                remedy="make room there; pending changes are kept",
            )
        if record.is_open or not isinstance(error, ZonedriveError | OSError):
            log.error("the daemon failed", exc_info=raised)
        record.died(error)
        ready.failed(error)
        raise error from raised
    finally:
        if parts is not None:
            parts.state.database.close()
        lock.release()


def _opened(start: Start, lock: Lock, make: Callable[[Account], Parts]) -> tuple[Path, Parts]:
    """Check the folder, take the lock, load the account, and build the components with `make`.

    Return the absolute path of the folder, and the components. The account is loaded only when the
    lock is held, because a logoff that held the lock may have removed the account. If the keyring
    is locked and a service manager runs this daemon, release the lock, wait until the keyring is
    unlocked, and repeat all steps.
    """
    notifier = Notifier()
    while True:
        folder = mountpoint.check(start.folder)
        lock.take(folder)
        try:
            return folder, make(Account.load(start.paths))
        except KeyringLocked as shut:
            if not (start.foreground and notifier.has_manager):
                raise
            lock.release()
            wait_for_unlock(notifier, shut.line())


@dataclass(eq=False)
class Daemon:
    """Daemon of one mount, with its background tasks."""

    _start: Start
    _folder: Path
    _options: Options
    _parts: Parts
    _lock: Lock
    _ready: Pipe
    _record: Run

    def __post_init__(self) -> None:
        paths, parts, report = self._start.paths, self._parts, self._parts.files.report
        link, supervisor = parts.service.link, parts.state.supervisor
        self._received: set[int] = set()  # termination signals
        self._over = trio.Event()
        self._notifier = Notifier()
        self._session = Session(parts.files, self._folder, parts.account.base_url, supervisor)
        self._desktop = Desktop()
        actions = ClickActions(self._desktop, paths.account, lambda: self._session.folder)
        self._logon_monitor = LogonMonitor(parts, actions, Notification(self._desktop))
        self._status_line = StatusLine(self._notifier, link, report, partial(logon_command, parts))
        self._alerts = Alerts(
            report,
            paths,
            actions,
            failures=Notification(self._desktop, "dialog-warning", NORMAL),
            conflicts=Notification(self._desktop, "dialog-information", NORMAL),
        )
        self._inhibitor = Inhibitor(report, link, self._send_all, self._on_resume)
        commands = Commands(parts, self._session, self._over, self._logon_monitor.logged_on)
        self._server = Server(paths.control, commands.handlers, supervisor)

    async def main(self) -> None:
        try:
            self._server.listen()  # before the mount, so that a failure leaves no mount behind
            # Also before the mount, so that a signal does not leave a dead mount behind.
            # Signals that the parent process ignores, for example with nohup, stay ignored. But
            # SIGTERM always ends the daemon, as other commands and the end of the machine expect.
            ending = [one for one in (signal.SIGINT, signal.SIGHUP)
                      if signal.getsignal(one) is not signal.SIG_IGN]  # fmt: skip
            with trio.open_signal_receiver(signal.SIGTERM, *ending, LISTEN) as signals:
                self._session.attach(self._options)
                try:
                    self._announce_in_lock()
                except BaseException:  # for example, the disk is full
                    self._session.close()
                    raise
                await self._serve(signals)
        finally:
            self._server.hide()

    async def _serve(self, signals: AsyncIterator[int]) -> None:
        async with trio.open_nursery() as nursery:
            watch = partial(self._watch_signals, signals)
            nursery.start_soon(self._parts.state.supervisor.keep, Task.SIGNALS, watch)
            nursery.start_soon(self._server.serve)
            try:
                await self._mounted()
            finally:
                self._over.set()
                # Send the answers to the clients that are waiting for the end.
                with trio.move_on_after(FAREWELL_SECONDS, shield=True):
                    await self._server.finish()
                nursery.cancel_scope.cancel()

    async def _mounted(self) -> None:
        """Run the mount and its background tasks until the mount ends, then close the stores."""
        keep = self._parts.state.supervisor.keep
        lost = False
        try:
            async with trio.open_nursery() as nursery:
                try:
                    await nursery.start(self._parts.files.run)
                    nursery.start_soon(keep, Task.WATCHDOG, self._notifier.watchdog)
                    nursery.start_soon(keep, Task.DESKTOP, self._desktop.run)
                    nursery.start_soon(keep, Task.LOGON_STATE, self._logon_monitor.watch_state)
                    nursery.start_soon(keep, Task.LOGON_RENEWAL, self._logon_monitor.watch_clock)
                    await nursery.start(self._session.run)
                    nursery.start_soon(keep, Task.STATUS_LINE, self._status_line.run)
                    nursery.start_soon(keep, Task.NOTIFICATIONS, self._alerts.run)
                    nursery.start_soon(keep, Task.SHUTDOWN_LOCK, self._inhibitor.run)
                    if not self._session.is_stopped:
                        self._announce()
                        await self._notifier.ready(self._status_line.line())
                    await self._session.ended.wait()
                finally:
                    self._server.end(ENDING)
                    # The threads of transfers could wait for the service for a long time. The next
                    # mount checks the result of an interrupted upload before it is sent again.
                    self._parts.service.transfer.hang_up()
                nursery.cancel_scope.cancel()
        except Exception as wrong:
            lost = self._record.is_open
            if lost:
                log.exception("the daemon failed")
                self._record.died(wrong)
            raise
        finally:
            self._notifier.stopping()
            # After a crash, paths must return errors, not look like an empty folder.
            try:
                self._session.close(unmount=not lost)
            except Exception:  # written data is stored nevertheless
                log.exception("the unmount failed")
            with suppress(OSError):
                self._announce_in_lock()
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                try:
                    await self._parts.files.aclose()
                except Exception:
                    log.exception("closing failed; the next mount recovers what was not closed")
                await self._parts.data_key.keep()
            self._notifier.status(self._status_line.end())
            self._parts.state.database.close()
            self._server.hide()
            self._record.end()
            # Before the release, after which a logoff may delete the log.
            log.info("%s is %s", self._session.folder, "lost" if lost else "unmounted")
            self._lock.release()

    async def _send_all(self, seconds: float) -> None:
        """Upload all pending changes, for at most this number of seconds."""
        scope = trio.move_on_after(seconds)
        report = self._parts.files.report
        await report.sync([ROOT], scope, is_patient=True, first=False)

    async def _on_resume(self, dead: bool) -> None:
        log.info("resumed after a suspend")
        await self._parts.service.reconnect(dead=dead)
        self._logon_monitor.look()

    def _announce(self) -> None:
        if died := last_run.recorded(self._start.paths):
            log.info("the previous daemon did not end normally: %s", died.line)
        if pause := self._parts.files.report.pause:
            log.info("%s", pause.line)
        self._record.begin(self._session.folder)
        log.info("%s is mounted at %s", self._parts.account.base_url, self._session.folder)
        self._ready.ok()

    async def _watch_signals(self, signals: AsyncIterator[int]) -> None:
        """Unmount on a termination signal; exit at once if SIGTERM or SIGINT is repeated.

        Two different signals do not end the daemon at once, because systemd sends SIGTERM together
        with SIGHUP at the end of a login session. Neither does a repeated SIGHUP, because the shell
        and the kernel send one each when a terminal closes.

        On the signal LISTEN, recreate the control socket if it is missing.
        """
        async for number in signals:
            name = signal.Signals(number).name
            if number == LISTEN:
                self._restore_socket()
            elif number in self._received and number != signal.SIGHUP:
                why = marked(f"a second signal ({name}) ended it before it was unmounted")
                self._record.died(why)
                os._exit(128 + number)
            else:
                self._received.add(number)
                log.info("%s: unmounting", name)
                self._session.stop()

    def _announce_in_lock(self) -> None:
        self._lock.announce(self._server.path, self._session.identity)

    def _restore_socket(self) -> None:
        """Recreate the control socket if it is missing.

        For example, the end of a desktop session may have removed the folder of the socket.
        """
        try:
            self._server.listen_again(self._start.paths.control)
            self._announce_in_lock()
        except (ZonedriveError, OSError) as wrong:
            log.warning("commands cannot reach this daemon: %s", wrong)
