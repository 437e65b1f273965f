"""Handlers of the commands on the control socket.

This module does not depend on sockets or JSON lines. A handler gets the request, and a callback to
send progress lines. The handler returns the object of the last line, or raises an error if the
command fails.
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import trio

from zonedrive import __version__
from zonedrive.daemon.compose import Parts
from zonedrive.daemon.control_server import Handler, Say
from zonedrive.daemon.entry_watch import send_entry_states
from zonedrive.daemon.local_data import conflict_objects, only_here
from zonedrive.daemon.logon_monitor import logon_command
from zonedrive.daemon.protocol import Message
from zonedrive.daemon.service_commands import version_objects, zone_names, zone_objects
from zonedrive.daemon.trash import Trash
from zonedrive.errors import NotFound, NotLoggedOn, StoreError, ZonedriveError, described, first_of
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mount import Session
from zonedrive.logon.account import Account
from zonedrive.paths import quoted
from zonedrive.pins.fetch import PinProgress
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.pause import LONGEST_S as LONGEST_PAUSE_S
from zonedrive.state.pause import Pause
from zonedrive.state.status import LOST_FOUND, staying
from zonedrive.sync.dispatcher import CALM
from zonedrive.translation import marked
from zonedrive.views.status_report import NOT_YET, Place

log = logging.getLogger(__name__)

SAY_SECONDS = 0.5  # interval between progress reports of a waiting command
GIVE_UP_SECONDS = 10.0  # see `_give_up_without_logon`; a rejection is checked again sooner
AWAY_SECONDS = 60.0  # seconds that `sync` without a timeout waits for an unreachable service
# A service is silent if no response arrives during a `sync` that waits for at least this time.
SILENT_SECONDS = 1.0
AWAY = marked("it is sent automatically when the service is back")
HELD = 20  # maximum number of open files reported by path
PUT_BACK_SECONDS = 10.0  # longest time that `pause` waits for running uploads
BUSY_SECONDS = 0.2  # interval between attempts to unmount a mount in use
NOT_SENT = "your latest change is not uploaded yet and not in this list; see 'zonedrive status'"
ENDING = frozenset({"unmount"})  # commands whose answer is sent after the shutdown


class Request(msgspec.Struct, frozen=True):
    """Arguments of a request; each command uses some of them."""

    command: str
    paths: list[str] = []
    path: str = ""
    timeout: Annotated[float, msgspec.Meta(ge=0)] | None = None  # in seconds
    seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_PAUSE_S)] | None = None
    most: Annotated[int, msgspec.Meta(ge=0)] | None = None  # maximum number of uploads or files
    now: bool = False
    give_up: bool = False  # with `sync`: do not wait for a logon that only the user can do
    zone: str | None = None
    entries: list[str] = []  # ids or names


@dataclass(eq=False)
class Commands:
    """Command handlers of one daemon; `handlers` maps command names to handlers."""

    _parts: Parts
    _session: Session
    _over: trio.Event  # set when the stores are closed and the lock is free
    _logged_on: Callable[[], None]

    def __post_init__(self) -> None:
        self._report = self._parts.files.report
        commands = {
            "status": self._status,
            "vitals": self._vitals,
            "metrics": self._metrics,
            "sync": self._sync,
            "send": self._send,
            "pause": self._pause,
            "resume": self._resume,
            "unmount": self._unmount,
            "logged-on": self._note_logon,
            "zones": self._zones,
            "conflicts": self._conflicts,
            "versions": self._versions,
            "place": self._find_place,
            "located": self._located,
            "link": self._link,
            "trash": self._trash,
            "restore": self._trash,
            "purge": self._trash,
            "pin": self._pin,
            "unpin": self._unpin,
            "pins": self._pins,
            "states": self._states,
            "watch": self._watch,
        }
        self.handlers = {name: _typed(work) for name, work in commands.items()}

    # ---- information ----

    async def _status(self, request: Request, say: Say) -> Message:
        """Return the status object.

        The request's `paths` and `most` limit the uploads in the object. If `most` is given, the
        object also has data about files that are never uploaded. If the service is offline,
        `reason` is the cause, followed by the remedy if there is one, and `advice` is the remedy
        alone. If a logon is required, `reason` is the cause, and `remedy` is the logon command.
        `failing` lists the background tasks that fail, if any.
        """
        places = await self._places(request.paths)
        roots = _inos(places) if places else None
        found = self._report.status(roots, request.most)
        if request.most is not None:  # output for users has more than the contract's object
            found |= self._local_only(places, roots)
        failing = [each.json() for each in self._parts.state.supervisor.failing()]
        if problem := self._parts.data_key.problem:
            found["notice"] = "; ".join(filter(None, (problem.line(), found.get("notice"))))
        return {
            "account": self._parts.paths.account,
            "base_url": self._parts.account.base_url,
            "mountpoint": os.fspath(self._session.folder),
            "pid": os.getpid(),
            **found,
            **self._why_not_online(),
            **({"failing": failing} if failing else {}),
        }

    def _local_only(self, places: list[Place], roots: list[int] | None) -> Message:
        """Return data about files that are never uploaded.

        `places` are the requested paths with their entries, and `roots` the inode numbers of these
        entries (None: the whole mount). `named` in the result describes the requested entries that
        are local-only, or virtual (see `Place`). `local` has the number of other local-only `files`
        below `roots`, and the `path` of one of these files.
        """
        named = [
            {"path": one.path, "what": one.stays or one.what, "stays": bool(one.stays)}
            for one in places
            if one.stays or one.what
        ]
        inos = {one.inode.ino for one in places if one.inode is not None and one.stays}
        return {"named": named, "local": staying(self._parts.state, roots, inos)}

    def _why_not_online(self) -> dict[str, str]:
        link = self._parts.service.link
        if link.state == "online":
            return {}
        said = {"reason": link.reason} if link.reason else {}
        if link.state == "logon-required":
            return {**said, "remedy": logon_command(self._parts)}
        if link.remedy:
            said = {"reason": f"{link.reason}; {link.remedy}", "advice": link.remedy}
        return said

    async def _vitals(self, request: Request, say: Say) -> Message:
        """Return the daemon's health data, which contains no file names."""
        vitals = self._report.vitals()
        failing = [f"{each.task} ({each.kind})" for each in self._parts.state.supervisor.failing()]
        return {"version": __version__, **vitals, "failing": failing}

    async def _metrics(self, request: Request, say: Say) -> Message:
        """Return the metrics that only a running daemon has, without any file names.

        The values in `cache` are in bytes. `logon_end`, the expiry of the logon, is in seconds
        since the epoch, and is missing if the expiry is unknown.
        """
        bearer, quota = self._parts.auth.last, self._parts.state.cache.quota
        ends = {"logon_end": bearer.expires_ns / 1e9} if bearer and bearer.expires_ns else {}
        return {
            "state": self._parts.service.link.state,
            "cache": {"bytes": quota.usage(), "limit": quota.ceiling},
            "failing": len(self._parts.state.supervisor.failing()),
            "requests": self._parts.service.link.times.json(),
            **ends,
        }

    async def _note_logon(self, request: Request, say: Say) -> Message:
        """Load the new bearer token, because the user has just logged on.

        Return the mount point, and the `profile` that the daemon uses until the next mount.
        `profile` is "" if a setting, not the logon, selects the profile. `notice` is the reason why
        the data key is not stored. If the key is stored, `notice` is the result of
        `_other_authority`.
        """
        self._logged_on()
        await self._parts.data_key.keep()
        problem = self._parts.data_key.problem
        is_set = bool(self._parts.state.settings.profile)
        profile = "" if is_set else self._parts.account.profile
        return {
            "profile": profile,
            "mountpoint": os.fspath(self._session.folder),
            "notice": problem.line() if problem else self._other_authority(),
        }

    def _other_authority(self) -> str:
        """Return a message if the logon has chosen another certificate authority, else ""."""
        with suppress(ZonedriveError):
            if Account.load(self._parts.paths).ca_file != self._parts.account.ca_file:
                folder, option = quoted(self._session.folder), self._parts.paths.option
                return marked(
                    "the mount still trusts the previous certificate authority; for the new one,"
                    f" run 'zonedrive unmount {folder}' and 'zonedrive mount {folder}{option}'"
                )
        return ""

    async def _zones(self, request: Request, say: Say) -> Message:
        zones = await self._parts.service.zones()
        return {"zones": zone_objects(zones, zone_names(self._parts.state.inodes))}

    async def _conflicts(self, request: Request, say: Say) -> Message:
        return {"conflicts": conflict_objects(self._report.conflicts())}

    async def _versions(self, request: Request, say: Say) -> Message:
        """Return the versions of the file at the request's `path`, which may be in `.versions`.

        In the answer, `unknown` is the reason why the service does not have the file, or "".
        `aside` is the reason why the latest local change is not among the versions, or "". Raises
        ZonedriveError if the path is not a file.
        """
        place = await self._place(request.path)
        if place.file is None:
            raise ZonedriveError(f"{request.path}: {place.what or 'a folder'} has no versions")
        # Before the request: the file may take over another entry meanwhile, or be removed.
        zone, file_id, unknown = place.file.zone, place.file.remote_id, place.unknown
        aside = place.stays or (NOT_SENT if self._report.waits(place.file.ino) else "")
        return {
            "versions": version_objects(await self._report.versions(place.file)),
            "zone": zone,
            "file": file_id,
            "path": place.path,
            "unknown": unknown,
            "aside": aside,
        }

    async def _find_place(self, request: Request, say: Say) -> Message:
        """Return data about the entry at the request's `path`, such as its remote ids.

        The path may be in `.versions`. `zone` is the id of the zone, or "" for the root of the
        mount. `id` is the id of the entry, or "" if the service does not have the entry; `unknown`
        is then the reason. For a path that does not exist, `missing` is True, and `zone` is the id
        of the zone at the beginning of the path. `waits` is True if the file's latest change has
        not been uploaded yet, and `stays` if the entry is never uploaded. `only_here` is True for a
        file in `lost+found`, and for a file whose content is only on this machine until the upload.
        `written` is True if a program has the file open for writing. `virtual` is True if the path
        is in `.versions`, and therefore not the entry's own path.
        """
        try:
            place = await self._place(request.path)
        except ZonedriveError as wrong:
            # NotFound: a folder above was deleted, and the mount has not noticed yet.
            missing = FileNotFoundError | NotADirectoryError
            if not isinstance(wrong, NotFound) and not isinstance(wrong.__cause__, missing):
                raise
            return await self._missing(request.path, wrong)
        inode = place.file if place.inode is None else place.inode
        if inode is None:
            raise ZonedriveError(f"{place.path}: {place.what or 'not an entry of the service'}")
        is_file = inode.kind is Kind.FILE
        opened = self._parts.state.opened.get(inode.ino)
        session = None if opened is None else opened.session
        path = self._parts.state.inodes.path(inode.ino)
        is_local = bool(place.stays) and not path.startswith(f"{LOST_FOUND}/")
        is_dirty = bool(inode.generation) or (session is not None and session.dirty)
        return {
            "path": path,
            "zone": inode.zone,
            "id": inode.remote_id or "",
            "folder": inode.is_folder,
            "missing": False,
            "virtual": place.inode is None,
            "stays": bool(place.stays),
            "unknown": "" if inode.remote_id or inode.ino == ROOT else place.stays or NOT_YET,
            "waits": is_file and self._report.waits(inode.ino),
            "only_here": is_dirty and not is_local,
            "written": opened is not None and opened.writers > 0,
        }

    async def _link(self, request: Request, say: Say) -> Message:
        place = await self._find_place(request, say)
        if not place["zone"]:
            raise ZonedriveError(f"{request.path}: the folder of all zones has no link")
        if not place["id"]:
            raise ZonedriveError(f"{request.path} is not on the service: {place['unknown']}")
        found = self._parts.service.member_link(place["zone"], place["id"], folder=place["folder"])
        return {"link": found}

    async def _missing(self, path: str, wrong: ZonedriveError) -> Message:
        """Return the result of `_find_place` for a path that does not exist.

        Raise `wrong` if the path is not inside a zone.
        """
        folder = self._session.folder
        below = os.fspath((folder / path).relative_to(folder))
        zone = (await self._place(below.partition("/")[0])).inode
        if zone is None or not zone.zone or "/" not in below:
            raise wrong
        names = ("folder", "virtual", "stays", "waits", "only_here", "written")
        flags = dict.fromkeys(names, False)
        where = {"path": below, "zone": zone.zone, "id": "", "unknown": marked("it does not exist")}
        return {**where, **flags, "missing": True}

    async def _located(self, request: Request, say: Say) -> Message:
        """Return the paths of entries in the mount, keyed by entry id.

        The request has the id of the `zone`, and the ids of the `entries`. Entries that are not in
        the mount are left out.
        """
        inodes = self._parts.state.inodes
        found = inodes.by_remotes(request.zone or "", request.entries)
        paths: dict[str, str] = {}
        for entry_id, (ino, _, _) in found.items():
            if inodes.is_here(inodes.find(ino)):
                paths[entry_id] = inodes.path(ino)
            if not len(paths) % 100:
                await trio.lowlevel.checkpoint()
        return {"paths": paths}

    async def _trash(self, request: Request, say: Say) -> Message:
        """Run the command `trash`, `restore` or `purge`; see `Trash.do`.

        Progress lines have the number of entries to restore or delete (`total`), and the number of
        these entries that are done (`finished`).
        """
        parts = self._parts
        trash = Trash(parts.service, parts.paths.option, request.zone, parts.files.trash)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                _say_repeatedly, say, lambda: {"finished": trash.finished, "total": trash.total}
            )
            answer = await trash.do(request.command, request.entries)
            nursery.cancel_scope.cancel()
        return answer

    # ---- sync and unmount ----

    async def _sync(self, request: Request, say: Say, *, first: bool = False) -> Message:
        """Wait until all changes under the request's `paths` are on the service.

        Wait up to `timeout` seconds, if given. If the request has no `paths`, wait for all changes
        of the mount. Local-only files inside a folder are ignored, because editors constantly
        create such files. A local-only file that is itself in `paths` is listed in `stays`. `lost`
        is the number of files in lost+found, and `taken_back` lists the changes that were rejected
        and rolled back. `exit` is 0 if no change is left, `lost` is 0, and `stays` and `taken_back`
        are empty.
        """
        places = await self._places(request.paths)
        roots = _inos(places) or [ROOT]
        answer = await self._wait_for_uploads(
            roots, request.timeout, say, first=first, gives_up=request.give_up
        )
        stays = [{"path": one.path, "error": one.stays} for one in places if one.stays]
        lost, back = self._report.lost(roots), self._report.take_rejected(roots)
        code = answer["exit"] or (1 if stays or lost or back else 0)
        return {**answer, "exit": code, "stays": stays, "lost": lost, "taken_back": back}

    async def _send(self, request: Request, say: Say) -> Message:
        """Upload the changes under the request's `paths` before all others, even during a pause.

        Return the same answer as `sync`. Raises ZonedriveError if `paths` is empty.
        """
        if not request.paths:
            raise ZonedriveError("the request names no paths")
        return await self._sync(request, say, first=True)

    async def _wait_for_uploads(
        self,
        roots: list[int],
        timeout: float | None,
        say: Say,
        *,
        first: bool = False,
        is_unmount: bool = False,
        gives_up: bool = False,
    ) -> Message:
        """Wait for the uploads below `roots`; return the answer of `sync`.

        With `first`, upload these changes before all others, even during a pause. Without a
        `timeout`, wait at most AWAY_SECONDS for an unreachable service. With `is_unmount`, or
        without a `timeout`, do not wait for a logon. With `gives_up`, do not wait for a logon that
        only the user can do.
        """
        waiting = trio.move_on_after(float("inf") if timeout is None else timeout)
        before = self._heard(roots)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say_progress, roots, say)
            if timeout is None or is_unmount:
                away = AWAY_SECONDS if timeout is None else float("inf")
                nursery.start_soon(self._give_up_offline, waiting, away)
            if gives_up:
                nursery.start_soon(self._give_up_without_logon, waiting)
            result = await self._report.sync(
                roots, waiting, is_patient=timeout is not None, first=first
            )
            nursery.cancel_scope.cancel()
        failed = [one for one in result["uploads"] if one["state"] == "failed"]
        pause = None if first else self._report.pause
        code, reason, remedy = 0, "", ""
        if result["left"]["files"]:
            others = [one for one in result["uploads"] if one["state"] != "failed"]
            is_silent = (timeout or 0) >= SILENT_SECONDS and before == self._heard(roots)
            code, reason, remedy = self._why_left(others, pause, is_silent=is_silent)
        conflicts = result["conflicts"]
        alone = [one for one in conflicts if one["path"] == one["original"]]
        return {
            "exit": code,
            "reason": reason,
            "remedy": remedy,
            "left": result["left"],
            **({} if pause is None else {"paused": True}),
            "failed": [{"path": one["path"], "error": one["error"]} for one in failed],
            "conflicts": [one["path"] for one in conflicts if one not in alone],
            "anew": [one["path"] for one in alone if not one["by"]],
            "replaced": [one["path"] for one in alone if one["by"]],
        }

    def _why_left(
        self, waiting: list[Message], pause: Pause | None, *, is_silent: bool
    ) -> tuple[int, str, str]:
        """Return exit code, reason and remedy for a `sync` that did not send all changes.

        The remedy may be "". `waiting` are the remaining changes that have not failed, and `pause`
        is the pause that delays these changes, or None. `is_silent` is True if the service sent no
        response during the `sync`. Of several reasons, return the first in this order: a pause, a
        service that is not online, a silent service, an error of an upload.
        """
        link = self._parts.service.link
        is_uploading = any(one["state"] == "uploading" for one in waiting)
        if pause is not None:
            resume = f"zonedrive resume{self._parts.paths.option}"
            return 1, pause.line, f"run '{resume}', or for some files 'zonedrive send PATH'"
        if waiting and link.state != "online":
            why = link.reason or marked(f"the service is {link.state}")
            if link.state == "logon-required":
                return 3, why, f"run '{logon_command(self._parts)}'"
            return 4, why, link.remedy or AWAY
        if is_uploading and is_silent:  # the link needs longer to detect this
            return 4, marked("the service gave no answer in that time"), AWAY
        # An attempt may be running at the timeout; the reason is then the last error.
        errors = (one[key] for key in ("error", "last_error") for one in waiting)
        running = marked("an upload is still running") if is_uploading else ""
        return 1, next(filter(None, errors), running), ""

    def _heard(self, roots: list[int]) -> tuple[int, int]:
        """Return the number of responses from the service, and the bytes sent by running uploads.

        If both numbers stay the same, the service does not respond.
        """
        return self._parts.service.link.answers, self._report.work(roots)["sent"]

    async def _say_progress(self, roots: list[int], say: Say) -> None:
        """Send progress lines until cancelled.

        A line has the counts of pending changes, and the paths of up to HELD open files.
        """
        link, took = self._parts.service.link, 0.0
        while True:
            await trio.sleep(max(SAY_SECONDS, CALM * took))
            begun = time.perf_counter()
            work = self._report.work(roots)
            left = {
                "files": work["files"],
                "changes": work["changes"],
                "bytes": work["bytes"] - work["sent"],
            }
            paths = self._report.held(roots, HELD) if work["held"] else []
            took = time.perf_counter() - begun  # with many changes, the counts take long
            folder = self._session.folder
            held = [os.fspath(folder / path) for path in paths]
            await say({"left": left, "state": link.state, **({"held": held} if held else {})})

    async def _give_up_offline(self, waiting: trio.CancelScope, seconds: float) -> None:
        """Cancel the scope `waiting` when the service has been unreachable for `seconds`.

        If a logon is required, cancel the scope at once.
        """
        link = self._parts.service.link
        while True:
            with trio.move_on_after(seconds) as patience:
                while (state := link.state) != "online":
                    if state == "logon-required":
                        waiting.cancel()
                        return
                    await link.wait_other(state)
            if patience.cancelled_caught:
                waiting.cancel()
                return
            await link.wait_other("online")

    async def _give_up_without_logon(self, waiting: trio.CancelScope) -> None:
        """Cancel the scope `waiting` when a logon is required that only the user can do.

        Wait GIVE_UP_SECONDS first, because a rejection may be temporary, and the user may have
        logged on just now.
        """
        link, renewal = self._parts.service.link, self._parts.renewal
        link.recheck()
        while True:
            if link.state != "logon-required":
                await link.wait_other(link.state)
                continue
            with trio.move_on_after(GIVE_UP_SECONDS) as patience:
                await link.wait_other("logon-required")
            if patience.cancelled_caught and not await trio.to_thread.run_sync(renewal.may_succeed):
                waiting.cancel()
                return

    async def _unmount(self, request: Request, say: Say) -> Message:
        """Wait for uploads and for programs that use the mount, then unmount.

        Wait up to the request's `timeout` in seconds. If `now` is true or `timeout` is missing,
        unmount at once. Return after the stores are closed and the account's lock is released.
        `users` lists the programs that were still using the mount, and `left` counts the changes
        that are not uploaded. `unreadable` is the reason why no later mount can read these changes,
        or "". `paused` is True if uploads are paused, and `taken_back` lists rolled-back changes as
        in `_sync`. Raises StoreError if `now` is false and local data that only this machine has
        would become unreadable.
        """
        with trio.move_on_after(request.timeout or 0.0) as waiting:
            if not request.now:
                try:
                    await self._wait_for_uploads(
                        [ROOT], request.timeout or 0.0, say, is_unmount=True
                    )
                except Exception as wrong:  # the unmount continues; the next mount uploads the rest
                    log.warning("waiting for uploads failed: %s", described(first_of(wrong)))
        await self._parts.data_key.keep()
        if not request.now:
            await self._require_readable()
            with trio.CancelScope(deadline=waiting.deadline):
                await self._until_unused(say)
        paused = self._report.pause is not None
        users: list[str] = []
        if not self._session.ended.is_set():
            users = await trio.to_thread.run_sync(mountpoint.users, self._session.folder)
        self._session.stop()
        await self._over.wait()
        return {
            "users": users,
            "left": self._report.left(),
            "paused": paused,
            "taken_back": self._report.take_rejected([ROOT]),
            "unreadable": problem.line() if (problem := self._parts.data_key.problem) else "",
        }

    async def _require_readable(self) -> None:
        """Raise StoreError if an unmount would make local data unreadable.

        Data that the service also has does not count.
        """
        if (problem := self._parts.data_key.problem) is None:
            return
        here = await trio.to_thread.run_sync(only_here, self._parts.paths)
        if here.kept:
            kept = marked(f"only this machine has {here.kept}")
            raise StoreError(f"{kept}; {problem.message}", remedy=problem.remedy)

    async def _until_unused(self, say: Say) -> None:
        """Detach the mount when no program uses it; until then, send lines with the programs."""
        while not await trio.to_thread.run_sync(self._session.detach):
            users = await trio.to_thread.run_sync(mountpoint.users, self._session.folder)
            await say({"users": users})
            await trio.sleep(BUSY_SECONDS)

    # ---- pause ----

    async def _pause(self, request: Request, say: Say) -> Message:
        """Pause the uploads for the request's `seconds`; without `seconds`, until `resume`.

        When the pause has begun, wait up to PUT_BACK_SECONDS for the running uploads to finish or
        to return to the queue. Return the counts of pending changes (`left`), and the number of
        uploads that still run (`uploading`).
        """
        self._parts.state.pause.begin(request.seconds)
        pause = self._report.pause
        log.info("%s", pause.line if pause is not None else "the pause is over")
        with trio.move_on_after(PUT_BACK_SECONDS):
            await self._report.wait_until_quiet()
        return {"left": self._report.left(), "uploading": self._report.work()["uploading"]}

    async def _resume(self, request: Request, say: Say) -> Message:
        """End the pause of the uploads.

        In the answer, `was_paused` is False if there was no pause, and `left` counts the changes
        that are not uploaded.
        """
        was_paused = self._parts.state.pause.end()
        log.info("uploads continue")
        return {"was_paused": was_paused, "left": self._report.left()}

    # ---- pins ----

    async def _pin(self, request: Request, say: Say) -> Message:
        """Pin the request's `paths`, then wait until their content is cached or cannot be fetched.

        Progress lines contain the totals of all paths. If the client disconnects, the pins stay,
        and the download continues in the background. `exit` is 1 if files could not be fetched, 3
        if a logon is required, and 4 if the service is unreachable.
        """
        pins, fetcher = self._parts.files.pins, self._parts.files.pin_fetcher
        inodes = await self._inodes(request)
        pins.add(*inodes.values())
        tallies = {path: PinProgress() for path in inodes}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_say_repeatedly, say, lambda: _counts([*tallies.values()]))
            try:
                for path, inode in inodes.items():
                    await fetcher.fetch(inode, tallies[path])
            except BaseException:
                fetcher.request_check()
                raise
            nursery.cancel_scope.cancel()
        away = next((tally.away for tally in tallies.values() if tally.away), None)
        failed = [one for tally in tallies.values() for one in tally.failed]
        code, remedy = 0, ""
        if away is not None:
            fetcher.request_check()
            code = 3 if isinstance(away, NotLoggedOn) else 4
            remedy = f"run '{logon_command(self._parts)}'" if code == 3 else ""
        return {
            "exit": 1 if failed else code,
            "reason": str(away or ""),
            "remedy": remedy,
            "pinned": [{"path": path, **_counts([tally])} for path, tally in tallies.items()],
            "failed": [{"path": one.path, "error": one.error} for one in failed],
        }

    async def _unpin(self, request: Request, say: Say) -> Message:
        """Remove the pins of all the request's `paths`.

        Raises ZonedriveError, and removes no pin, if one of the paths is not pinned.
        """
        pins, inodes = self._parts.files.pins, await self._inodes(request)
        pins.update_inodes()
        for path, inode in inodes.items():
            try:
                pins.require(inode)
            except ZonedriveError as wrong:
                raise ZonedriveError(f"{path}: {wrong.message}", remedy=wrong.remedy) from wrong
        pins.remove(*inodes.values())
        return {}

    async def _pins(self, request: Request, say: Say) -> Message:
        """Return each pin with counts of its files, its bytes, and folders that were never listed.

        If the request has `most`, each pin also has a list of up to `most` files that cannot be
        read offline.
        """
        found = []
        for inode in self._parts.files.pins.roots():
            path, most = self._parts.state.inodes.path(inode.ino), request.most
            tally = await self._parts.files.pin_fetcher.count(inode, most or 0)
            missing = msgspec.to_builtins(tally.failed)
            more = {} if most is None else {"folder": inode.is_folder, "missing": missing}
            counts = {**_counts([tally]), "unlisted": tally.unlisted}
            found.append({"path": path, **counts, **more})
        return {"pins": found}

    # ---- file managers ----

    async def _states(self, request: Request, say: Say) -> Message:
        """Return the states of the entries at the request's `paths`, in the same order.

        The state of an unknown path is None. This command sends no request to the service. Raises
        ZonedriveError if a path is outside the mount.
        """
        folder = self._session.folder
        wholes = [folder / path for path in request.paths]
        if outside := [whole for whole in wholes if not whole.is_relative_to(folder)]:
            raise ZonedriveError(f"{outside[0]} is not in the mount {folder}")
        paths = [os.fspath(whole.relative_to(folder)) for whole in wholes]
        found = await self._parts.files.entry_states.look_up(paths)
        return {"states": [each and msgspec.to_builtins(each) for each in found]}

    async def _watch(self, request: Request, say: Say) -> Message:
        """Send changes of entry states until the client disconnects; see `send_entry_states`."""
        parts = self._parts
        first = {
            "account": parts.paths.account,
            "title": parts.account.title,
            "mountpoint": os.fspath(self._session.folder),
        }
        states, switch = parts.files.entry_states, parts.state.pause
        return await send_entry_states(states, parts.service, switch, first, say)

    # ---- paths of a request ----

    async def _place(self, path: str) -> Place:
        (place,) = await self._places([path])
        return place

    async def _places(self, paths: Sequence[str]) -> list[Place]:
        """Return the `Place` of each of the `paths`, in the same order.

        A path is absolute, or relative to the mount point. Raises ZonedriveError if a path is
        outside the mount or does not exist.
        """
        folder, found = self._session.folder, []
        for path in paths:
            whole = folder / path
            if ".." in Path(path).parts or not whole.is_relative_to(folder):
                raise ZonedriveError(f"{path} is not in the mount {folder}")
            try:
                found.append(await self._report.find(os.fspath(whole.relative_to(folder))))
            except (FileNotFoundError, NotADirectoryError) as wrong:
                raise ZonedriveError(f"{path} does not exist") from wrong
            if not len(found) % 100:  # a request may have very many paths
                await trio.lowlevel.checkpoint()
        return found

    async def _inodes(self, request: Request) -> dict[str, Inode]:
        """Return the inodes at the request's `paths`, keyed by path.

        Raises ZonedriveError if there are no paths, or if a path is not an entry that can be
        pinned.
        """
        if not request.paths:
            raise ZonedriveError("the request names no paths")
        found = {}
        for path, place in zip(request.paths, await self._places(request.paths), strict=True):
            if place.inode is None:
                raise ZonedriveError(f"{path} cannot be pinned: {place.what}")
            found[path] = place.inode
        return found


def _typed(work: Callable[[Request, Say], Awaitable[Message]]) -> Handler:
    """Return a handler that checks the types of the arguments before it calls `work`."""

    async def handle(message: Message, say: Say) -> Message:
        try:
            request = msgspec.convert(message, Request)
        except msgspec.ValidationError as wrong:
            raise ZonedriveError(f"the request is not valid: {wrong}") from wrong
        return await work(request, say)

    return handle


def _inos(places: list[Place]) -> list[int]:
    return [ino for place in places for ino in place.inos]


def _counts(tallies: list[PinProgress]) -> dict[str, int]:
    names = ("files", "bytes", "here", "here_bytes")
    return {name: sum(getattr(tally, name) for tally in tallies) for name in names}


async def _say_repeatedly(say: Say, progress: Callable[[], Message]) -> None:
    """Send a progress line every SAY_SECONDS seconds until cancelled."""
    while True:
        await trio.sleep(SAY_SECONDS)
        await say(progress())
