"""Status of an account for `zonedrive status`, from the stored state and the daemon's work.

The status has the same form with and without a daemon. This module changes nothing.
"""

import heapq
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zonedrive import causes
from zonedrive.causes import Cause
from zonedrive.errors import Unavailable, first_of
from zonedrive.formatting import count, timestamp
from zonedrive.state import repair
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.state.names import BY_USER, local_only_reason
from zonedrive.state.pause import Pause
from zonedrive.state.pending_requests import PendingRequests
from zonedrive.translation import marked

LOST_FOUND = "lost+found"
URGENCY = ("failed", "uploading", "conflict", "pending")
"""Upload states, the most urgent first, for lists of limited length."""


@dataclass(eq=False)
class Stores:
    """Inodes, intents and pending requests of an account, with decrypted names."""

    inodes: Inodes
    intents: IntentTable
    requests: PendingRequests

    def path(self, ino: int) -> str:
        """Return the path of an inode; for an entry removed locally, its path on the service."""
        parts, passed = list[str](), set[int]()
        inode = self.inodes.find(ino)
        while inode is not None and inode.ino != ROOT and inode.ino not in passed:
            passed.add(inode.ino)
            if inode.parent != NOWHERE:
                parts.append(inode.name)
                inode = self.inodes.find(inode.parent)
                continue
            request = self.requests.get(inode.ino)
            above = inode.remote_parent or (request.folder if request else "")
            parts.append(inode.remote_name or (request.name if request else "") or inode.name)
            inode = self.inodes.by_remote(inode.zone, above)
        return "/".join(reversed(parts))


@dataclass(frozen=True)
class Work:
    """Functions that report the daemon's current work; the defaults are for a stopped daemon.

    `running` returns the numbers of the inodes with an outbox step in progress. For the upload of
    an inode, `failure` returns the last error or None, and `sent` the number of bytes sent so far.
    `blocking` returns, by inode number, the error of a failed change that must be sent before the
    change of this inode. `is_online` returns True if the service can be reached.
    """

    running: Callable[[], Collection[int]] = frozenset
    failure: Callable[[int], Exception | None] = lambda ino: None
    blocking: Callable[[Collection[int]], Mapping[int, Exception]] = lambda inos: {}
    sent: Callable[[int], int] = lambda ino: 0
    is_online: Callable[[], bool] = lambda: False


class Status:
    """Status of an account as plain values that JSON can encode."""

    def __init__(self, state: Stores, work: Work | None = None) -> None:
        self._state = state
        self._work = work or Work()

    def answer(
        self,
        intents: list[Intent],
        most: int | None,
        *,
        state: str,
        cache: tuple[int, int],
        notices: Iterable[str],
        lost: int,
        pause: Pause | None = None,
    ) -> dict[str, Any]:
        """Return the status of the account as `zonedrive status --json` prints it.

        `intents` are the pending changes, `state` is the state of the connection, and `cache` is
        the size and the limit of the cache in bytes. During a pause, the result contains
        `paused_since` if the start is known, and `paused_until` if the pause has an end. `notices`
        are texts about problems. If any of them is not empty, the result contains `notice`, in
        which the nonempty texts are joined to one string.

        `most` limits the list to the most urgent uploads, while `outbox` counts all uploads. If
        `most` is given, the result is for human-readable output and has additional fields: `change`
        and `cause` in each upload; `files` (the number of files with bytes that are only on this
        machine) and `causes` (failures per cause) in the outbox. The result contains `lost`, the
        number of files in lost+found, if `most` is given or the number is not 0.
        """
        states = self._states(intents)
        counted = list(states.values())
        shown = intents
        if most is not None:
            shown = heapq.nsmallest(
                most, intents, key=lambda one: (URGENCY.index(states[one.ino]), one.seq)
            )
        blocked = self._blocked(shown)
        entries, folders = self._state.inodes.rows.counts()
        notice = "; ".join(each for each in notices if each)
        for_people = {
            "files": sum(bool(one.generation) for one in intents),
            "causes": causes.count(one.cause for one in intents),
        }
        return {
            "state": state,
            **_pause(pause),
            "held": 0,
            "outbox": {
                "pending": counted.count("pending") + counted.count("conflict"),
                "uploading": counted.count("uploading"),
                "failed": counted.count("failed"),
                "conflicts": len(self.conflicts()),
                "bytes": sum(intent.size for intent in intents),
                **({} if most is None else for_people),
            },
            "uploads": [
                self._upload(one, states[one.ino], blocked)
                | ({} if most is None else self._details(one))
                for one in shown
            ],
            "cache": {"bytes": cache[0], "limit": cache[1]},
            "tree": {"entries": entries, "folders": folders},
            **({"notice": notice} if notice else {}),
            **({"lost": lost} if lost or most is not None else {}),
        }

    def uploads(self, intents: list[Intent]) -> list[dict[str, Any]]:
        """Return a dict with `path`, `state`, `size`, `sent`, `error` and `last_error` per upload.

        `error` is the reason why the upload is not sent now. `last_error` is the last reason, even
        if a new attempt is running or the reason no longer exists. None or "" means no reason.
        """
        states, blocked = self._states(intents), self._blocked(intents)
        return [
            self._upload(one, states[one.ino], blocked)
            | {"last_error": self._last_reason(one, blocked)}
            for one in intents
        ]

    def conflicts(self) -> list[dict[str, Any]]:
        """Return `ino`, `path`, `original`, `by` and `at_ns` of each existing conflict copy.

        `original` is the path of the original file, or "" if that file was removed. `original` is
        equal to `path` for a file that was deleted on the service while it was edited (`by` is then
        ""), or that has replaced another version. `by` is the user id of the other version's
        author.
        """
        inodes, found = self._state.inodes, []
        for conflict in self._state.intents.conflicts.all():
            copy = inodes.find(conflict.ino)
            if not inodes.is_here(copy):
                continue
            original = inodes.find(conflict.original)
            found.append(
                {
                    "ino": copy.ino,
                    "path": inodes.path(copy.ino),
                    "original": inodes.path(conflict.original) if inodes.is_here(original) else "",
                    "by": conflict.by,
                    "at_ns": conflict.at_ns,
                }
            )
        return found

    def _states(self, intents: list[Intent]) -> dict[int, str]:
        """Return the state of each upload, by inode number."""
        copies = self._state.intents.conflicts.copies() if intents else set[int]()
        running = self._work.running()
        return {one.ino: state_of(one, running, copies) for one in intents}

    def _blocked(self, intents: Iterable[Intent]) -> Mapping[int, Exception]:
        return self._work.blocking({intent.ino for intent in intents})

    def _upload(
        self, intent: Intent, state: str, blocked: Mapping[int, Exception]
    ) -> dict[str, Any]:
        return {
            "path": self._state.path(intent.ino),
            "state": state,
            "size": intent.size,
            "sent": min(self._work.sent(intent.ino), intent.size),
            "error": None if state == "uploading" else self._reason(intent, blocked),
        }

    def _reason(self, intent: Intent, blocked: Mapping[int, Exception]) -> str | None:
        """Return the reason why an upload that is not running is not sent now, or None."""
        if self._is_over(intent):
            return self._delay(intent, blocked)
        return self._last_reason(intent, blocked)

    def _last_reason(self, intent: Intent, blocked: Mapping[int, Exception]) -> str | None:
        return intent.error or self._delay(intent, blocked)

    def _is_over(self, intent: Intent) -> bool:
        """Return True if the last error of an upload no longer delays the upload.

        A temporary failure of the service delays the upload until the service is online and the
        pause after the failure has passed. An overload of the service also delays later attempts.
        For an error with another cause, return False.
        """
        if intent.cause is not Cause.SERVICE or intent.due_ns > time.time_ns():
            return False
        failure = self._work.failure(intent.ino)
        error = None if failure is None else first_of(failure)
        is_overload = isinstance(error, Unavailable) and error.is_overload
        return self._work.is_online() and not is_overload

    def _delay(self, intent: Intent, blocked: Mapping[int, Exception]) -> str | None:
        """Return the reason why an upload without an error of its own is delayed, or None."""
        if intent.held:
            return (
                "a program still reads the removed file"
                if intent.gone
                else "a program still has it open for writing"
            )
        failure = self._local_failure(intent) or blocked.get(intent.ino)
        return None if failure is None else causes.line_of(failure)

    def _local_failure(self, intent: Intent) -> Exception | None:
        """Return the last error of an upload if its cause is `Cause.LOCAL`, else None.

        Return None for a held intent, too. The intent may lack the error, because a full disk may
        have prevented writing the intent's row.
        """
        failure = self._work.failure(intent.ino)
        if failure is None or intent.held or causes.cause_of(failure) is not Cause.LOCAL:
            return None
        return failure

    def _details(self, intent: Intent) -> dict[str, Any]:
        """Return the additional fields of an upload for human-readable output."""
        inode = self._state.inodes.find(intent.ino)
        local = Cause.LOCAL if self._local_failure(intent) is not None else Cause.NONE
        return {
            "change": intent.change(is_new=inode is not None and inode.is_new),
            "cause": causes.label(intent.cause or local),
        }


def _pause(pause: Pause | None) -> dict[str, Any]:
    times = {} if pause is None else {"since": pause.since_ns, "until": pause.until_ns}
    known = {f"paused_{name}": timestamp(ns) for name, ns in times.items() if ns}
    return {"paused": pause is not None, **known}


def state_of(intent: Intent, running: Container[int], copies: Container[int]) -> str:
    """Return the state of an upload: "uploading", "failed", "conflict" or "pending".

    `running` contains the numbers of the inodes with an outbox step in progress, and `copies` the
    numbers of the conflict copies.
    """
    if intent.ino in running:
        return "uploading"
    if intent.failed:
        return "failed"
    return "conflict" if intent.ino in copies else "pending"


def damage_notice(path: Path, number: int) -> str:
    """Return one line about damage that the user should know about, or "".

    `path` is the path of the database, and `number` the number of files in lost+found.
    """
    if repair.has_fault(path):
        return marked("the database of names is damaged: unmount and mount again to repair it")
    if not number:
        return ""
    return marked(
        f"the names of {count(number, 'file')} were lost when the database was damaged:"
        f" copy what you need from {LOST_FOUND}, then delete it there"
    )


def staying(
    state: Stores, under: Iterable[int] | None = None, but: Container[int] = ()
) -> dict[str, int | str]:
    """Return a dict with the number of local-only files and the path of one of them.

    The keys are `files` and `path`; the path is "" if there are no such files. `under` limits the
    count to the folders with these inode numbers. Temporary files of programs, files in lost+found
    and the inodes in `but` do not count.
    """
    inodes, intents = state.inodes, state.intents
    waiting = {intent.ino for intent in intents.pending()}
    parked = {intent.ino for intent in intents.all() if intent.parked}
    roots = None if under is None else set(under)
    found = [
        inode
        for inode in inodes.get_all(({*inodes.without_origin()} - waiting) | parked)
        if inode.local
        and (inode.ino in parked or local_only_reason(inode.name) == BY_USER)
        and inode.kind is Kind.FILE
        and inode.ino not in but
        and _counts(inodes, inode, roots)
    ]
    return {"files": len(found), "path": inodes.path(found[0].ino) if found else ""}


def _counts(inodes: Inodes, inode: Inode, roots: set[int] | None) -> bool:
    """Return True if the inode is below one of the folders `roots` and not in lost+found.

    If `roots` is None, every folder counts.
    """
    if not inodes.is_here(inode):
        return False
    above = [*inodes.and_above(inode)]
    is_below = roots is None or any(each.ino in roots for each in above)
    return is_below and above[-2].name != LOST_FOUND
