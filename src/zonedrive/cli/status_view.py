"""Text view of `zonedrive status`, made from its JSON object.

Knows nothing about the source of the data, or about redrawing.

INVARIANT: the first line says whether all written data is on the service.
"""

import shlex
from typing import TYPE_CHECKING, Any

from zonedrive import causes
from zonedrive.cli.text_output import NARROW, amount, count, grid, width, words
from zonedrive.daemon import last_run
from zonedrive.formatting import saved, unsent, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

NOT_SENDING = {
    "offline": "the service cannot be reached: what is cached can be read, what you write waits"
    " and is sent by itself when it is back",
    "logon-required": "a logon is needed: what is cached can be read, what you write waits",
}
"""Explanation of each state but `online`."""

NOTHING = {"files": 0, "path": ""}

CHANGES = {"folder": "new folder", "moved": "renamed", "removed": "removed"}
"""Names of pending changes that have no bytes."""


def picture(found: dict[str, Any], *, part: bool, rows: int) -> list["RenderableType"]:
    """Return lines and tables; `part`: only some paths; `rows`: maximum number of uploads shown."""
    waiting = _waiting(found)
    shown: list[RenderableType] = [words(verdict(found, part=part), "bold")]
    place = f"mounted at {found['mountpoint']}" if found["mountpoint"] else "not mounted"
    shown.append(words(f"{found['account']}: {place}, {found['state']}"))
    shown += [words(text, "bold red") for text in _broken(found)]
    shown += [words(text, "yellow") for text in _trouble(found, waiting)]
    shown += [words(text, "yellow") for text in _named(found, waiting)]
    outbox, cache, tree = found["outbox"], found["cache"], found["tree"]
    shown.append(words(f"service  {found['base_url']}"))
    shown.append(words(f"outbox   {_outbox(outbox)}"))
    if outbox["conflicts"]:
        copies = count(outbox["conflicts"], "conflict")
        shown.append(words(f"beside   {copies}; run: {_command('conflicts', found)}"))
    if (local := found.get("local", NOTHING))["files"]:
        files = count(local["files"], "file stays", "files stay")
        some = "" if local["files"] == 1 else "among them "
        shown.append(words(f"local    {files} on this machine (local_only), {some}{local['path']}"))
    shown.append(words(f"cache    {amount(cache['bytes'])} of {amount(cache['limit'])}"))
    folders = count(tree["folders"], "folder")
    shown.append(words(f"known    {count(tree['entries'], 'entry', 'entries')} in {folders}"))
    if found.get("notice"):
        shown.append(words(found["notice"], "yellow"))
    return shown + _uploads(found, waiting, rows)


def _broken(found: dict[str, Any]) -> list[str]:
    """Return lines about a dead daemon and failing background tasks."""
    said = []
    if died := found.get("died"):
        mount = _command(f"mount {shlex.quote(died['mountpoint'])}", found)
        said += [last_run.line_of(died), f"run: {mount}"]
    for each in found.get("failing", []):
        again = "" if each["times"] == 1 else f" {each['times']} times"
        said.append(f"failing, and tried again by itself: {each['task']}{again} ({each['error']})")
    return said


def verdict(found: dict[str, Any], *, part: bool) -> str:
    """Return the first line, which tells if all data is on the service."""
    outbox, waiting = found["outbox"], _waiting(found)
    if not waiting and (staying := _staying(found)):
        if len(staying) == 1:
            return f"{staying[0]['path']} {staying[0]['what']}"
        return f"{len(staying)} of these stay on this machine"
    if not waiting and (lost := found.get("lost", 0)):
        return saved(lost)
    if not waiting:
        return f"everything{' there' if part else ''} is on the service"
    # Without a daemon `files` may be missing; an ended daemon may report more than waits.
    files = min(waiting, outbox.get("files", waiting))
    left = {"files": waiting, "changes": waiting - files, "bytes": outbox["bytes"]}
    said = f"{unsent(left)} {verb(waiting)} only on this machine"
    why = outbox.get("causes", {})
    for cause, phrase in causes.PHRASES.items():
        if why.get(causes.label(cause)) == waiting:
            return f"{said}, {phrase}"
    if outbox["failed"]:
        return f"{said}, {causes.summary(why, outbox['failed'], 'of them ')}"
    return said


def _staying(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the requested paths that are local only."""
    return [one for one in found.get("named", []) if one["stays"]]


def _named(found: dict[str, Any], waiting: int) -> list[str]:
    """Return the notes about requested paths that the first line does not contain."""
    staying = _staying(found)
    said = staying if not waiting and len(staying) == 1 else []
    return [f"{one['path']}: {one['what']}" for one in found.get("named", []) if one not in said]


def _waiting(found: dict[str, Any]) -> int:
    outbox = found["outbox"]
    return int(outbox["pending"] + outbox["uploading"] + outbox["failed"])


def _trouble(found: dict[str, Any], waiting: int) -> list[str]:
    """Return the reason why nothing is sent, and the remedy."""
    if not found["pid"]:
        if not waiting or "died" in found:  # which says the same
            return []
        return ["nothing is sent while it is not mounted; run: " + _command("mount DIR", found)]
    meaning = NOT_SENDING.get(found["state"])
    if meaning is None:
        return []
    reason, remedy = found.get("reason"), found.get("remedy")
    said = [meaning, *([f"why: {reason}"] if reason else [])]
    return [*said, f"run: {remedy}"] if remedy else said


def _command(words_: str, found: dict[str, Any]) -> str:
    """Return a command for this account."""
    account = "" if found["account"] == "default" else f" --account {found['account']}"
    return f"zonedrive {words_}{account}"


def _outbox(outbox: dict[str, int]) -> str:
    names = ("pending", "uploading", "failed")
    parts = [f"{outbox[name]} {name}" for name in names if outbox[name]]
    return f"{', '.join(parts)} ({amount(outbox['bytes'])})" if parts else "empty"


def _uploads(found: dict[str, Any], waiting: int, rows: int) -> list["RenderableType"]:
    """Return the list of uploads, most urgent first, and the number of omitted uploads."""
    order = ("failed", "uploading", "conflict", "pending")
    every = sorted(found["uploads"], key=lambda one: order.index(one["state"]))[:rows]
    failed = [one for one in every if one["state"] == "failed"]
    shown: list[RenderableType] = []
    if len(every) < waiting:  # above them: a live view is cut off at the end of the terminal
        all_of_them = _command("status --json", found)
        shown += [words(""), words(f"{len(every)} of {waiting} are shown; all: {all_of_them}")]
    if failed:
        shown += [words(""), words("failed, and tried again by themselves:", "bold")]
        shown += [words(f"  {one['path']}: {one['error']}", "red") for one in failed]
    if others := [one for one in every if one["state"] != "failed"]:
        shown.append(words(""))
        shown += [_table(others)] if width() >= NARROW else [_line(one) for one in others]
    return shown


def _table(uploads: list[dict[str, Any]]) -> "RenderableType":
    columns = ["path", "state", "size", "sent"]
    rows = [[one["path"], *_kind_and_size(one), _sent(one)] for one in uploads]
    if any(one["error"] for one in uploads):
        columns.append("why")
        rows = [[*row, one["error"] or ""] for row, one in zip(rows, uploads, strict=True)]
    return grid(columns, rows, right=["size", "sent"])


def _line(one: dict[str, Any]) -> "RenderableType":
    """Return an upload as one line, for a narrow terminal."""
    said = [*_kind_and_size(one), _sent(one), one["error"] or ""]
    return words(f"{one['path']}: {', '.join(each for each in said if each)}")


def _kind_and_size(one: dict[str, Any]) -> tuple[str, str]:
    change = CHANGES.get(one.get("change", ""))
    return (f"{one['state']}, {change}", "") if change else (one["state"], amount(one["size"]))


def _sent(one: dict[str, Any]) -> str:
    if not one["sent"]:
        return ""
    part = f"{100 * one['sent'] // one['size']} %"
    return f"{amount(one['sent'])} ({part})" if width() >= NARROW else part
