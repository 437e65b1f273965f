"""Handlers of the commands on the control socket.

Knows nothing about sockets or JSON lines: a handler receives the request and a callback for
progress, returns the object of the last line, and raises errors.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from zonedrive import __version__
from zonedrive.daemon.compose import Parts
from zonedrive.daemon.control_server import Handler, Say
from zonedrive.daemon.logon_monitor import logon_command
from zonedrive.daemon.pin_handlers import PinHandlers
from zonedrive.daemon.protocol import Message
from zonedrive.daemon.serialize import timestamp, version_objects, zone_names, zone_objects
from zonedrive.daemon.trash import Trash
from zonedrive.errors import ZonedriveError, described, first_of
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mount import Session
from zonedrive.state.inode import ROOT, Inode
from zonedrive.views.path_lookup import Place

log = logging.getLogger(__name__)

SAY_SECONDS = 0.5
"""Interval in seconds between progress reports of a waiting command."""

AWAY_SECONDS = 60.0
"""Seconds that `sync` without a timeout waits for an unreachable service."""

SILENT_SECONDS = 1.0
"""Minimum `timeout` of `sync`, in seconds, after which no answer means a silent service."""

AWAY = "it is sent by itself when the service is back"

HELD = 20
"""Maximum number of open files reported by path."""

BUSY_SECONDS = 0.2
"""Interval in seconds between attempts to unmount a mount in use."""


WAITING = ("pending", "uploading", "failed")
NOT_SENT = "what was changed here since is not there yet; see 'zonedrive status'"

ENDING = frozenset({"unmount", "stop"})
"""Commands whose answer is sent after everything is closed."""


class Commands:
    """Command handlers of one daemon."""

    def __init__(
        self,
        parts: Parts,
        session: Session,
        over: trio.Event,
        logged_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up the handlers; `over` is set when everything is closed and the lock is free."""
        self._logged_on = logged_on
        self._parts = parts
        self._session = session
        self._over = over
        self.handlers: dict[str, Handler] = {
            "status": self.status,
            "vitals": self.vitals,
            "sync": self.sync,
            "unmount": self.unmount,
            "stop": self.stop,
            "logged-on": self.logged_on,
            "zones": self.zones,
            "conflicts": self.conflicts,
            "versions": self.versions,
            "trash": self.trash,
            "restore": self.restore,
            "purge": self.purge,
            **PinHandlers(parts, self._inode).handlers,
        }

    # ---- looking ----

    async def status(self, request: Message, say: Say) -> Message:
        """Return the status object; `paths` and `most` limit the uploads in it.

        If the service is not online, the object also has `reason`, and `remedy` if the user can do
        something. `failing` names the background tasks that fail, if any.
        """
        places, most = await self._places(request), _most(request)
        roots = None if places is None else _inos(places)
        found = self._parts.files.report.status(roots, most)
        if most is not None:  # output for users has more than the contract's object
            found |= self._aside(places, roots)
        return {
            "account": self._parts.paths.account,
            "base_url": self._parts.account.base_url,
            "mountpoint": os.fspath(self._session.folder),
            "pid": os.getpid(),
            **found,
            **self._why(),
            **self._failing(),
        }

    def _aside(self, places: list[Place] | None, roots: list[int] | None) -> Message:
        """Return facts that do not concern the outbox.

        `named`: the requested paths that are local only or virtual. `local`: number of files in
        them with a name of `local_only`, and one of their paths.
        """
        files = self._parts.files
        named = [
            {"path": one.path, "what": one.stays or one.what, "stays": bool(one.stays)}
            for one in places or ()
            if one.stays or one.what
        ]
        inos = {one.inode.ino for one in places or () if one.inode is not None and one.stays}
        return {"named": named, "local": files.places.local(roots, inos)}

    def _why(self) -> dict[str, str]:
        """Return the reason why the service is not online."""
        link = self._parts.service.link
        if link.state == "online":
            return {}
        reason = link.last_error
        said = {"reason": reason.message} if reason is not None else {}
        if link.state == "logon-required":
            return {**said, "remedy": logon_command(self._parts)}
        return said

    def _failing(self) -> Message:
        failing = self._parts.state.supervisor.failing()
        return {"failing": [each.json() for each in failing]} if failing else {}

    async def vitals(self, request: Message, say: Say) -> Message:
        """Return the daemon's health data, which includes no names."""
        vitals = self._parts.files.report.vitals()
        failing = [f"{each.task} ({each.kind})" for each in self._parts.state.supervisor.failing()]
        return {"version": __version__, **vitals, "failing": failing}

    async def logged_on(self, request: Message, say: Say) -> Message:
        """Load the new bearer now, because the user has just logged on."""
        self._logged_on()
        return {}

    async def zones(self, request: Message, say: Say) -> Message:
        """Return every zone of the service."""
        zones = await self._parts.service.zones()
        return {"zones": zone_objects(zones, zone_names(self._parts.state.inodes))}

    async def conflicts(self, request: Message, say: Say) -> Message:
        """Return the existing conflict copies."""
        return {"conflicts": [_conflict(one) for one in self._parts.files.report.conflicts()]}

    async def versions(self, request: Message, say: Say) -> Message:
        """Return the versions of the file at `path`, which may be a path in `.versions`.

        `unknown` says why there are none if the service does not have the file. `aside` describes
        local changes of the file that are not among the versions.
        """
        report, place = self._parts.files.report, await self._place(str(request.get("path", "")))
        if place.file is None:
            raise ZonedriveError(f"{place.path}: {place.what or 'a folder'} has no versions")
        return {
            "versions": version_objects(await report.versions(place.file)),
            "zone": place.file.zone,
            "file": place.file.remote_id,
            "path": place.path,
            "unknown": place.unknown,
            "aside": place.stays or (NOT_SENT if report.state(place.file.ino) in WAITING else ""),
        }

    # ---- deleted entries ----

    async def trash(self, request: Message, say: Say) -> Message:
        """Return the deleted entries of the named zone, or of all zones."""
        return await self._trash(request).answer()

    async def restore(self, request: Message, say: Say) -> Message:
        """Restore the `entries`, each an id or a name."""
        return {"restored": await self._trash(request).restore(request.get("entries"))}

    async def purge(self, request: Message, say: Say) -> Message:
        """Permanently delete the `entries` of the trash, each an id or a name."""
        return {"purged": await self._trash(request).purge(request.get("entries"))}

    def _trash(self, request: Message) -> Trash:
        return Trash(self._parts.service, request.get("zone"), self._parts.files.returning)

    # ---- waiting ----

    async def sync(self, request: Message, say: Say) -> Message:
        """Wait until all changes under `paths` are on the service.

        In a folder, files with a name of `local_only` are ignored, because editors always create
        some. A request for such a file by its path reports that it `stays`, with an exit code other
        than 0. The exit code is also not 0 if files are `lost`, or changes were rejected and
        `taken_back`.
        """
        places = await self._places(request)
        roots = [ROOT] if places is None else _inos(places)
        answer = await self._sync(roots, _timeout(request), say)
        stays = [{"path": one.path, "error": one.stays} for one in places or () if one.stays]
        report = self._parts.files.report
        lost, back = report.lost(roots), report.take_rejected(roots)
        code = answer["exit"] or (1 if stays or lost or back else 0)
        return {**answer, "exit": code, "stays": stays, "lost": lost, "taken_back": back}

    async def _sync(self, roots: list[int], timeout: float | None, say: Say) -> Message:
        report, link = self._parts.files.report, self._parts.service.link
        result: dict[str, Any] = {}
        before = self._heard(roots)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say_progress, roots, say)
            if timeout is None:
                nursery.start_soon(self._give_up_offline, nursery.cancel_scope)
            result = await report.sync(roots, timeout)
            nursery.cancel_scope.cancel()
        if not result:  # given up
            result = await report.sync(roots, 0)
        failed = [one for one in result["uploads"] if one["state"] == "failed"]
        waiting = [one for one in result["uploads"] if one["state"] != "failed"]
        code, reason, remedy = 0, "", ""
        if result["left"]["files"]:
            code = 1
            reason = next((one["error"] for one in waiting if one["error"]), "")
            silent = (timeout or 0) >= SILENT_SECONDS and before == self._heard(roots)
            silent = silent and any(one["state"] == "uploading" for one in waiting)
            if silent and link.state == "online":  # the link needs longer to detect this
                code, reason, remedy = 4, "the service gave no answer in that time", AWAY
            if waiting and link.state != "online":
                code, remedy = 4, AWAY
                if link.state == "logon-required":
                    code, remedy = 3, f"run '{logon_command(self._parts)}'"
                reason = str(link.last_error or f"the service is {link.state}")
        return {
            "exit": code,
            "reason": reason,
            "remedy": remedy,
            "left": result["left"],
            "failed": [{"path": one["path"], "error": one["error"]} for one in failed],
            "conflicts": [
                one["path"] for one in result["conflicts"] if one["path"] != one["original"]
            ],
            "anew": [one["path"] for one in result["conflicts"] if one["path"] == one["original"]],
        }

    def _heard(self, roots: list[int]) -> tuple[int, int]:
        """Return counters that grow while the service responds: answers, and bytes in transfer."""
        return self._parts.service.link.answers, self._parts.files.report.work(roots)["sent"]

    async def _say_progress(self, roots: list[int], say: Say) -> None:
        while True:
            await trio.sleep(SAY_SECONDS)
            work = self._parts.files.report.work(roots)
            left = {
                "files": work["files"],
                "changes": work["changes"],
                "bytes": work["bytes"] - work["sent"],
            }
            await say({"left": left, "state": self._parts.service.link.state, **self._held(roots)})

    def _held(self, roots: list[int]) -> Message:
        """Return `held`: full paths of some files that are uploaded once a program closes them."""
        paths = self._parts.files.report.held(roots, HELD)
        return {"held": [os.fspath(self._session.folder / path) for path in paths]} if paths else {}

    async def _give_up_offline(self, waiting: trio.CancelScope) -> None:
        """End a wait without timeout after the service has been unreachable for too long."""
        link = self._parts.service.link
        while True:
            with trio.move_on_after(AWAY_SECONDS) as patience:
                while link.state != "online":
                    if link.state == "logon-required":
                        waiting.cancel()
                    await link.wait_change()
            if patience.cancelled_caught:
                waiting.cancel()
            await link.wait_change()

    # ---- the end ----

    async def unmount(self, request: Message, say: Say) -> Message:
        """Wait up to `timeout` seconds for uploads and open files, then unmount.

        With `now` there is no wait. The answer is sent when everything is closed.
        """
        with trio.move_on_after(_timeout(request) or 0.0):
            if not request.get("now"):
                try:
                    await self._sync([ROOT], None, say)
                except Exception as wrong:  # an unmount ends; what waits goes on at the next mount
                    log.warning("what waits could not be sent: %s", described(first_of(wrong)))
                await self._until_unused(say)
        users: list[str] = []
        if not self._session.ended.is_set():
            users = await trio.to_thread.run_sync(mountpoint.users, self._session.folder)
        return await self._end(users)

    async def stop(self, request: Message, say: Say) -> Message:
        """Unmount as on SIGTERM."""
        return await self._end([])

    async def _until_unused(self, say: Say) -> None:
        """Detach the mount as soon as no program uses it."""
        folder = self._session.folder
        while not await trio.to_thread.run_sync(lambda: mountpoint.detach(folder, lazy=False)):
            users = await trio.to_thread.run_sync(mountpoint.users, folder)
            await say({"users": users})
            await trio.sleep(BUSY_SECONDS)

    async def _end(self, users: list[str]) -> Message:
        self._session.stop()
        await self._over.wait()
        report = self._parts.files.report
        return {
            "users": users,
            "left": report.left(),
            "taken_back": report.take_rejected([ROOT]),
        }

    # ---- what requests hold ----

    async def _places(self, request: Message) -> list[Place] | None:
        """Return the objects at `paths`, or None if the request has none."""
        paths = request.get("paths") or []
        if not isinstance(paths, list):
            raise ZonedriveError("the request's paths are not a list")
        return [await self._place(str(path)) for path in paths] or None

    async def _place(self, path: str) -> Place:
        try:
            return await self._parts.files.places.find(self._relative(path))
        except (FileNotFoundError, NotADirectoryError) as wrong:
            raise ZonedriveError(f"{path} does not exist") from wrong

    async def _inode(self, path: str) -> Inode:
        """Return the inode at `path`. Raises ZonedriveError if it is not in the tree."""
        place = await self._place(path)
        if place.inode is None:
            raise ZonedriveError(f"{path} cannot be pinned: {place.what}")
        return place.inode

    def _relative(self, path: str) -> str:
        """Return an absolute path, or one relative to the mount point, as relative to it."""
        folder = self._session.folder
        whole = folder / path
        if ".." in Path(path).parts or not whole.is_relative_to(folder):
            raise ZonedriveError(f"{path} is not in the mount {folder}")
        return os.fspath(whole.relative_to(folder))


def _inos(places: list[Place]) -> list[int]:
    return [ino for place in places for ino in place.inos]


def _timeout(request: Message) -> float | None:
    value = request.get("timeout")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ZonedriveError("the request's timeout is no number of seconds")
    return float(value)


def _most(request: Message) -> int | None:
    value = request.get("most")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ZonedriveError("the request's most is no number of uploads")
    return value


def _conflict(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": found["path"],
        "original": found["original"],
        "by": found["by"],
        "at": timestamp(found["at_ns"]),
    }
