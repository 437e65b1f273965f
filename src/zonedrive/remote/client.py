"""Client for Python programs, with access by path and calls that transfer a whole file.

This module does not depend on mounts, caches or stored logons. The daemon uses `service`; this
module is a thin layer over `service` that is more convenient for scripts.
"""

import os
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

import httpx
import trio

from zonedrive.config import Settings
from zonedrive.errors import NotFound, Rejected, ZonedriveError
from zonedrive.model import Entry, Member, Version, Zone
from zonedrive.remote.directory import Directory
from zonedrive.remote.http_service import HttpService, open_service
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.transfer import Download
from zonedrive.remote.wire.fields import fits_header

FoundT = TypeVar("FoundT", Zone, Entry)
ResultT = TypeVar("ResultT")
Place = Zone | Entry
"""Zone or entry as the target of an operation; a zone stands for its root folder."""

PIECE = 1 << 20  # bytes of a local file that are read at once


@dataclass(frozen=True)
class Credentials:
    """Data for connections to one service: address, authentication, CA file, profile and settings.

    `zonedrive.logon.stored` returns the credentials of an account that was logged on with the
    command `zonedrive logon`.
    """

    base_url: str  # https://host[:port]
    auth: httpx.Auth = field(repr=False)
    ca_file: str | None = None  # a PEM file to trust instead of the system's authorities
    profile: str = "published"  # a packaged profile's name, or the path of a TOML file
    settings: Settings = field(default_factory=Settings, repr=False)


class Client:
    """Client of the service for one user; an async context manager for trio.

    A method that fails raises a subclass of zonedrive.errors.ZonedriveError, whose `line()` returns
    a one-line message for the user. A method whose operation is missing in the profile raises
    NotSupported without sending a request. A problem with a local file raises OSError.
    """

    def __init__(self, credentials: Credentials) -> None:
        """Prepare the client; the first request opens a connection.

        Raises ConfigError if the credentials or the profile cannot be used.
        """
        profile = load_profile(credentials.profile)
        self._service: HttpService = open_service(
            credentials, credentials.auth, profile, credentials.settings
        )

    @classmethod
    def with_token(
        cls, base_url: str, token: str, *, ca_file: str | None = None, profile: str = "published"
    ) -> Self:
        """Return a client that authenticates with a token or a session id.

        The other arguments are those of `Credentials`. Raises Rejected if the token cannot be sent
        in a header, and ConfigError like the constructor.
        """
        return cls(Credentials(base_url, _Token(token), ca_file, profile))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        with trio.CancelScope(shield=True):
            await self._service.aclose()

    @property
    def directory(self) -> Directory:
        """Directory of the organization: users, groups, and the user's tokens."""
        return self._service.directory

    def can(self, operation: str) -> bool:
        """Return True if the profile supports `operation`, for example "move" or "restore"."""
        return self._service.can(operation)

    # ---- zones and folders ----

    async def zones(self) -> list[Zone]:
        """Return all zones of the user. A zone whose `accessible` is False cannot be read."""
        return await self._service.zones()

    async def zone(self, name: str) -> Zone:
        """Return the zone with the id or the name `name`; an id takes precedence.

        Raises NotFound if no zone matches, and ZonedriveError if several zones have the name.
        """
        zones = await self.zones()
        found = [zone for zone in zones if zone.id == name]
        found = found or [zone for zone in zones if zone.name == name]
        return _only(found, f"zone {name!r}")

    async def listing(self, folder: Place) -> list[Entry]:
        """Return the entries of a folder in the service's order, without deleted entries."""
        zone_id, folder_id = _folder(folder)
        return await self._service.listing(zone_id, folder_id)

    async def find(self, path: str) -> Entry:
        """Return the file or folder at the path `ZONE/FOLDER/.../NAME`.

        `ZONE` is the name or id of a zone. If the path is only `ZONE`, return the zone's root
        folder. Names must match the service's names exactly. Raises NotFound if no entry matches,
        and ZonedriveError if several entries match.
        """
        zone_name, *names = [name for name in path.split("/") if name] or [""]
        zone = await self.zone(zone_name)
        here = Entry(zone.root_id, zone.id, "", zone.name, folder=True)
        for name in names:
            found = [entry for entry in await self.listing(here) if entry.name == name]
            here = _only(found, f"{name!r} in {here.name!r}")
        return here

    async def entry(self, zone_id: str, entry_id: str) -> Entry:
        """Return the file or folder with the id `entry_id`, even if it is deleted."""
        return await self._service.entry(zone_id, entry_id)

    # ---- content ----

    async def read(self, file: Entry, *, version: str | None = None) -> bytes:
        """Return the whole content of a file.

        If `version` is a `Version.version`, return the content of this version.
        """
        async with self.stream(file, version=version) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def download(
        self, file: Entry, target: str | os.PathLike[str], *, version: str | None = None
    ) -> int:
        """Download a file to the local path `target`, and return its size in bytes.

        If `version` is a `Version.version`, download this version. The content is written to a
        temporary file that is renamed at the end. An existing file at `target` is therefore
        replaced only after a complete download.
        """
        path = Path(target)
        # A short random name fits any name limit and cannot be a link placed by another user. In a
        # mount, a file that a killed process leaves is not uploaded: see `config.LOCAL_ONLY`.
        part = path.parent / f".zonedrive-{secrets.token_hex(8)}~"
        count = 0
        try:
            async with (
                self.stream(file, version=version) as chunks,
                await trio.open_file(part, "xb") as written,
            ):
                async for chunk in chunks:
                    count += await written.write(chunk)
            await trio.Path(part).rename(path)
        except BaseException:
            with trio.CancelScope(shield=True):
                await trio.Path(part).unlink(missing_ok=True)
            raise
        return count

    @asynccontextmanager
    async def stream(
        self, file: Entry, *, version: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Context manager that opens a file and yields an async iterator over the file's content.

        If `version` is a `Version.version`, open this version. A chunk has at most a few hundred
        KiB. Raises Rejected for a folder.
        """
        if file.folder:
            raise Rejected(f"{file.name!r} is a folder, not a file")
        transfer = self._service.transfer

        download = await abandonable(
            lambda _cancelled: transfer.download(file.zone_id, file.id, version=version),
            Download.close,
        )
        pieces = _pieces(download)
        try:
            yield pieces
        finally:
            with trio.CancelScope(shield=True):
                await pieces.aclose()
                await trio.to_thread.run_sync(download.close)

    async def upload(
        self, target: Place, source: str | os.PathLike[str] | bytes, *, name: str | None = None
    ) -> Entry:
        """Upload a local file or bytes; return the resulting entry.

        If `target` is a folder or zone, `name` is the name of the new file; the default is the name
        of the local file, and bytes need a name. If a file with this name exists, the upload
        becomes its next version. If `target` is a file, the upload becomes the next version of
        `target`, and `name` must be omitted or be the name of `target`. Raises Rejected for a
        missing or wrong name.

        The request is repeated only after a renewal of the logon. After ReplyLost or a
        cancellation, the upload may have succeeded; call `listing` to find out.
        """
        if isinstance(target, Entry) and not target.folder:
            zone_id, folder_id = target.zone_id, target.parent_id
            if name not in (None, target.name):
                raise Rejected("a version has the name of its file", remedy="leave name= out")
            name = target.name
        else:
            zone_id, folder_id = _folder(target)
        body: _FileBody | list[bytes]
        if isinstance(source, bytes):
            body, size = [source], len(source)
        else:
            body = _FileBody(Path(source))
            size = body.size
            name = name or body.path.name
        if not name:
            raise Rejected("bytes need a name for the new file", remedy="give one as name=")
        return await abandonable(
            lambda cancelled: self._service.transfer.upload(
                zone_id, folder_id, name, body, size, cancelled=cancelled
            )
        )

    # ---- operations of the profile ----

    async def make_folder(self, parent: Place, name: str) -> Entry:
        """Create a folder and return its entry. Raises AlreadyExists if the name is taken."""
        zone_id, parent_id = _folder(parent)
        return await self._service.make_folder(zone_id, parent_id, name)

    async def move(
        self, entry: Entry, *, to: Place | None = None, name: str | None = None
    ) -> Entry:
        """Rename an entry, move it to another folder of its zone, or both; return the result.

        Raises Rejected if `to` is in another zone.
        """
        zone_id, parent_id = (entry.zone_id, entry.parent_id) if to is None else _folder(to)
        if zone_id != entry.zone_id:
            raise Rejected("an entry cannot move to another zone", remedy="upload it there")
        return await self._service.move(
            zone_id, entry.id, parent_id, name or entry.name, folder=entry.folder
        )

    async def delete(self, entry: Entry) -> None:
        """Move an entry to the trash; a folder is moved with all its content."""
        await self._service.delete(entry.zone_id, entry.id, folder=entry.folder)

    async def deleted(self, zone: Zone) -> list[Entry]:
        """Return the entries in a zone's trash."""
        return [entry for entry, _ in await self._service.deletions(zone.id)]

    async def restore(self, entry: Entry) -> Entry:
        """Restore an entry from the trash, and return the restored entry."""
        return await self._service.restore(entry.zone_id, entry.id, folder=entry.folder)

    async def purge(self, entry: Entry) -> None:
        """Delete an entry permanently."""
        await self._service.purge(entry.zone_id, entry.id, folder=entry.folder)

    async def versions(self, file: Entry) -> list[Version]:
        """Return all versions of a file, newest first."""
        return await self._service.versions(file.zone_id, file.id)

    async def zone_log(self, zone: Zone) -> list[dict[str, object]]:
        """Return the messages of a zone's log, each with all fields that the service sent."""
        return await self._service.zone_log(zone.id)

    async def members(self, zone: Zone) -> list[Member]:
        """Return the members of a zone: users and groups with their access levels."""
        return await self._service.members(zone.id)

    async def set_member(self, zone: Zone, member_id: str, level: str) -> None:
        """Set the access level of a user or group in a zone; add a new member if necessary."""
        await self._service.set_member(zone.id, member_id, level)

    async def remove_member(self, zone: Zone, member_id: str) -> None:
        """Remove a user or group from a zone."""
        await self._service.remove_member(zone.id, member_id)

    async def share(self, entry: Entry) -> str:
        """Create and return a link to an entry. Anyone who has the link can read the entry."""
        return await self._service.share(entry.zone_id, entry.id, folder=entry.folder)

    async def unshare(self, entry: Entry) -> None:
        """Revoke the link that `share` created for an entry."""
        await self._service.unshare(entry.zone_id, entry.id, folder=entry.folder)

    async def change_password(self, username: str, password: str, new_password: str) -> None:
        """Change the user's password. Raises CredentialsRefused if `password` is wrong.

        Tokens that were created with the old password may become invalid.
        """
        await self._service.change_password(username, password, new_password)

    async def revoke_token(self, token_id: str) -> None:
        """Revoke a token of the user before it expires."""
        await self._service.revoke_token(token_id)


class _Token(httpx.Auth):
    def __init__(self, token: str) -> None:
        if not fits_header(token):
            raise Rejected("the token is empty or too long, or has characters that cannot be sent")
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class _FileBody:
    """Iterable over the content of a local file; each iteration starts at the beginning."""

    def __init__(self, path: Path) -> None:
        """Store the path and the current size of the file. Raises OSError if `stat` fails."""
        self.path = path
        self.size = path.stat().st_size

    def __iter__(self) -> Generator[bytes, None, None]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece


async def _pieces(download: Download) -> AsyncGenerator[bytes, None]:
    chunks = iter(download)
    while True:
        chunk = await finished(lambda: next(chunks, None), download.abort)
        if chunk is None:
            return
        yield chunk


def _folder(place: Place) -> tuple[str, str]:
    if isinstance(place, Zone):
        return place.id, place.root_id
    if not place.folder:
        raise Rejected(f"{place.name!r} is a file, not a folder")
    return place.zone_id, place.id


def _only(found: list[FoundT], what: str) -> FoundT:
    if not found:
        raise NotFound(f"there is no {what}")
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise ZonedriveError(f"there are several {what}", remedy=f"use an id: {ids}")
    return found[0]


async def finished(work: Callable[[], ResultT], stop: Callable[[], None]) -> ResultT:
    """Run `work` in a thread and wait for its end, even if the caller is cancelled.

    Return the result of `work`, or raise its exception. If the caller is cancelled, call `stop`,
    which must make `work` end soon, and raise trio.Cancelled when `work` has ended.
    """
    ended: Future[ResultT] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except Exception as wrong:  # raised outside the nursery, so not in a group
            ended.set_exception(wrong)

    async def stop_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if not ended.done():
                stop()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_when_cancelled)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(run)
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint_if_cancelled()
    return ended.result()


async def abandonable(
    work: Callable[[Callable[[], bool]], ResultT], drop: Callable[[ResultT], None] = lambda _: None
) -> ResultT:
    """Run `work` in a thread and return its result; stop waiting if the caller is cancelled.

    `work` receives a callable that returns True after a cancellation. If `work` nevertheless
    returns a result after a cancellation, the result is passed to `drop`.
    """
    lock = threading.Lock()
    is_abandoned = False
    done: list[ResultT] = []

    def run() -> None:
        result = work(lambda: is_abandoned)
        with lock:
            done.append(result)
            if is_abandoned:
                drop(done.pop())

    try:
        await trio.to_thread.run_sync(run, abandon_on_cancel=True)
    except trio.Cancelled:
        with lock:
            is_abandoned = True
            for result in done:
                drop(result)
        raise
    return done[0]
