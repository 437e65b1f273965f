"""The service for people's own programs: zones, folders and files by path, whole files at once.

Must not know mounts, caches or where a logon is kept.  What the daemon uses is `service`; this is
a thinner and more comfortable way to the same verbs, for a program that runs once.

Stable: the names that `zonedrive.remote` exports, as docs/PYTHON_CLIENT.md describes them.
"""

import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx
import trio

from zonedrive.config import Settings
from zonedrive.errors import NotFound, Rejected, ZonedriveError
from zonedrive.model import Entry, Version, Zone
from zonedrive.remote.directory import Directory
from zonedrive.remote.errand import errand, loose
from zonedrive.remote.profiles.reading import load_profile
from zonedrive.remote.service import Service, open_service
from zonedrive.remote.transfer import Download

FoundT = TypeVar("FoundT", Zone, Entry)
Place = Zone | Entry
"""Where a folder is wanted: a zone stands for its root folder."""

PIECE = 1 << 20  # bytes of a file on this machine that are read at once


@dataclass(frozen=True)
class Credentials:
    """Which service, as whom, and what more it can than is published.

    `zonedrive.logon.stored` gives those of an account that was logged on with the command.
    """

    base_url: str  # https://host[:port]
    auth: httpx.Auth = field(repr=False)
    ca_file: str | None = None  # a PEM file to trust instead of the system's authorities
    profile: str = "published"  # a packaged profile's name, or the path of a TOML file
    settings: Settings = field(default_factory=Settings, repr=False)


class Client:
    """One user's client; an async context manager, on trio.

    Every verb raises subclasses of zonedrive.errors.ZonedriveError, whose `line()` is one line for
    a person; an operation that the profile does not have raises NotSupported at once.  What goes
    wrong with a file on this machine is an OSError.
    """

    def __init__(self, credentials: Credentials) -> None:
        """Connects at the first verb.  Raises ConfigError for what cannot be used."""
        profile = load_profile(credentials.profile)
        self._service: Service = open_service(
            credentials, credentials.auth, profile, credentials.settings
        )

    @classmethod
    def with_token(
        cls, base_url: str, token: str, *, ca_file: str | None = None, profile: str = "published"
    ) -> Self:
        """As the user, and within the scope, that a token or session id stands for."""
        return cls(Credentials(base_url, _Token(token), ca_file, profile))

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        with trio.CancelScope(shield=True):
            await self._service.aclose()

    @property
    def directory(self) -> Directory:
        """The organization's users and groups, and the user's tokens."""
        return self._service.directory

    def can(self, operation: str) -> bool:
        """Whether the profile has `operation`: make_folder, move, delete, restore, …"""
        return self._service.can(operation)

    # ---- looking ----

    async def zones(self) -> list[Zone]:
        """All zones of the user; one that is not `accessible` can only be listed."""
        return await self._service.zones()

    async def zone(self, name: str) -> Zone:
        """The zone of that name, or of that id.  Raises NotFound, and where several have it."""
        zones = await self.zones()
        found = [zone for zone in zones if zone.id == name]
        found = found or [zone for zone in zones if zone.name == name]
        return _only(found, f"zone {name!r}")

    async def listing(self, folder: Place) -> list[Entry]:
        """What is in a folder now, in the service's order."""
        zone_id, folder_id = _folder(folder)
        return await self._service.listing(zone_id, folder_id)

    async def find(self, path: str) -> Entry:
        """The file or folder at `ZONE/FOLDER/.../NAME`; for `ZONE` alone its root folder.

        Names are compared as the service has them.  Raises NotFound, and where several have it.
        """
        zone_name, *names = [name for name in path.split("/") if name] or [""]
        zone = await self.zone(zone_name)
        here = Entry(zone.root_id, zone.id, "", zone.name, folder=True)
        for name in names:
            found = [entry for entry in await self.listing(here) if entry.name == name]
            here = _only(found, f"{name!r} in {here.name!r}")
        return here

    async def entry(self, zone_id: str, entry_id: str) -> Entry:
        """A file or folder by its id; it may be a deleted one."""
        return await self._service.entry(zone_id, entry_id)

    # ---- content ----

    async def read(self, file: Entry, *, version: str | None = None) -> bytes:
        """All of a file, or of one of its versions (a `Version.version`)."""
        async with self.stream(file, version=version) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def download(
        self, file: Entry, target: str | os.PathLike[str], *, version: str | None = None
    ) -> int:
        """Write a file to `target`, which is there whole or, after an error, not touched.

        Gives the number of bytes.
        """
        path = Path(target)
        # Fits where any name fits, is nobody else's, and is no link that somebody has laid there.
        part = path.parent / f".zonedrive-{secrets.token_hex(8)}.part"
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
        """The content in pieces of some hundred KiB, for an `async for` inside the block."""
        _must_be_file(file)
        transfer = self._service.transfer

        download = await loose(
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
        """Upload a file of this machine, or bytes; gives the entry that it became.

        Into a folder or zone: under `name` (default: that of the file); where a file has the name
        there, it becomes the next version of that one.  Onto a file: its next version, which has
        its name.  Sent once: after ReplyLost or a cancellation it may be there or not, which
        `listing` tells.
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
            raise Rejected("bytes have no name of their own", remedy="give one as name=")
        return await loose(
            lambda cancelled: self._service.transfer.upload(
                zone_id, folder_id, name, body, size, cancelled=cancelled
            )
        )

    # ---- what the profile describes ----

    async def make_folder(self, parent: Place, name: str) -> Entry:
        """A new folder.  Raises AlreadyExists."""
        zone_id, parent_id = _folder(parent)
        return await self._service.make_folder(zone_id, parent_id, name)

    async def move(
        self, entry: Entry, *, to: Place | None = None, name: str | None = None
    ) -> Entry:
        """Rename an entry, move it to another folder of its zone, or both."""
        zone_id, parent_id = (entry.zone_id, entry.parent_id) if to is None else _folder(to)
        if zone_id != entry.zone_id:
            raise Rejected("nothing moves from one zone to another", remedy="upload it there")
        return await self._service.move(
            zone_id, entry.id, parent_id, name or entry.name, folder=entry.folder
        )

    async def delete(self, entry: Entry) -> None:
        """Into the trash; a folder takes along what is in it."""
        await self._service.delete(entry.zone_id, entry.id, folder=entry.folder)

    async def deleted(self, zone: Zone) -> list[Entry]:
        """What is in a zone's trash."""
        return await self._service.deleted(zone.id)

    async def restore(self, entry: Entry) -> Entry:
        """Out of the trash."""
        return await self._service.restore(entry.zone_id, entry.id, folder=entry.folder)

    async def purge(self, entry: Entry) -> None:
        """Remove for good."""
        await self._service.purge(entry.zone_id, entry.id, folder=entry.folder)

    async def versions(self, file: Entry) -> list[Version]:
        """All versions of a file, the newest first."""
        return await self._service.versions(file.zone_id, file.id)

    async def zone_log(self, zone: Zone) -> list[dict[str, object]]:
        """The messages of a zone's log, each with the fields that this deployment gives."""
        return await self._service.zone_log(zone.id)

    async def change_password(self, username: str, password: str, new_password: str) -> None:
        """Give the user another password; tokens made with the old one may end with it."""
        await self._service.change_password(username, password, new_password)

    async def revoke_token(self, token_id: str) -> None:
        """End a token of the user before its time."""
        await self._service.revoke_token(token_id)


class _Token(httpx.Auth):
    """One bearer, for ever."""

    def __init__(self, token: str) -> None:
        if not token or not all("!" <= char <= "~" for char in token):
            raise Rejected("that is no token: it is empty, or has characters that cannot be sent")
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put it in."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class _FileBody:
    """A file's bytes, which can be read again from the start."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self.size = path.stat().st_size

    def __iter__(self) -> Generator[bytes, None, None]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece


async def _pieces(download: Download) -> AsyncGenerator[bytes, None]:
    chunks = iter(download)
    while True:
        chunk = await errand(lambda _cancelled: next(chunks, None), download.abort)
        if chunk is None:
            return
        piece = bytes(chunk)
        download.give_back([chunk])
        yield piece


def _folder(place: Place) -> tuple[str, str]:
    """Zone and folder id."""
    if isinstance(place, Zone):
        return place.id, place.root_id
    if not place.folder:
        raise Rejected(f"{place.name!r} is a file, not a folder")
    return place.zone_id, place.id


def _must_be_file(entry: Entry) -> None:
    if entry.folder:
        raise Rejected(f"{entry.name!r} is a folder, not a file")


def _only(found: list[FoundT], what: str) -> FoundT:
    """The one that was found."""
    if not found:
        raise NotFound(f"there is no {what}")
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise ZonedriveError(f"there are several {what}", remedy=f"use an id: {ids}")
    return found[0]
