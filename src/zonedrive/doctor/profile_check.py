"""Checks of a deployment profile against the account's service.

The checks change nothing on the service. They run each read operation that is safe to run (see
`_is_read`). For each other operation, they only test whether the endpoint exists (see
`remote.probe`). Operations that only define a link for users are not tested.

INVARIANT: except in `here`, a result names only tables and endpoints of the profile, and never a
zone, a file or a host.
"""

import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import trio

from zonedrive.doctor.facts import CheckResult, DoctorFacts, bad, good
from zonedrive.errors import (
    BadAnswer,
    ConfigError,
    EndpointRefused,
    Forbidden,
    NotFound,
    NotLoggedOn,
    Rejected,
    ZonedriveError,
)
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import BearerAuth
from zonedrive.model import Entry, Version, Zone
from zonedrive.remote.http_service import HttpService, open_service
from zonedrive.remote.probe import Probe, ProbeVerdict, is_harmless
from zonedrive.remote.profiles.load import load_profile, packaged
from zonedrive.remote.profiles.operations import OPERATIONS, Operation, Profile

ASK = "compare method and path with the documentation of the deployment's API"
FOLDERS = 20  # maximum number of folders that are listed to find a file for the checks

WITHOUT = {
    "make_folder": "folders cannot be made",
    "rename": "what is on the service cannot be renamed",
    "move": "what is on the service cannot be moved",
    "delete": "what is on the service cannot be removed",
    "restore": "what was deleted cannot be brought back",
    "purge": "deleted entries cannot be removed permanently",
    "versions": "versions cannot be listed",
    "version_content": "former versions cannot be read",
    "deleted": "the trash cannot be listed",
    "zone_log": "the zone log cannot be read",
    "levels": "where you may only add, files look writable until the service refuses a change",
    "members": "the members of zones cannot be listed",
    "set_member": "members cannot be added to zones, nor their levels changed",
    "remove_member": "members cannot be removed from zones",
    "share": "nothing can be shared outside from here",
    "unshare": "sharing outside cannot be ended from here",
    "member_link": "links for members cannot be copied",
    "change_password": "passwords cannot be changed from here",
    "revoke_token": "a token remains valid after a logoff, until it expires",
}
"""Consequence for users if the profile has no table for an operation, keyed by operation name."""

Request = Callable[[], Awaitable[object]]


def examine(facts: DoctorFacts, file: str) -> Iterator[tuple[str, CheckResult]]:
    """Yield (name, result) for the profile, each operation in it, and each operation it lacks.

    `file` is the name or the path of the profile. The first result is the result for the profile.
    If the profile is invalid, no other result follows. If there is no valid logon, or the service
    cannot be reached, only a failed result named `logon` or `service` follows.
    """
    try:
        profile = load_profile(file)
    except ConfigError as wrong:
        remedy = wrong.remedy or "name another file, or correct this one"
        yield "profile", bad(_unnamed(wrong, file), remedy, here=wrong.line())
        return
    shown = profile.name if file in packaged() else "the file"
    named = f"{len(profile.operations)} tables" if profile.operations else "no table"
    yield "profile", good(f"{shown} is sound, with {named}")
    account = facts.account
    if account is None:
        remedy = "run 'zonedrive logon URL --profile FILE'"
        yield "logon", bad("there is no logon, so nothing was tested", remedy)
        return
    try:
        with Probe(account) as probe:
            found = {
                name: _judged(operation, probe.endpoint(operation))
                for name, operation in profile.operations.items()
                if not _is_read(name, operation) and not _is_shown(name)
            }
        found |= trio.run(_read, facts, account, profile)
        found |= {
            name: good(f"{operation.link}: it is shown to users, and not requested here")
            for name, operation in profile.operations.items()
            if _is_shown(name)
        }
    except NotLoggedOn:
        yield "logon", bad("the logon is not accepted", "run 'zonedrive doctor' without --profile")
        return
    except ZonedriveError as wrong:
        detail = f"could not be reached ({type(wrong).__name__})"
        yield "service", bad(detail, "run 'zonedrive doctor' without --profile")
        return
    for name in OPERATIONS:
        tables = [table for table in profile.operations if table.split(".")[0] == name]
        yield from ((table, found[table]) for table in tables)
        if not tables and not profile.can(name):  # a table for `move` may also cover `rename`
            yield name, good(f"not in the profile: {WITHOUT[name]}")


def _unnamed(wrong: ConfigError, file: str) -> str:
    """Return the error's message without the profile path or name that the user entered.

    Return a general message if the error's message starts with neither the path nor the name.
    """
    path = Path(os.path.expanduser(file))  # noqa: PTH111 - Path's own raises for an unknown user
    for named, shown in (
        (f"the profile {path}", "the file"),
        (str(path), "the file"),
        (f"there is no profile {file!r}", "there is no profile of that name"),
    ):
        if wrong.message.startswith(named):
            return shown + wrong.message.removeprefix(named)
    return "it cannot be used"


def _is_read(name: str, operation: Operation) -> bool:
    """Return True if the checks run the operation itself instead of only testing its endpoint.

    The operation must be a read operation, with a GET request that `is_harmless` accepts.
    """
    reads = OPERATIONS[name.split(".")[0]].reads and operation.method == "GET"
    return reads and is_harmless(operation)


def _is_shown(name: str) -> bool:
    """Return True if the operation only defines a link, which zonedrive itself never requests."""
    return OPERATIONS[name.split(".")[0]].shown


def _judged(operation: Operation, verdict: ProbeVerdict) -> CheckResult:
    detail = f"{operation.method} {operation.path}: {verdict.value}"
    if verdict in (ProbeVerdict.PRESENT, ProbeVerdict.OPEN):
        return good(detail)
    return bad(detail, ASK)


# ---- reading operations ----


async def _read(facts: DoctorFacts, account: Account, profile: Profile) -> dict[str, CheckResult]:
    """Run each read operation on an existing zone or file; return the results by table name."""
    found: dict[str, CheckResult] = {}
    wanted = {name: each for name, each in profile.operations.items() if _is_read(name, each)}
    if not wanted:
        return found
    service = open_service(account, BearerAuth(facts.secrets), profile, facts.settings)
    try:
        zones = [zone for zone in await service.zones() if zone.accessible]
        if not zones:
            return dict.fromkeys(wanted, good("there is no zone to try it on"))
        zone_id, file = zones[0].id, await _some_file(service, zones)
        versions: list[Version] = []
        requests: dict[str, Request] = {
            "levels": service.levels,
            "deleted": partial(service.deletions, zone_id),
            "members": partial(service.members, zone_id),
        }
        for name, operation in wanted.items():
            if name in requests:
                found[name] = await _tried(operation, requests[name])
            elif name == "zone_log":
                found[name] = await _log(service, operation, zone_id)
            elif file is None:
                found[name] = good("there is no file to try it on")
            elif name == "versions":
                found[name], versions = await _versions(service, operation, file)
        if file is not None and "version_content" in wanted:
            found["version_content"] = await _content(service, wanted, file, versions)
        return found
    finally:
        await service.aclose()


async def _some_file(service: HttpService, zones: list[Zone]) -> Entry | None:
    """Return a file from the first FOLDERS folders, or None if they contain no file.

    A file that is not empty is preferred.
    """
    empty = None
    ahead = [(zone.id, zone.root_id) for zone in zones]
    for _ in range(FOLDERS):
        if not ahead:
            break
        zone_id, folder = ahead.pop(0)
        try:
            entries = await service.listing(zone_id, folder)
        except (Forbidden, NotFound):
            continue
        for entry in entries:
            if not entry.folder and entry.size:
                return entry
            empty = empty or (None if entry.folder else entry)
        ahead += [(zone_id, entry.id) for entry in entries if entry.folder]
    return empty


async def _versions(
    service: HttpService, operation: Operation, file: Entry
) -> tuple[CheckResult, list[Version]]:
    versions: list[Version] = []

    async def request() -> None:
        versions.extend(await service.versions(file.zone_id, file.id))

    finding = await _tried(operation, request)
    lacks, remedy = "", ""
    if not versions:
        lacks = "it names no version of an existing file"
        remedy = "check 'answer' and 'fields'"
    elif not all(version.modified_ns for version in versions):
        lacks = "it does not say when each version was made"
        remedy = "name the member in fields.modified"
    elif file.size and not any(version.size for version in versions):
        lacks = "it does not say how large each version is, so .versions cannot show them"
        remedy = "name the member in fields.size"
    if finding.ok and lacks:
        finding = bad(f"{finding.detail}, but {lacks}", remedy)
    return finding, versions


async def _log(service: HttpService, operation: Operation, zone: str) -> CheckResult:
    finding = await _tried(operation, partial(service.zone_log, zone))
    if not finding.ok:
        return finding
    remedy = "name the members in fields.time and fields.message"
    try:
        messages = await service.log_messages(zone)
    except ZonedriveError:
        return bad(f"{finding.detail}, but the file names no fields of a message", remedy)
    if messages and not any(one.time_ns and (one.message or one.event) for one in messages):
        return bad(f"{finding.detail}, but without the members that the file names", remedy)
    return finding


async def _content(
    service: HttpService, wanted: dict[str, Operation], file: Entry, versions: list[Version]
) -> CheckResult:
    if not versions:
        return good("there is no version to try it on")

    def first() -> None:
        transfer = service.transfer
        with transfer.download(file.zone_id, file.id, version=versions[-1].version, end=1) as got:
            next(iter(got), b"")

    return await _tried(wanted["version_content"], partial(trio.to_thread.run_sync, first))


async def _tried(operation: Operation, request: Request) -> CheckResult:
    what = f"{operation.method} {operation.path}"
    try:
        await request()
    except (NotFound, Rejected) as wrong:
        return bad(f"{what}: there is no such address (HTTP {wrong.status})", ASK)
    except EndpointRefused:
        return bad(f"{what}: the service accepts the logon, but not for this (HTTP 401)", ASK)
    except Forbidden:
        return good(f"{what}: it exists, but you may not use it")
    except NotLoggedOn:
        return bad("the logon is not accepted", "run 'zonedrive logon URL' again")
    except BadAnswer as wrong:
        if wrong.status:  # the status is wrong, not the content
            return bad(f"{what}: it redirects to another address, which is never followed", ASK)
        detail = f"{what}: the answer is not what this operation gives"
        return bad(detail, "check 'answer', which leads to the array, and 'fields'")
    except ZonedriveError as wrong:
        detail = f"{what}: could not be tested ({type(wrong).__name__})"
        return bad(detail, "try again later; if it stays so, ask the administrator")
    return good(f"{what}: it answers")
