"""Operations on the service that need no daemon, and the JSON objects of their results.

This module changes no local state, and starts no part of a daemon.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import trio

from zonedrive import config
from zonedrive.daemon.local_data import box_of, reader
from zonedrive.errors import (
    AlreadyExists,
    BadAnswer,
    NotFound,
    NotLoggedOn,
    StoreError,
    ZonedriveError,
)
from zonedrive.formatting import timestamp
from zonedrive.logon import stored
from zonedrive.logon.account import Account
from zonedrive.logon.account_profile import account_profile
from zonedrive.logon.bearer_auth import BearerAuth
from zonedrive.model import Member, Version, Zone
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote.client import finished
from zonedrive.remote.http_service import HttpService, open_service
from zonedrive.remote.service import Service
from zonedrive.remote.transfer import Download
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.names import local_name, safe, zone_name

ResultT = TypeVar("ResultT")


def ask(paths: AccountPaths, question: Callable[[HttpService], Awaitable[ResultT]]) -> ResultT:
    """Call `question` with a client of the account's service, and return the result.

    Raises NotLoggedOn if the account has no logon, ConfigError if a setting, the profile or the CA
    file cannot be used, and the errors that `question` raises.
    """

    async def asked() -> ResultT:
        logon = stored(paths.account)
        profile = account_profile(Account.load(paths), logon.settings)
        service = open_service(logon, logon.auth, profile, logon.settings)
        try:
            if isinstance(logon.auth, BearerAuth):
                # A keyring may ask the user for longer than a request may take.
                with suppress(NotLoggedOn):  # the request reports it
                    await trio.to_thread.run_sync(logon.auth.find, abandon_on_cancel=True)
            return await question(service)
        finally:
            await service.aclose()

    return trio.run(asked)


def zones(paths: AccountPaths) -> list[dict[str, Any]]:
    """Return the JSON objects of the zones that the service lists now; see `zone_objects`."""
    found = ask(paths, lambda service: service.zones())
    return zone_objects(found, _known_names(paths))


def _known_names(paths: AccountPaths) -> dict[str, str]:
    """Return the names of the zone folders in the mount, by zone id; {} if they cannot be read."""
    with suppress(StoreError):
        box = box_of(paths)
        with reader(paths) as state:
            return zone_names(state.stores(box).inodes)
    return {}


def members(paths: AccountPaths, wanted: str) -> list[dict[str, Any]]:
    """Return the members of a zone as JSON objects; `wanted` is the zone's id, name or folder.

    Raises the errors of the function `chosen`. If the profile cannot list members, raises
    NotSupported before any request is sent.
    """

    async def listed(service: HttpService) -> list[Member]:
        service.profile.operation("members")  # raises NotSupported
        zone = chosen(paths, await service.zones(), wanted)
        return await service.members(zone.id)

    found = ask(paths, listed)
    return [{"id": one.id, "name": one.name, "type": one.type, "level": one.level} for one in found]


def change_member(
    paths: AccountPaths, wanted: str, who: str, level: str | None, *, new: bool = False
) -> str:
    """Set a member's access level in the zone `wanted`, and return the member's id.

    If `level` is None, remove the member. `who` is the id or the name of the member. If `new` is
    True, `who` is the id of a user or group that is not a member yet. An id in another case also
    matches, because a service may ignore the case, unless an id or a name is exactly `who`. Raises
    AlreadyExists if a `new` member is a member already, NotFound if no member or several members
    match, and the errors of the function `chosen`. If the profile lacks the operation, raises
    NotSupported before any request is sent.
    """

    async def change(service: HttpService) -> str:
        for needed in ("set_member" if level else "remove_member", "members"):
            service.profile.operation(needed)  # raises NotSupported
        zone = chosen(paths, await service.zones(), wanted)
        members = await service.members(zone.id)
        found = [one for one in members if one.id == who]
        if not new:
            found = found or [one for one in members if one.name == who]
        found = found or [one for one in members if one.id.casefold() == who.casefold()]
        if new and found:
            raise AlreadyExists(
                f"{who} is a member of {zone.name!r} already, with level {found[0].level}",
                remedy=f"change the level with 'zonedrive members set{paths.option}'",
            )
        if not new and len(found) != 1:
            few = f"several members of {zone.name!r} are called {who!r}; give an id"
            none = f"{who!r} is not a member of {zone.name!r}"
            see = f"see 'zonedrive members ZONE{paths.option}'"
            raise NotFound(few if found else none, remedy=see)
        member_id = who if new else found[0].id
        if level:
            await service.set_member(zone.id, member_id, level)
        else:
            await service.remove_member(zone.id, member_id)
        return member_id

    return ask(paths, change)


def log(
    paths: AccountPaths, zones: Sequence[str], since_ns: int
) -> dict[str, list[dict[str, Any]] | ZonedriveError]:
    """Return the messages in the zones' logs since `since_ns`, as JSON objects by zone id.

    `zones` are zone ids, and `since_ns` is in nanoseconds since the epoch. If a zone's log cannot
    be read, the value for the zone is the error. The `path` of an object is relative to the zone,
    with names as in the mount. Call `require_log` first.
    """
    answers: dict[str, list[dict[str, Any]] | ZonedriveError] = {}

    async def read(service: HttpService, zone_id: str) -> None:
        try:
            answers[zone_id] = [
                {
                    "time_ns": one.time_ns,
                    "user": one.user,
                    "event": one.event,
                    "path": "/".join(safe(part) for part in one.path.split("/") if part),
                    "id": one.entry_id,
                    "message": one.message,
                }
                for one in await service.log_messages(zone_id, since_ns)
                if one.time_ns >= since_ns
            ]
        except ZonedriveError as wrong:
            answers[zone_id] = wrong

    async def read_all(service: HttpService) -> None:
        async with trio.open_nursery() as nursery:
            for zone_id in zones:
                nursery.start_soon(read, service, zone_id)

    ask(paths, read_all)
    return answers


def require_log(paths: AccountPaths) -> None:
    """Raise NotSupported if the account's profile cannot read zone logs. Sends no request."""
    settings = config.load(config_file(), paths.account)
    account_profile(Account.load(paths), settings).require_log()


def chosen(paths: AccountPaths, zones: Sequence[Zone], wanted: str) -> Zone:
    """Return the zone whose id, name or folder is `wanted`.

    Raises NotFound if there is no such zone, and ZonedriveError if there are several.
    """
    found = [zone for zone in zones if zone.id == wanted]
    found = found or [zone for zone in zones if zone.name == wanted]
    if not found:
        objects = zone_objects(zones, _known_names(paths))
        folders = {one["id"]: one["path"] for one in objects}
        found = [zone for zone in zones if folders[zone.id] == wanted]
    if not found:
        remedy = f"run 'zonedrive zones{paths.option}'"
        raise NotFound(f"there is no zone {wanted!r}", remedy=remedy)
    if len(found) > 1:
        ids = ", ".join(zone.id for zone in found)
        raise ZonedriveError(f"several zones are called {wanted!r}; give an id: {ids}")
    return found[0]


def version(
    paths: AccountPaths,
    zone_id: str,
    file_id: str,
    name: str,
    size: int,
    take: Callable[[bytes | bytearray | memoryview], object],
) -> None:
    """Download the version `name` of a file, and pass its content to `take`, chunk by chunk.

    `take` is called in a worker thread. An interrupt (Ctrl-C) ends the download. Raises BadAnswer
    if the content is shorter than `size`, the size of the version in bytes (0: unknown). The check
    is needed because the service need not state the length of a response, so a response that ends
    too early would not be noticed.
    """
    opened: list[Download] = []
    failed: list[Exception] = []

    async def fetch(service: Service) -> None:
        def pieces() -> None:
            with service.transfer.download(zone_id, file_id, version=name) as download:
                opened.append(download)
                count = 0
                for piece in download:
                    take(piece)
                    count += len(piece)
            if count < size:
                raise BadAnswer(f"downloading version {name}: only {count} of {size} bytes arrived")

        def stop() -> None:
            for each in opened:
                each.abort()

        async def wait() -> None:
            try:
                await finished(pieces, stop)
            except Exception as wrong:  # raised outside the nursery, so not in a group
                failed.append(wrong)

        async with trio.open_nursery() as nursery:  # the interrupt comes to the main task
            nursery.start_soon(wait)

    ask(paths, fetch)
    if failed:
        raise failed[0]


def zone_names(inodes: Inodes) -> dict[str, str]:
    """Return the names of the zone folders in the mount, by zone id."""
    return {inode.zone: inode.name for inode in inodes.inodes_in(ROOT) if inode.kind is Kind.ZONE}


def zone_objects(zones: Iterable[Zone], known: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the JSON objects of `zones`, sorted by name.

    `path` is the name of the zone's folder in the mount, or the name that the folder will get.
    `path` is None if the zone is not accessible. `known` has the names of the existing folders by
    zone id.
    """
    names, found = dict(known), []
    for zone in sorted(zones, key=lambda each: each.id):
        if zone.accessible and zone.id not in names:  # the future name of its folder
            names[zone.id] = local_name(
                zone.name, zone.id, frozenset(names.values()), show=zone_name
            )
        found.append(
            {
                "id": zone.id,
                "name": zone.name,
                "path": names.get(zone.id) if zone.accessible else None,
                "accessible": zone.accessible,
                "size": zone.size,
                "users": zone.users,
            }
        )
    return sorted(found, key=lambda each: (str(each["name"]).casefold(), each["id"]))


def version_objects(versions: Sequence[Version]) -> list[dict[str, Any]]:
    """Return the JSON objects of `versions`, in the same order."""
    return [
        {
            "version": one.version,
            "id": one.id,
            "size": one.size,
            "modified": timestamp(one.modified_ns),
            "modified_by": one.modified_by,
        }
        for one in versions
    ]
