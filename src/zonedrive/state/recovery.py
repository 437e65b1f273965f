"""Recovery of the state that the previous daemon left, after a clean exit or a crash.

| state found                             | meaning                      | action                 |
|-----------------------------------------|------------------------------|------------------------|
| an intent, its bytes in the spool       | closed, not on the service   | sent again, when due   |
| an intent that is held                  | was open for writing         | sent, see `intents`    |
| bytes without an inode or intent        | never closed, or sent before | deleted                |
| an intent whose bytes are missing       | the spool was tampered with, | the loss is logged; an |
|                                         | or a power cut undid a commit| earlier content that   |
|                                         |                              | was sent for a new file|
|                                         |                              | goes to `lost+found`   |
| missing local bytes without an intent,  | a power cut undid a commit   | the service's version  |
| of an entry that the service has        |                              | is shown               |
| a local copy of the service's version   | made for a change that did   | deleted; the service's |
|                                         | not happen; may be damaged   | version is shown       |
| an unencrypted file in the spool that   | written to after the last    | truncated to the       |
| is longer than recorded                 | save                         | recorded size          |
| a row that refers to a missing inode    | a bug, or damage             | deleted; bytes that    |
|                                         |                              | only this row names go |
|                                         |                              | to `lost+found`        |
| an unlinked inode without an intent     | was open in a program        | deleted                |
| an intent of a new file whose name is   | the setting was changed      | the file stays on this |
| now in `local_only`                     |                              | machine                |
| bytes from before a restart of the      | may not be on the disk       | checked before they    |
| machine                                 |                              | are sent               |

If a damaged database has lost rows, they are restored first:

| found in the salvaged tables               | action                                              |
|--------------------------------------------|-----------------------------------------------------|
| an inode whose folder is lost              | deleted; for its bytes, see below                   |
| an intent or pending request without inode | deleted; for its bytes, see below                   |
| listings                                   | not trusted: fetched again                          |
| an inode with bytes, without an intent     | the intent is created again from the inode          |
| a new folder or a move without an intent   | the intent is created again from the inode          |
| a removal without an intent                | the removal is lost: the file appears again         |
| bytes in the spool without a row           | shown in the local folder `lost+found`              |
| bytes in the spool without a manifest      | accepted without verification                       |

INVARIANT: while rows are restored, no bytes are deleted, except a second hard link to bytes that
remain under another name.
"""

import logging
from contextlib import closing
from itertools import chain, count
from pathlib import Path

from zonedrive.errors import Damaged, StoreError
from zonedrive.failpoint import Place, reached
from zonedrive.model import Revision
from zonedrive.paths import write_private
from zonedrive.state import local_operations, repair, row_upgrade
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import VIRTUAL
from zonedrive.state.reader import StateReader
from zonedrive.state.status import LOST_FOUND, damage_notice
from zonedrive.translation import marked

log = logging.getLogger(__name__)

LOST = marked("the bytes of the last save are missing; save the file again")

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def recover(state: LocalState) -> None:
    """Make inodes, intents and spool consistent. Call before any request is served."""
    is_repaired = repair.pending(state.database.path)
    _restore_lost_rows(state)
    _drop_dangling_rows(state)
    row_upgrade.names(state.inodes)
    row_upgrade.local_files(state.inodes)
    _suspect_after_power_cut(state)
    state.cache.drop_between(state.inodes.next_ino, VIRTUAL)
    stored = set(state.spool.stored())
    with state.transaction():
        for intent in state.intents.all():
            inode = state.inodes.get(intent.ino)
            if intent.generation and (intent.ino, intent.generation) not in stored:
                log.error("inode %d: the bytes to upload are missing", intent.ino)
                which = inode.zone, inode.remote_id or f"inode {inode.ino}"
                state.refusals.add(*which, state.inodes.path(inode.ino), LOST)
                state.intents.done(intent, content=True)
                # The next listing restores the service's version; a new file is removed below.
                state.inodes.update(inode, generation=0, revision=Revision(""), seen=0)
        _show_remote_versions(state, stored)
        for inode in state.inodes.unlinked():
            if state.intents.get(inode.ino) is None:
                state.inodes.unlink(inode)
                state.requests.drop(inode.ino)  # damage took the intent that would settle it
    reached(Place.RECOVERY_NOTED)
    named = state.named_bytes()
    unnamed = stored - named
    if unnamed:
        state.database.flush()  # a power cut must not restore records that name these bytes
    for ino, generation in unnamed:
        state.spool.delete(ino, generation)
    reached(Place.RECOVERY_SWEPT)
    if not is_repaired:  # the rows may be older than the bytes
        _trim_unsaved_bytes(state, stored)
    empty = _empty_new_files(state, named, stored)
    for inode in empty:
        request = state.requests.get(inode.ino)
        if request is not None and (sent := (request.bytes_ino, request.generation)) in stored:
            log.error("an earlier content of inode %d is shown in %s", inode.ino, LOST_FOUND)
            _move_to_lost_found(state, *sent, of=inode.ino)
    with state.transaction():
        for inode in empty:
            state.inodes.unlink(inode)
            state.requests.drop(inode.ino)  # a remote entry of this name would stay hidden
        _remove_empty_lost_found(state)
        state.spool.drop_records()
    if number := local_operations.withdraw_local_only(state):
        log.info("%d files and folders have names of local_only now: not uploaded", number)
    state.durable |= state.named_bytes()  # a program may have synced them before the restart
    reached(Place.RECOVERED)


def _show_remote_versions(state: LocalState, stored: set[tuple[int, int]]) -> None:
    """Show the service's version of files whose local bytes are not to be uploaded, or are missing.

    Bytes that are not to be uploaded are a copy of the service's version. A power cut may have
    damaged them, or may have undone the commit after which they were deleted. The recorded revision
    may then be wrong, too, and is reset.
    """
    for ino in state.inodes.rows.with_bytes():
        inode, intent = state.inodes.get(ino), state.intents.get(ino)
        if not inode.generation or inode.parent == NOWHERE or inode.is_new:
            continue
        bytes_id = ino, inode.generation
        if intent is not None and intent.generation:
            continue
        if bytes_id not in stored or (bytes_id in state.unverified_after_crash and not inode.local):
            state.inodes.update(inode, generation=0, revision=Revision(""), seen=0)
        elif not inode.local:
            state.inodes.update(inode, generation=0)


def _trim_unsaved_bytes(state: LocalState, stored: set[tuple[int, int]]) -> None:
    """Remove bytes that a program appended after the last save before a crash.

    Otherwise, an unencrypted file would show these bytes again as soon as it is edited.
    """
    for ino, generation in state.inodes.rows.with_bytes().items():
        if (ino, generation) in stored:
            try:
                state.spool.trim(ino, generation, state.inodes.get(ino).size)
            except OSError as wrong:
                log.error("inode %d: unsaved bytes could not be removed: %s", ino, wrong)


def _suspect_after_power_cut(state: LocalState) -> None:
    """Mark all local bytes as unverified if the machine was restarted.

    A power cut may have damaged the bytes. Unverified bytes are checked before they are uploaded.
    The stored boot id is renewed only if no bytes were marked, so bytes that have not been uploaded
    are marked again at the next start.
    """
    note, boot = state.database.path.with_name("boot"), _BOOT.read_text("ascii").strip().encode()
    if note.exists() and note.read_bytes() == boot:
        return
    state.unverified_after_crash |= state.named_bytes() if note.exists() else set()
    if not state.unverified_after_crash:
        write_private(note, boot)


def _empty_new_files(
    state: LocalState, named: set[tuple[int, int]], stored: set[tuple[int, int]]
) -> list[Inode]:
    """Return new files that have no bytes, because they were never closed or the bytes are lost."""
    found = []
    for ino in state.inodes.without_origin():
        inode = state.inodes.get(ino)
        lost = inode.generation and (ino, inode.generation) in named - stored
        if inode.parent != NOWHERE and not inode.is_folder and (not inode.generation or lost):
            found.append(inode)
    return found


# ---- after damage ----


def _restore_lost_rows(state: LocalState) -> None:
    """Restore a consistent state if a repair of the database lost rows.

    If the daemon is killed meanwhile, the next start repeats the work.
    """
    path = state.database.path
    if not repair.pending(path):
        return
    with state.transaction():
        state.inodes.delete_unreachable()
        _drop_dangling(state)
        _recreate_intents(state)
        if number := sum(state.spool.accept(*each) for each in state.spool.stored()):
            log.info("%d outgoing files have no record: they are uploaded without a check", number)
    for ino, generation in _unnamed(state):
        _move_to_lost_found(state, ino, generation)
    state.database.flush()
    aside = path.with_name(repair.damaged_name(path))
    repair.done(path)
    if said := damage_notice(path, StateReader(state.database).lost_files()):
        log.error("%s%s", said, f"; the damaged database is {aside}" if aside.exists() else "")


def _drop_dangling_rows(state: LocalState) -> None:
    """Delete rows that refer to missing inodes, and move the bytes of these rows to lost+found.

    If the daemon is killed meanwhile, the next start repeats the work, because the rows are deleted
    last.
    """
    inodes, intents, requests = state.inodes, state.intents, state.requests
    unreachable = set(inodes.rows.unreachable()) if inodes.rows.has_unreachable() else set()

    def is_gone(ino: int) -> bool:
        return ino in unreachable or inodes.find(ino) is None

    kept = {each for each in inodes.rows.with_bytes().items() if each[0] not in unreachable}
    kept |= {(one.ino, one.generation) for one in intents.all() if not is_gone(one.ino)}
    kept |= {(one.bytes_ino, one.generation) for one in requests.all() if not is_gone(one.ino)}
    files = {_file(state.spool.path(*each)) for each in kept}
    for each in sorted(state.named_bytes() - kept):
        path = state.spool.path(*each)
        if path.exists() and _file(path) not in files:
            log.error("outgoing bytes belong to no file: they are shown in %s", LOST_FOUND)
            with state.transaction():
                state.spool.accept(*each)
            _move_to_lost_found(state, *each)
    with state.transaction():
        if unreachable:
            inodes.delete_unreachable()
        _drop_dangling(state)


def _drop_dangling(state: LocalState) -> None:
    """Delete intents, requests and conflicts of missing inodes. Call within a transaction."""
    state.intents.conflicts.drop_dangling()
    for ino in [
        *(each.ino for each in state.intents.all()),
        *(each.ino for each in state.requests.all()),
    ]:
        if state.inodes.find(ino) is None:  # then no row refers to its bytes
            state.intents.drop(ino)
            state.requests.drop(ino)


def _recreate_intents(state: LocalState) -> None:
    """Recreate the lost intents, as far as the inodes still show the pending changes."""
    for inode in state.inodes.everything():
        if inode.parent == NOWHERE or inode.kind in (Kind.ROOT, Kind.ZONE):
            continue
        intent = state.intents.get(inode.ino)
        if inode.local:
            if not inode.is_new and intent is None:
                state.intents.park(inode.ino, inode.revision)
            continue
        if inode.generation and (intent is None or not intent.generation):
            base = None if inode.is_new else inode.revision
            state.send_content(inode, base)
        is_elsewhere = inode.is_folder if inode.is_new else state.is_elsewhere(inode)
        if is_elsewhere and (intent is None or not intent.place):
            state.intents.place(inode.ino, state.due())


def _unnamed(state: LocalState) -> list[tuple[int, int]]:
    """Return (ino, generation) of the spool files that no row refers to, each file once.

    Other hard links to the same bytes, or to bytes that a row refers to, are deleted.
    """
    named = state.named_bytes()
    files = {_file(state.spool.path(*each)) for each in named}
    found = []
    for each in state.spool.stored():
        if each in named:
            continue
        if (file := _file(state.spool.path(*each))) in files:
            state.spool.delete(*each)
        else:
            files.add(file)
            found.append(each)
    return found


def _file(path: Path) -> int:
    return path.stat().st_ino if path.exists() else -1


def _move_to_lost_found(
    state: LocalState, ino: int, generation: int, *, of: int | None = None
) -> None:
    """Move a spool file to a new inode in lost+found.

    The name there has a number if it is taken: a power cut can bring back a spool file that was
    moved there before. If `of` is given, the pending request of the inode `of`, which refers to the
    file, is deleted in the same transaction.
    """
    path = state.spool.path(ino, generation)
    try:
        with closing(state.spool.open(ino, generation)) as file:
            size = file.size
    except (Damaged, StoreError, OSError) as wrong:
        log.error("outgoing bytes %s cannot be read (%s)", path.name, wrong)
        size = 0
    with state.transaction():
        folder = state.inodes.child(ROOT, LOST_FOUND)
        if folder is None:
            folder = state.inodes.add(ROOT, LOST_FOUND, Kind.FOLDER, local=True, listed=True)
        former = f"{ino}-{generation}"
        names = chain([former], (f"{former} ({number})" for number in count(2)))
        inode = state.inodes.add(
            folder.ino,
            next(name for name in names if not state.inodes.has_name(folder.ino, name)),
            Kind.FILE,
            local=True,
            size=size,
            generation=generation,
            mtime_ns=path.stat().st_mtime_ns,
        )
        state.spool.link(ino, generation, inode.ino)
        if of is not None:
            state.requests.drop(of)
        reached(Place.LOST_LINKED)
    reached(Place.LOST_FOUND)
    state.spool.delete(ino, generation)


def _remove_empty_lost_found(state: LocalState) -> None:
    """Remove the lost+found folder once it is empty. Call within a transaction."""
    folder = state.inodes.child(ROOT, LOST_FOUND)
    if folder is not None and folder.local and not state.inodes.numbers_in(folder.ino):
        state.inodes.unlink(folder)
