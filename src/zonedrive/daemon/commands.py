"""What each command on the control socket does.

Must not know sockets or JSON lines: a handler takes the request and a way to say how far it is,
gives the last line's object, and raises what went wrong.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from zonedrive import __version__
from zonedrive.daemon.answers import timestamp, version_objects, zone_names, zone_objects
from zonedrive.daemon.build import Parts
from zonedrive.daemon.control import Handler, Say
from zonedrive.daemon.pinning import Pinning
from zonedrive.daemon.protocol import Message
from zonedrive.daemon.trash import Trash
from zonedrive.daemon.vigil import logon_command
from zonedrive.errors import ZonedriveError, described, first_of
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mount import Session
from zonedrive.tree.inode import ROOT, Inode
from zonedrive.vfs.places import Place

log = logging.getLogger(__name__)

SAY_SECONDS = 0.5
"""How often a command that waits says how far it is."""

AWAY_SECONDS = 60.0
"""How long `sync` without a timeout waits for a service that cannot be reached."""

SILENT_SECONDS = 1.0
"""From how long a `timeout` of `sync` on it tells something that the service is silent for it."""

AWAY = "it is sent by itself when the service is back"

HELD = 20
"""So many of the files that programs have open are told by their paths."""

BUSY_SECONDS = 0.2
"""How often an unmount is tried while programs use the mount."""


WAITING = ("pending", "uploading", "failed")
NOT_SENT = "what was changed here since is not there yet; see 'zonedrive status'"

ENDING = frozenset({"unmount", "stop"})
"""The commands whose answer comes when everything is over."""


class Commands:
    """The commands of one daemon."""

    def __init__(
        self,
        parts: Parts,
        session: Session,
        over: trio.Event,
        logged_on: Callable[[], None] = lambda: None,
    ) -> None:
        """`over` is set when everything is closed and the lock is free."""
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
            **Pinning(parts, self._inode).handlers,
        }

    # ---- looking ----

    async def status(self, request: Message, say: Say) -> Message:
        """The contract's object; `paths` limits the uploads, `most` how many of them are given.

        Where the service is not online also `reason`, and `remedy` where a person can do something.
        `failing` names the background tasks that fail, where any does.
        """
        places, most = await self._places(request), _most(request)
        roots = None if places is None else _inos(places)
        found = self._parts.files.report.status(roots, most)
        if most is not None:  # people are told more than the contract's object
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
        """What is no matter of the outbox.

        `named`: of the paths asked for those that stay here, or are virtual; `local`: how many
        files in them have a name of `local_only`, with one of their paths.
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
        """Why the service is not online."""
        link = self._parts.service.link
        if link.state == "online":
            return {}
        reason = link.last_error
        said = {"reason": reason.message} if reason is not None else {}
        if link.state == "logon-required":
            return {**said, "remedy": logon_command(self._parts)}
        return said

    def _failing(self) -> Message:
        failing = self._parts.supervisor.failing()
        return {"failing": [each.json() for each in failing]} if failing else {}

    async def vitals(self, request: Message, say: Say) -> Message:
        """How it is, without a name."""
        vitals = self._parts.files.report.vitals()
        failing = [f"{each.task} ({each.kind})" for each in self._parts.supervisor.failing()]
        return {"version": __version__, **vitals, "failing": failing}

    async def logged_on(self, request: Message, say: Say) -> Message:
        """A person has just logged on (again): try the new bearer now."""
        self._logged_on()
        return {}

    async def zones(self, request: Message, say: Say) -> Message:
        """Every zone of the service."""
        zones = await self._parts.service.zones()
        return {"zones": zone_objects(zones, zone_names(self._parts.tree))}

    async def conflicts(self, request: Message, say: Say) -> Message:
        """The copies that exist."""
        return {"conflicts": [_conflict(one) for one in self._parts.files.report.conflicts()]}

    async def versions(self, request: Message, say: Say) -> Message:
        """Of the file at `path`, or of the one that a path in `.versions` is about.

        `unknown` says why there are none, where the service does not have the file, and `aside`
        what else of the file is not among them.
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
        """What was deleted, in the zone of that name or all."""
        return await self._trash(request).answer()

    async def restore(self, request: Message, say: Say) -> Message:
        """Bring back the `entries`, each an id or a name."""
        return {"restored": await self._trash(request).restore(request.get("entries"))}

    async def purge(self, request: Message, say: Say) -> Message:
        """Remove the `entries` of the trash for good, each an id or a name."""
        return {"purged": await self._trash(request).purge(request.get("entries"))}

    def _trash(self, request: Message) -> Trash:
        return Trash(self._parts.service, request.get("zone"), self._parts.files.returning)

    # ---- waiting ----

    async def sync(self, request: Message, say: Say) -> Message:
        """Wait until what is under `paths` is on the service.

        Files with a name of `local_only` are no matter in a folder: there are always some, as
        editors make them.  Who asks for one by its path is told that it `stays`, which is no 0;
        nor is what is `lost`, or was refused and `taken_back`.
        """
        places = await self._places(request)
        roots = [ROOT] if places is None else _inos(places)
        answer = await self._sync(roots, _timeout(request), say)
        stays = [{"path": one.path, "error": one.stays} for one in places or () if one.stays]
        report = self._parts.files.report
        lost, back = report.lost(roots), report.tell_taken_back(roots)
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
            if silent and link.state == "online":  # it takes longer to be sure of that
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
        """Grows with all that shows that the service is there: answers, and bytes on their way."""
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
        """`held`: some of what waits for a program to close it, by its whole path."""
        paths = self._parts.files.report.held(roots, HELD)
        return {"held": [os.fspath(self._session.folder / path) for path in paths]} if paths else {}

    async def _give_up_offline(self, waiting: trio.CancelScope) -> None:
        """End a wait that has no timeout once the service has been away for too long."""
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
        """Wait for uploads and users up to `timeout` seconds (not at all with `now`), and end.

        The answer comes when everything is closed.
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
        """As SIGTERM."""
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
            "taken_back": report.tell_taken_back([ROOT]),
        }

    # ---- what requests hold ----

    async def _places(self, request: Message) -> list[Place] | None:
        """What is at `paths`; None where there are none."""
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
        """Of the tree."""
        place = await self._place(path)
        if place.inode is None:
            raise ZonedriveError(f"{path} cannot be pinned: {place.what}")
        return place.inode

    def _relative(self, path: str) -> str:
        """An absolute path, or one relative to the mount point, as the latter."""
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
