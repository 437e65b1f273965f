"""Recovery after a damaged database: makes tree, journal and spool consistent.

| found in the salvaged tables               | action                                              |
|--------------------------------------------|-----------------------------------------------------|
| an inode whose folder is lost              | deleted; for its bytes, see below                   |
| an intent or pending request without inode | deleted; for its bytes, see below                   |
| listings                                   | not trusted: fetched again                          |
| an inode with bytes, without an intent     | the intent is created again from the inode          |
| a new folder or a move without an intent   | the intent is created again from the inode          |
| a removal without an intent                | forgotten: the file appears again                   |
| bytes in the spool without a row           | shown in the local folder `lost+found`              |
| bytes in the spool without a manifest      | accepted without verification                       |

INVARIANT: no bytes are deleted, except a second hard link of bytes that have another name.
"""

import logging
from pathlib import Path

from zonedrive.errors import Damaged, StoreError
from zonedrive.failpoint import Place, reached
from zonedrive.state import repair
from zonedrive.state.inode import NOWHERE, ROOT, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.status import LOST_FOUND, damage_notice

log = logging.getLogger(__name__)


def restore(state: LocalState) -> None:
    """Restore a consistent state if rows were lost.  Runs before `recover`.

    After a kill the function can run again.
    """
    path = state.database.path
    if not repair.pending(path):
        return
    with state.transaction():
        _forget_homeless(state)
        _tell_again(state)
        if number := state.spool.accept_unrecorded():
            log.info("the records of %d outgoing files are lost: they are used as they are", number)
    for ino, generation in _unnamed(state):
        _show(state, ino, generation)
    state.database.flush()
    aside = repair.kept(path)
    repair.done(path)
    if said := damage_notice(path, count(state)):
        log.error("%s; the damaged database is %s", said, path.with_name(aside))


def rescue(state: LocalState) -> None:
    """Delete rows that refer to missing inodes, and move the bytes of these rows to lost+found.

    After a kill the function can run again, because the rows are deleted last.
    """
    tree, journal, doubts = state.inodes, state.intents, state.requests
    homeless = set(tree.rows.homeless()) if tree.rows.has_homeless() else set()

    def is_gone(ino: int) -> bool:
        return ino in homeless or tree.find(ino) is None

    kept = {each for each in tree.rows.with_bytes().items() if each[0] not in homeless}
    kept |= {(one.ino, one.generation) for one in journal.all() if not is_gone(one.ino)}
    kept |= {(one.bytes_ino, one.generation) for one in doubts.all() if not is_gone(one.ino)}
    files = {_file(state.spool.path(*each)) for each in kept}
    for each in sorted(state.named_bytes() - kept):
        path = state.spool.path(*each)
        if path.exists() and _file(path) not in files:
            log.error("outgoing bytes belong to no file any more: see %s", LOST_FOUND)
            with state.transaction():
                state.spool.accept(*each)
            _show(state, *each)
    with state.transaction():
        if homeless:
            tree.forget_homeless()
        _drop_dangling(state)


def count(state: LocalState) -> int:
    """Return the number of files in lost+found, which exist only locally and are not uploaded."""
    folder = state.inodes.child(ROOT, LOST_FOUND)
    if folder is None or folder.kind is Kind.ZONE:
        return 0
    return len(state.inodes.numbers_in(folder.ino))


def _forget_homeless(state: LocalState) -> None:
    state.inodes.forget_homeless()
    _drop_dangling(state)


def _drop_dangling(state: LocalState) -> None:
    """Drop rows that refer to missing inodes.  In a transaction."""
    state.intents.conflicts.drop_dangling()
    for ino in [
        *(each.ino for each in state.intents.all()),
        *(each.ino for each in state.requests.all()),
    ]:
        if state.inodes.find(ino) is None:  # their bytes are not named by that
            state.intents.drop(ino)
            state.requests.drop(ino)


def _tell_again(state: LocalState) -> None:
    """Create lost intents again, to the extent that the inodes show what was pending."""
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
            state.intents.content(
                inode.ino, inode.generation, inode.size, base=base, held=False, due_ns=state.due()
            )
        folder = state.inodes.get(inode.parent)
        new_folder = inode.is_folder and inode.is_new
        moved = not inode.is_new and (
            folder.remote_id != inode.remote_parent or state.remote_name(inode) != inode.remote_name
        )
        if (new_folder or moved) and (intent is None or not intent.place):
            state.intents.place(inode.ino, state.due())


def _unnamed(state: LocalState) -> list[tuple[int, int]]:
    """Return the spool files that no row refers to, each file once.

    Hard links of bytes that a row refers to are deleted.
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


def _show(state: LocalState, ino: int, generation: int) -> None:
    """Create an entry for a spool file in lost+found."""
    path = state.spool.path(ino, generation)
    try:
        file = state.spool.open(ino, generation)
        size = file.size
        file.close()
    except (Damaged, StoreError, OSError) as wrong:
        log.error("outgoing bytes %s cannot be read (%s)", path.name, wrong)
        size = 0
    with state.transaction():
        folder = state.inodes.child(ROOT, LOST_FOUND)
        if folder is None:
            folder = state.inodes.add(ROOT, LOST_FOUND, Kind.FOLDER, local=True, listed=True)
        inode = state.inodes.add(
            folder.ino,
            f"{ino}-{generation}",
            Kind.FILE,
            local=True,
            size=size,
            generation=generation,
            mtime_ns=path.stat().st_mtime_ns,
        )
        state.spool.link(ino, generation, inode.ino)
        reached(Place.LOST_LINKED)
    reached(Place.LOST_FOUND)
    state.spool.delete(ino, generation)


def sweep(state: LocalState) -> None:
    """Remove the lost+found folder once it is empty.  In a transaction."""
    folder = state.inodes.child(ROOT, LOST_FOUND)
    if folder is not None and folder.local and not state.inodes.numbers_in(folder.ino):
        state.inodes.unlink(folder)
