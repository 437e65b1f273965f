"""Command `log`, which shows who changed what in a zone, a folder or a file, and when."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.control_client import NoDaemon
from zonedrive.cli.files import zones_of
from zonedrive.cli.options import LocalPath, Text, json_option, some_account_option
from zonedrive.errors import (
    Forbidden,
    MountEnded,
    NotFound,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.formatting import timestamp
from zonedrive.paths import AccountPaths

POLL_SECONDS = 5.0  # minimum interval between two requests of --follow
CALM = 10  # minimum interval as a multiple of the duration of the last request
LATE_NS = 60 * 10**9  # maximum delay in ns after which --follow still finds a late message
FIRST = 10  # number of messages that --follow shows first
FIRST_NS = 7 * 86_400 * 10**9  # maximum age of these messages in ns
BATCH = 5000  # ids in one request to the daemon
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}  # seconds
Entry = Mapping[str, Any]


class Since(click.ParamType):  # type: ignore[type-arg]  # click 8.1 cannot be told
    """Parameter type for a date, a date with time, or a duration before now.

    The value is converted to ns since the epoch.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text, now = value.strip(), datetime.now().astimezone()
        try:
            if match := re.fullmatch(r"(\d{1,6})\s*([smhdw])", text, re.ASCII):
                when = now - timedelta(seconds=int(match[1]) * UNITS[match[2]])
            elif text.lower() in ("today", "yesterday"):
                when = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
                when = (when - timedelta(days=text.lower() == "yesterday")).astimezone()
            else:
                when = datetime.fromisoformat(text)
                when = when if when.tzinfo else when.astimezone()
            return max(0, int(when.timestamp()) * 10**9)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a time; write 2026-11-20, '2026-11-20 14:30', today,"
                " yesterday, or a duration such as 30m, 2h, 7d or 2w",
                param, ctx,
            )  # fmt: skip


@dataclass(frozen=True)
class ZoneLog:
    """Query of the zone log of one path, or of the logs of all zones of an account."""

    paths: AccountPaths
    place: Entry | None  # the daemon's description of the path; None: all zones
    user: str  # only messages of this user; "": of all users

    def messages(self, since_ns: int) -> tuple[list[Entry], list[str]]:
        """Return the messages, newest first, and the folders of the zones with an unreadable log.

        Each message is an object as `log --json` prints it, and is not older than `since_ns` (ns
        since the epoch). Raises the errors of the daemon and the service, and NotSupported if the
        profile does not define how to read zone logs.
        """
        from zonedrive.daemon import service_commands

        service_commands.require_log(self.paths)
        folders = self._zones()
        answers = service_commands.log(self.paths, list(folders), since_ns)
        found: list[Entry] = []
        unseen = []
        for zone_id, folder in folders.items():
            answer = answers[zone_id]
            if isinstance(answer, ZonedriveError):
                if len(folders) == 1 or not isinstance(answer, Forbidden | NotFound):
                    raise answer
                unseen.append(folder)
            else:
                found += self._chosen(zone_id, folder, answer)
        found.sort(key=lambda one: one["time_ns"], reverse=True)
        return [_object(one) for one in found], unseen

    def _zones(self) -> dict[str, str]:
        """Return the folder names of the zones whose log is read, by zone id."""
        if self.place is not None and self.place["zone"]:
            return {self.place["zone"]: self.place["path"].partition("/")[0]}
        zones = zones_of(self.paths)
        return {zone["id"]: zone["path"] for zone in zones if zone["path"] is not None}

    def _chosen(self, zone_id: str, folder: str, answer: Sequence[Entry]) -> list[Entry]:
        """Return the messages in `answer`, the log of one zone, that match this query.

        The `path` of a returned message is a path in the mount, or "" if none is known. `folder` is
        the folder name of the zone in the mount.
        """
        if self.user:
            answer = [one for one in answer if _is_by(one["user"], self.user)]
        inside = "" if self.place is None else self.place["path"].partition("/")[2]
        needed = {one["id"] for one in answer if one["id"] and (inside or not one["path"])}
        now = self._located(zone_id, sorted(needed))
        if inside and self.place is not None:
            entry_id = self.place["id"]
            whole = f"{folder}/{inside}"
            direct = [
                one["id"] == entry_id != ""
                or _is_below(one["path"], inside)
                or _is_below(now.get(one["id"], ""), whole)
                for one in answer
            ]
            gone = set()
            if self.place["missing"]:  # include the entry's messages under its earlier names
                gone = {one["id"] for one in answer if one["id"] and one["path"] == inside}
            pairs = zip(answer, direct, strict=True)
            answer = [one for one, is_direct in pairs if is_direct or one["id"] in gone]
        return [
            {**one, "path": f"{folder}/{one['path']}" if one["path"] else now.get(one["id"], "")}
            for one in answer
        ]

    def _located(self, zone_id: str, ids: Sequence[str]) -> dict[str, str]:
        """Return the current path in the mount of each entry in `ids`, by entry id.

        Entries that are not in the mount are left out. If no daemon is running, the result is
        empty.
        """
        found: dict[str, str] = {}
        for start in range(0, len(ids), BATCH):
            batch = list(ids[start : start + BATCH])
            request = {"command": "located", "zone": zone_id, "entries": batch}
            try:
                found |= control_client.ask(self.paths, request)["paths"]
            except (NoDaemon, MountEnded):
                break
        return found


def _is_by(user: str, wanted: str) -> bool:
    """Return True if `wanted` is `user` (an id) or the part of `user` before @, ignoring case."""
    lower = user.casefold()
    return wanted.casefold() in (lower, lower.partition("@")[0])


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _object(one: Entry) -> Entry:
    names = ("user", "event", "path", "id", "message")
    return {"time": text_output.moment(one["time_ns"])} | {name: one[name] for name in names}


@click.command()
@click.argument("path", type=LocalPath(), required=False)
@some_account_option
@click.option("-f", "--follow", is_flag=True, help="Show new messages too, until Ctrl-C.")
@click.option(
    "--since",
    type=Since(),
    metavar="TIME",
    help="Only messages since a date ('2026-11-20', '2026-11-20 14:30'), today, yesterday, or a"
    " duration before now (30m, 2h, 7d, 2w).",
)
@click.option("--user", type=Text(), default="", metavar="USER", help="Only messages of this user.")
@json_option
def log(
    path: str | None,
    account: str | None,
    follow: bool,
    since: int | None,
    user: str,
    as_json: bool,
) -> None:
    """Show the zone log, which says who changed what and when, newest first.

    PATH is a file, folder or zone in a mount, or the former path of a deleted file or folder.
    Without PATH, the logs of all zones are shown, which needs no mount. --follow begins with the
    last 10 messages of the past week, or with all messages since TIME, and shows the newest last.
    This command requires a logon with a profile that defines the operation.

    \b
    --json: an array of {"time", "user", "event", "path", "id", "message"}; with
      --follow one object in each line
      event  kind of the event, a value that the service defines
      path   path in the mount at that time; "" if the message has none
      id     id of the file or folder; "" if the message has none
    """
    paths, below = control_client.resolve((path,) if path is not None else (), account)
    place = control_client.ask(paths, {"command": "place", "path": below[0]}) if below else None
    source = ZoneLog(paths, place, user)
    if follow:
        for one in _followed(source, since):
            _print(one, as_json)
        return
    found, unseen = source.messages(since or 0)
    _complain(unseen)
    if place is not None and place["missing"] and not found and not since and not user:
        raise ZonedriveError(
            f"{path} does not exist, and its zone's log does not name it",
            remedy="check the spelling, or show the log of its folder",
        )
    rows = (
        {
            "time": text_output.when(one["time"]),
            "user": one["user"],
            "what": one["message"] or one["event"],
            "path": one["path"],
        }
        for one in found
    )
    text_output.show(found, rows, in_json=as_json, empty="there are no messages")


def _followed(source: ZoneLog, since: int | None) -> Iterator[Entry]:
    """Yield the latest messages, oldest first, then wait for new messages and yield them.

    The latest messages are those that are not older than `since` (ns since the epoch), and no older
    message is yielded later. If `since` is None, the latest messages are at most FIRST messages of
    the last FIRST_NS ns. The iteration ends when nothing reads the output any more.
    """
    begun = time.monotonic()
    first = max(0, time.time_ns() - FIRST_NS) if since is None else since
    found, unseen = source.messages(first)
    _complain(unseen)
    seen = Counter(map(_key, found))
    latest = _latest(found, time.time_ns())
    yield from reversed(found if since is not None else found[:FIRST])
    is_away = False
    while True:
        if not text_output.has_reader(max(POLL_SECONDS, CALM * (time.monotonic() - begun))):
            return
        begun = time.monotonic()
        from_ns = max(since or 0, min(latest, time.time_ns()) - LATE_NS)
        try:
            found, _unseen = source.messages(from_ns)
        except (Unreachable, Unavailable) as wrong:
            if not is_away:
                text_output.complain(f"{wrong.message}; waiting for it")
            is_away = True
            continue
        if is_away:
            text_output.complain("the service is back")
        is_away = False
        counted = Counter(map(_key, found))
        new = counted - seen
        for one in reversed(found):
            if new[_key(one)] > 0:
                new[_key(one)] -= 1
                yield one
        oldest = timestamp(from_ns)  # older messages are not read again
        seen = Counter({k: n for k, n in (seen | counted).items() if (k[0] or oldest) >= oldest})
        latest = max(latest, _latest(found, latest))


def _key(one: Entry) -> tuple[str | None, ...]:
    return (one["time"], one["user"], one["event"], one["id"], one["message"])


def _latest(found: Sequence[Entry], otherwise: int) -> int:
    """Return the newest message's time in ns since the epoch, or `otherwise` if none has a time."""
    times = [one["time"] for one in found if one["time"]]
    return int(datetime.fromisoformat(max(times)).timestamp()) * 10**9 if times else otherwise


def _print(one: Entry, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(one))
        return
    path = f"  ({one['path']})" if one["path"] else ""
    when = text_output.when(one["time"])
    text_output.line(f"{when}  {one['user']}  {one['message'] or one['event']}{path}")


def _complain(unseen: Sequence[str]) -> None:
    for name in unseen:
        text_output.complain(f"you cannot see the log of zone {name}; ask one of its managers")
