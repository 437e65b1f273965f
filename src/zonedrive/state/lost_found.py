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
from zonedrive.state import orphans, repair
from zonedrive.state.inode import NOWHERE, ROOT, Kind
from zonedrive.state.local_state import Core
from zonedrive.state.status import LOST_FOUND, damage_notice

log = logging.getLogger(__name__)


def restore(core: Core) -> None:
    """Restore a consistent state if rows were lost.  Runs before `recover`.

    After a kill the function can run again.
    """
    path = core.database.path
    if not repair.pending(path):
        return
    with core.transaction():
        _forget_homeless(core)
        _tell_again(core)
        if number := core.spool.accept_unrecorded():
            log.info("the records of %d outgoing files are lost: they are used as they are", number)
    for ino, generation in _unnamed(core):
        _show(core, ino, generation)
    core.database.flush()
    aside = repair.kept(path)
    repair.done(path)
    if said := damage_notice(path, count(core)):
        log.error("%s; the damaged database is %s", said, path.with_name(aside))


def rescue(core: Core) -> None:
    """Delete rows that refer to missing inodes; bytes that only they refer to get a new name.

    After a kill the function can run again, because the rows are deleted last.
    """
    tree, journal, doubts = core.tree, core.journal, core.doubts
    database = core.database
    homeless = set(orphans.homeless(database)) if orphans.has_homeless(database) else set()

    def is_gone(ino: int) -> bool:
        return ino in homeless or tree.find(ino) is None

    kept = {each for each in tree.with_bytes().items() if each[0] not in homeless}
    kept |= {(one.ino, one.generation) for one in journal.all() if not is_gone(one.ino)}
    kept |= {(one.bytes_ino, one.generation) for one in doubts.all() if not is_gone(one.ino)}
    files = {_file(core.spool.path(*each)) for each in kept}
    for each in sorted(core.named_bytes() - kept):
        path = core.spool.path(*each)
        if path.exists() and _file(path) not in files:
            log.error("outgoing bytes belong to no file any more: see %s", LOST_FOUND)
            with core.transaction():
                core.spool.accept(*each)
            _show(core, *each)
    with core.transaction():
        if homeless:
            tree.forget_homeless()
        _drop_dangling(core)


def count(core: Core) -> int:
    """Return the number of files in lost+found, which exist only locally and are not uploaded."""
    folder = core.tree.child(ROOT, LOST_FOUND)
    if folder is None or folder.kind is Kind.ZONE:
        return 0
    return len(core.tree.numbers_in(folder.ino))


def _forget_homeless(core: Core) -> None:
    core.tree.forget_homeless()
    _drop_dangling(core)


def _drop_dangling(core: Core) -> None:
    """Drop rows that refer to missing inodes.  In a transaction."""
    core.journal.conflicts.drop_dangling()
    for ino in [
        *(each.ino for each in core.journal.all()),
        *(each.ino for each in core.doubts.all()),
    ]:
        if core.tree.find(ino) is None:  # their bytes are not named by that
            core.journal.drop(ino)
            core.doubts.drop(ino)


def _tell_again(core: Core) -> None:
    """Create lost intents again, as far as the inodes show them."""
    for inode in core.tree.everything():
        if inode.parent == NOWHERE or inode.kind in (Kind.ROOT, Kind.ZONE):
            continue
        intent = core.journal.get(inode.ino)
        if inode.local:
            if not inode.is_new and intent is None:
                core.journal.park(inode.ino, inode.revision)
            continue
        if inode.generation and (intent is None or not intent.generation):
            base = None if inode.is_new else inode.revision
            core.journal.content(
                inode.ino, inode.generation, inode.size, base=base, held=False, due_ns=core.due()
            )
        folder = core.tree.get(inode.parent)
        new_folder = inode.is_folder and inode.is_new
        moved = not inode.is_new and (
            folder.remote_id != inode.remote_parent or core.remote_name(inode) != inode.remote_name
        )
        if (new_folder or moved) and (intent is None or not intent.place):
            core.journal.place(inode.ino, core.due())


def _unnamed(core: Core) -> list[tuple[int, int]]:
    """Return bytes that no row refers to, once per file.

    Hard links of bytes that a row refers to are deleted.
    """
    named = core.named_bytes()
    files = {_file(core.spool.path(*each)) for each in named}
    found = []
    for each in core.spool.stored():
        if each in named:
            continue
        if (file := _file(core.spool.path(*each))) in files:
            core.spool.delete(*each)
        else:
            files.add(file)
            found.append(each)
    return found


def _file(path: Path) -> int:
    return path.stat().st_ino if path.exists() else -1


def _show(core: Core, ino: int, generation: int) -> None:
    """Give bytes a name in lost+found."""
    path = core.spool.path(ino, generation)
    try:
        file = core.spool.open(ino, generation)
        size = file.size
        file.close()
    except (Damaged, StoreError, OSError) as wrong:
        log.error("outgoing bytes %s cannot be read (%s)", path.name, wrong)
        size = 0
    with core.transaction():
        folder = core.tree.child(ROOT, LOST_FOUND)
        if folder is None:
            folder = core.tree.add(ROOT, LOST_FOUND, Kind.FOLDER, local=True, listed=True)
        inode = core.tree.add(
            folder.ino,
            f"{ino}-{generation}",
            Kind.FILE,
            local=True,
            size=size,
            generation=generation,
            mtime_ns=path.stat().st_mtime_ns,
        )
        core.spool.link(ino, generation, inode.ino)
        reached(Place.LOST_LINKED)
    reached(Place.LOST_FOUND)
    core.spool.delete(ino, generation)


def sweep(core: Core) -> None:
    """Remove the lost+found folder once it is empty.  In a transaction."""
    folder = core.tree.child(ROOT, LOST_FOUND)
    if folder is not None and folder.local and not core.tree.numbers_in(folder.ino):
        core.tree.unlink(folder)
