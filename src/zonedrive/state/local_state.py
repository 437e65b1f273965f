"""Local state of an account: the stores, the settings and the open files.

The operations that change the state are in `local_operations` and `remote_operations`.
"""

import contextlib
import errno
import fnmatch
import re
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import msgspec
from cachetools import LRUCache

from zonedrive.config import Settings
from zonedrive.content.cache import Cache
from zonedrive.content.content_file import ContentFile
from zonedrive.content.source import Source
from zonedrive.content.spool import Spool
from zonedrive.db import Database
from zonedrive.errors import Damaged, StoreError
from zonedrive.model import Entry, Revision
from zonedrive.observers import Observers
from zonedrive.state.attributes import Attr, Owner, Rules, attr_of
from zonedrive.state.inode import NOWHERE, Inode, Local
from zonedrive.state.intents import Intent, due_in
from zonedrive.state.invalidation import EntryChanged, InodeChanged, Invalidations
from zonedrive.state.leaving_entries import LeavingEntries
from zonedrive.state.names import MAX_BYTES, composed, fits, name_of_original, shows, typed
from zonedrive.state.open_file import Content, KernelInodes, OpenFile, Session, content_of, ino_of
from zonedrive.state.pause import PauseSwitch
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.rejected_changes import RejectedChanges
from zonedrive.state.status import Stores
from zonedrive.supervisor import Supervisor

NAMES_SETTLE_S = 2.0
"""Minimum delay in seconds before a local removal or rename is sent to the service.

Many programs save a file by removing or renaming the old file and writing a new file under the same
name.
"""
ATIMES = 100_000
COPIES = 10_000


_END = re.compile(r"\*\.[A-Za-z0-9_-]{1,20}")  # glob for an extension that `with_mark` keeps


def _matching(globs: Iterable[str], *, any_case: bool) -> Callable[[str], bool]:
    """Return a predicate that tells whether any of the globs matches a name.

    Names that differ only in Unicode normalization count as equal.
    """
    expression = "|".join(fnmatch.translate(composed(glob)) for glob in globs)
    pattern = re.compile(expression or "(?!)", re.IGNORECASE if any_case else 0)
    return lambda name: bool(pattern.match(composed(name)))


@dataclass(eq=False)
class LocalState(Stores):
    """Stores and open files of an account; the daemon creates one instance."""

    database: Database
    spool: Spool
    cache: Cache
    settings: Settings
    source: Callable[[Inode], Source]  # returns the byte source of the service's current version
    user: str  # the logged-on user's id on the service
    owner: Owner
    supervisor: Supervisor = field(default_factory=Supervisor)
    pause: PauseSwitch = field(default_factory=PauseSwitch)

    def __post_init__(self) -> None:
        # Open files, and the kernel's knowledge of files.
        self.kernel = KernelInodes()
        self.invalidations = Invalidations(self.kernel)
        self.opened: dict[int, OpenFile] = {}  # by ino
        # Access times that a program has set, by ino; other files report their modification time.
        self.atimes: LRUCache[int, int] = LRUCache(ATIMES)
        self.leaving = LeavingEntries(self.inodes, self.intents)
        # Work on the outbox, by inode.
        self.in_flight: dict[int, Intent] = {}  # with a step in progress; the intent it sends
        self.cancelled_uploads: set[int] = set()  # with an upload that is to be cancelled
        self.paused_uploads: set[int] = set()  # with an upload that a pause interrupts
        self.unverified_after_crash: set[tuple[int, int]] = set()  # with generation; may be torn
        self.refusals = RejectedChanges()
        # By inode: the remote folder and name that a listing shows, if the recorded place is older
        # because the file is or was parked.
        self.moved_entries: dict[int, tuple[str, str]] = {}
        # By inode of a folder: its change counter when needless hash suffixes were last removed.
        self.unmarked: dict[int, int] = {}
        # By inode and generation: bytes that a program has or may have synced with their record.
        self.durable: set[tuple[int, int]] = set()
        self.superseded: list[tuple[int, int]] = []  # part of `durable` that newer records replace
        self.bytes_superseded: Observers[[]] = Observers()
        # By inode and generation: the remote entry and revision that the bytes were copied from.
        self.copies: LRUCache[tuple[int, int], tuple[str | None, Revision]] = LRUCache(COPIES)
        # By id of an entry: the copies of its content that a power cut may undo.
        self.unsynced_copies: LRUCache[str, list[tuple[int, int]]] = LRUCache(COPIES)
        # By inode of a folder that is kept for local changes: the id that it had on the service.
        self.former_ids: LRUCache[int, str] = LRUCache(COPIES)
        # By id of an entry: the name of the new file that was last uploaded to it since the start.
        self.uploaded_names: LRUCache[str, str] = LRUCache(COPIES)
        # By id of an entry that may have a temporary name, because its request was given up: the
        # name to give back.
        self.names_to_return: LRUCache[str, str] = LRUCache(COPIES)
        # True after the service has treated names as equal that differ only in case or Unicode
        # normalization.
        self.unites_spellings = False
        # Notified with the ino of a folder, `listing_outdated` also with None for all folders.
        self.listing_merged: Observers[[int]] = Observers()
        self.listing_outdated: Observers[[int | None]] = Observers()
        # Notified with the ino of an unlinked folder that neither a program nor the kernel uses.
        self.folder_released: Observers[[int]] = Observers()
        self.rules = Rules(keep_executable=self.settings.executable == "keep")
        never = self.settings.never_uploaded  # patterns of a policy, which are also in `local_only`
        self._is_local_only = _matching(self.settings.local_only, any_case=bool(never))
        self._is_never_uploaded = _matching(never, any_case=True)
        stored = [generation for _, generation in self.spool.stored()]
        self._generation = max([time.time_ns() // 1_000_000, *stored])

    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction in which inodes and intents change together or not at all."""
        return self.database.transaction()

    def next_generation(self) -> int:
        """Return a generation number that no content of any inode has had."""
        self._generation += 1
        return self._generation

    def is_own(self, author: str) -> bool:
        """Return True if `author` is the logged-on user; user names are case-insensitive."""
        return author.casefold() == self.user.casefold()

    def stays_local(self, parent: Inode, name: str) -> bool:
        """Return True if an entry with this name in this folder is never uploaded."""
        return parent.local or self._is_local_only(name) or self.is_never_uploaded(name)

    def local_only_glob(self, name: str) -> str | None:
        """Return the first glob of the setting `local_only` that matches the name, or None."""
        any_case = bool(self.settings.never_uploaded)
        globs = self.settings.local_only
        return next((each for each in globs if _matching([each], any_case=any_case)(name)), None)

    def is_never_uploaded(self, name: str) -> bool:
        """Return True if the organization's policy forbids uploading files with this name.

        A conflict copy is treated like its original. If the original name was shortened and is
        therefore unknown, the upload is permitted only if all patterns of the policy are extensions
        such as `*.key`, and none of them matches. A conflict copy keeps the extension.
        """
        original = name_of_original(name)
        if original is None and not all(map(_END.fullmatch, self.settings.never_uploaded)):
            return True
        return any(map(self._is_never_uploaded, (name, original or name)))

    def local(self, ino: int) -> Local:
        """Return the inode's local changes that the service does not have yet."""
        intent, opened = self.intents.get(ino), self.opened.get(ino)
        found = Local.NOTHING
        if opened is not None and opened.session is None and not opened.is_settled:
            found |= Local.OPENING
        if self.session(ino) is not None or (intent is not None and intent.generation):
            found |= Local.CONTENT
        if intent is not None and intent.place and not intent.gone:
            found |= Local.PLACE | (Local.PARKED if intent.parked else Local.NOTHING)
        if intent is not None and intent.gone:
            found |= Local.GONE
        return found

    def is_kept(self, inode: Inode) -> bool:
        """Return True if the inode is a folder that exists only because of local changes inside it.

        The folder was deleted on the service, and is created again when such a change is sent.
        """
        return inode.is_folder and inode.is_new and not (inode.local or self.local(inode.ino))

    def is_unsaved(self, inode: Inode) -> bool:
        """Return True for a new file, not local-only, that has no bytes and is not open.

        Such a file exists if its first bytes could not be stored, and the disk was too full to
        remove the file.
        """
        return (
            inode.is_new
            and not (inode.is_folder or inode.local)
            and not (inode.generation or inode.ino in self.opened)
            and self.intents.get(inode.ino) is None
            and self.requests.get(inode.ino) is None
        )

    def is_readable_offline(self, file: Inode) -> bool:
        """Return True if the whole content of a file is on this machine."""
        return (
            file.size == 0
            or file.is_new
            or bool(file.generation)
            or self.cache.is_complete(file.ino, file.revision)
        )

    def session(self, ino: int) -> Session | None:
        """Return the session in which programs write to the inode, or None."""
        opened = self.opened.get(ino)
        return None if opened is None else opened.session

    def send_content(
        self, inode: Inode, base: Revision | None, *, held: bool = False, due_ns: int = 0
    ) -> None:
        """Record that the inode's local bytes are to be sent. Call within a transaction.

        See `IntentTable.content` for `base`, `held` and `due_ns`. If `due_ns` is 0, the bytes are
        due after the delay of the setting `settle`.
        """
        self.intents.content(
            inode.ino,
            inode.generation,
            inode.size,
            base=base,
            held=held,
            due_ns=due_ns or self.due(),
        )

    def send_content_again(self, inode: Inode, base: Revision | None, *, due_ns: int = 0) -> None:
        """Record that the inode's local bytes are to be sent as the version after `base`.

        If `base` is None, the bytes are sent as a new file. `base` also replaces the base of an
        earlier intent. Call within a transaction.
        """
        session = self.session(inode.ino)
        held = session is not None and not session.frozen
        self.send_content(inode, base, held=held, due_ns=due_ns)
        self.intents.set_base(inode.ino, base)

    def follow(self, inode: Inode, found: Entry) -> None:
        """Show the service's version `found` instead of the inode's local bytes.

        The caller deletes the local bytes. Call within a transaction.
        """
        self.inodes.update(
            inode,
            generation=0,
            revision=found.revision,
            size=found.size,
            mtime_ns=found.modified_ns,
            modified_by=found.modified_by,
        )

    def is_copy(self, inode: Inode, base: Revision | None) -> bool:
        """Return True if the inode's local bytes were copied from revision `base` of its entry."""
        copied = self.copies.get((inode.ino, inode.generation))
        return copied is not None and copied == (inode.remote_id, base)

    def revert_to_remote(self, inode: Inode) -> None:
        """Delete the inode's local bytes if they are only a copy of the service's version.

        Readers then fetch the service's version. Does nothing if the bytes are to be sent, or while
        a program writes to the file.
        """
        intent, opened = self.intents.get(inode.ino), self.opened.get(inode.ino)
        wanted = intent is not None and intent.generation == inode.generation
        if wanted or not self.is_copy(inode, inode.revision):
            return
        if opened is not None:
            if opened.session is not None or opened.preparing.locked():
                return  # a program writes to the file; the session deletes the copy later
            opened.close_local()
        with self.transaction():
            self.same_bytes(inode, inode.revision)
            self.drop_bytes(inode.ino, inode.generation)
            self.inodes.update(inode, generation=0)

    def same_bytes(self, inode: Inode, content: Content) -> None:
        """Record that the bytes of a file are now identified by `content`.

        The bytes are the same, so open handles continue to use them. Call within a transaction.
        """
        former, opened = content_of(inode), self.opened.get(inode.ino)
        if opened is not None and opened.content == former:
            self.database.assign(opened, content=content)
            reader = opened.reader
            if isinstance(content, str) and reader is not None and reader[0] == former:
                self.database.assign(opened, reader=(content, reader[1]))
        if (session := self.session(inode.ino)) is not None and session.former == former:
            self.database.assign(session, former=content)

    def content_changed(self, inode: Inode) -> None:
        """Invalidate the kernel's pages of a file with new bytes, or the attributes of a folder.

        If open handles must keep the old bytes, give the new bytes another kernel inode instead,
        see `supersede`.
        """
        if not self.supersede(inode):
            self.invalidations.put(InodeChanged(inode.ino, attr_only=False))

    def supersede(self, inode: Inode) -> bool:
        """Give a changed file a new kernel inode number if a program may have read older content.

        Readable handles keep the old number and the old content. Write-only handles move to the new
        content, because no bytes were read through them. While a program writes to the file,
        nothing changes, because its edit is the newest content. Return True if the file got a new
        number.
        """
        opened = self.opened.get(inode.ino)
        if opened is None or not opened.is_settled:
            return False
        content = content_of(inode)
        if opened.content == content and not opened.is_version_gone:
            return False
        if not opened.may_be_read:
            opened.close()
            opened.content, opened.pages = content, False
            return False
        self._hold(inode, opened)
        opened.superseded = True
        opened.told.nlink = 0  # as for a file that a rename has replaced
        opened.told.attr_timeout = self.settings.refresh
        del self.opened[inode.ino]
        self.kernel.renew(opened)
        if following := [handle for handle in opened.handles if not handle.readable]:
            successor = self.new_open_file(inode)
            for handle in following:
                handle.move_to(successor)
        if inode.parent != NOWHERE:
            self.invalidations.put(EntryChanged(inode.parent, inode.name.encode()))
        return True

    def new_open_file(self, inode: Inode) -> OpenFile:
        """Register the inode as open and return its OpenFile."""
        opened = OpenFile(inode.ino, content_of(inode), self.attr(inode, self.settings.refresh))
        self.opened[inode.ino] = opened
        return opened

    def open_bytes(self, inode: Inode) -> ContentFile:
        """Open the local bytes of a file; the caller closes the result once.

        Raises Damaged if a power cut has shortened a plain file, and the errors of `Spool.open`.
        """
        file = self.spool.open(inode.ino, inode.generation)
        if file.size < inode.size:
            file.close()
            raise Damaged("bytes to upload are missing")
        return file

    def _hold(self, inode: Inode, opened: OpenFile) -> None:
        """Keep the local or cached bytes of an older version readable for the open handles."""
        content = opened.content
        if isinstance(content, int):
            if opened.local is None or opened.local[0] != content:
                opened.close()
                with contextlib.suppress(OSError, StoreError):
                    opened.local = content, self.spool.open(inode.ino, content)
        elif opened.reader is not None and opened.reader[0] == content:
            return
        elif self.cache.is_complete(inode.ino, content):
            opened.close()
            source, size = self.source(inode), opened.told.size
            opened.reader = content, self.cache.open(inode.ino, content, size, source)
            if not opened.reader[1].complete:  # another size, so the source has other bytes
                opened.close()

    def due(self) -> int:
        """Return the earliest time to send a change made now (wall clock, ns)."""
        return due_in(self.settings.settle)

    def due_for_names(self) -> int:
        """Return the earliest time to send a removal or rename made now (wall clock, ns)."""
        return due_in(max(self.settings.settle, NAMES_SETTLE_S))

    def attr(self, inode: Inode, timeout: float, number: int | None = None) -> Attr:
        """Return the stat fields of an inode, which the kernel may cache for `timeout` seconds.

        Size and times include bytes that are being written. `number` is the kernel inode number
        for which the caller reports these fields, by default that of the current content.
        """
        if inode.ino in self.opened:
            self.supersede(inode)
        attr = attr_of(inode, self.owner, self.rules, timeout)
        attr.ino = self.kernel.number(inode.ino)
        opened = self.opened.get(inode.ino)
        if opened is not None and opened.preparing.locked() and opened.content != content_of(inode):
            # A program begins to write to a former version, which all readers still see.
            attr.size, attr.mtime_ns = opened.told.size, opened.told.mtime_ns
        if opened is not None:
            opened.told = attr
        if opened is not None and opened.session is not None:
            attr.size = opened.session.size
            attr.mtime_ns = attr.atime_ns = opened.session.mtime_ns
            attr.ctime_ns = max(inode.ctime_ns, opened.session.ctime_ns)
        if opened is not None and number in (None, attr.ino):
            opened.known_size = attr.size
        attr.atime_ns = self.atimes.get(inode.ino, attr.atime_ns)
        return attr

    def inode_for(self, number: int) -> Inode:
        """Return the inode whose current content a kernel inode number refers to.

        The number is that of the current content, or that of a former version whose handle has
        moved to the current content (see `supersede`). Raises OSError (ESTALE) for other numbers.
        """
        if self._is_followed(number):
            return self.inodes.get(ino_of(number))
        return self.kernel.inode(self.inodes, number)

    def attr_for(self, number: int, attr: Attr) -> Attr:
        """Return the stat fields to report for a kernel inode number.

        If the number belongs to an open former version, the fields of this version are returned.
        Otherwise, the current fields `attr` are returned. If only handles that have moved to the
        current content use the number (see `supersede`), the attribute timeout is set to 0, because
        the kernel is not notified of changes under this number.
        """
        if (former := self.kernel.former.get(number)) is not None:
            return former.told
        if attr.ino == number or not self._is_followed(number):
            return attr
        return msgspec.structs.replace(attr, ino=number, attr_timeout=0.0)

    def _is_followed(self, number: int) -> bool:
        opened = self.opened.get(ino_of(number))
        return opened is not None and any(each.number == number for each in opened.handles)

    def remote_name(self, inode: Inode) -> str:
        """Return the name that the inode is to have on the service."""
        known = inode.remote_name
        if known is not None and shows(inode.name, known, inode.remote_id):
            return known
        return inode.name

    def is_elsewhere(self, inode: Inode) -> bool:
        """Return True if the inode's place (folder and name) differs from that on the service."""
        folder = self.inodes.get(inode.parent)
        here = folder.remote_id, self.remote_name(inode)
        return here != (inode.remote_parent, inode.remote_name)

    def require_folders(self, inode: Inode) -> None:
        """Check that no folder above the inode was removed together with its content.

        Raises FileNotFoundError if such a folder was removed, because anything written below that
        folder would be deleted once the service has processed the removal. A removed file that a
        program has open passes the check.
        """
        folder = self.inodes.find(inode.parent)
        if folder is not None and not self.inodes.is_here(folder):
            raise FileNotFoundError(errno.ENOENT, "its folder has been removed")

    def checked_name(self, name: bytes) -> str:
        """Return the display name for the name of a new entry.

        Raises OSError if the name is too long (ENAMETOOLONG) or not valid UTF-8 (EILSEQ).
        """
        try:
            shown = typed(name.decode())
        except UnicodeDecodeError as wrong:
            raise OSError(errno.EILSEQ, "the name is not UTF-8") from wrong
        if len(name) > MAX_BYTES or not fits(shown):
            raise OSError(errno.ENAMETOOLONG, "the name is longer than 255 bytes")
        return shown

    def existing_name(self, name: bytes) -> str:
        """Return the display name of an entry that a program wants to find, rename or remove.

        Raises FileNotFoundError if the name is not valid UTF-8, because no entry has such a name,
        and OSError (ENAMETOOLONG) if the name is too long.
        """
        try:
            return self.checked_name(name)
        except OSError as wrong:
            if wrong.errno != errno.EILSEQ:
                raise
            raise FileNotFoundError(errno.ENOENT, "the name is not UTF-8") from wrong

    def in_use(self, inode: Inode) -> bool:
        """Return True if the inode has local bytes, local changes or a writer."""
        return bool(inode.generation or self.local(inode.ino))

    def holds_local_changes(self, inode: Inode) -> bool:
        """Return True if the inode, or any inode below it, is `in_use`.

        The work depends on the number of local changes, and not on the size of the folder.
        """
        if not inode.is_folder:
            return self.in_use(inode)
        if self.inodes.rows.is_above_changes(inode.ino):
            return True
        opened = (self.inodes.find(ino) for ino in self.opened if self.local(ino))
        return any(self.inodes.is_below(each, inode) for each in opened)

    def retry_failed_in(self, folder: int) -> None:
        """Retry the failed changes of all entries in a folder at once.

        Called after the folder has changed on the service. `folder` is its inode number.
        """
        if failed := self.intents.failed():
            for ino, _ in self.inodes.rows.among(folder, failed):
                self.intents.expedite(ino, time.time_ns())

    def named_bytes(self) -> set[tuple[int, int]]:
        """Return (ino, generation) of each spool file that a database row refers to."""
        named = set(self.inodes.rows.with_bytes().items())
        named |= {(each.ino, each.generation) for each in self.intents.all() if each.generation}
        return named | {(each.bytes_ino, each.generation) for each in self.requests.all()}

    def discard_bytes(self, inode: Inode, intent: Intent | None = None) -> None:
        """Delete the local bytes of `inode` and of `intent`, because no row needs them any more.

        Durable bytes are deleted later, see `supersede_bytes`.
        """
        for generation in {inode.generation, intent.generation if intent else 0} - {0}:
            self.supersede_bytes(inode.ino, generation)

    def drop_bytes(self, ino: int, generation: int) -> None:
        """Delete a generation (saved state) of a file's bytes unless a pending request sent them.

        In a transaction, the bytes are deleted after the commit, because until then rows refer to
        them.
        """

        def drop() -> None:
            if not self.requests.keeps(ino, generation):
                self.durable.discard((ino, generation))
                self.spool.delete(ino, generation)

        self.database.after_commit(drop)

    def supersede_bytes(self, ino: int, generation: int) -> None:
        """Delete a generation (saved state) of a file's bytes, to which no row refers any more.

        Until the row that replaced the last such row is durable, a power cut may restore the old
        row. A generation that a program has or may have synced (see `durable`) is therefore deleted
        later, by `delete_superseded`. Bytes that a pending request sent are kept. In a transaction,
        this method takes effect after the commit.
        """

        def supersede() -> None:
            self.superseded.append((ino, generation))
            self.bytes_superseded.notify()

        if (ino, generation) in self.durable:
            self.database.after_commit(supersede)
        else:
            self.drop_bytes(ino, generation)

    def delete_superseded(self, which: list[tuple[int, int]]) -> None:
        """Delete the superseded bytes `which`, pairs of (ino, generation).

        Call this method only after a database flush that began after these pairs were added to
        `superseded`, so that the records that replaced them are durable. Bytes that were already
        deleted are skipped.
        """
        for each in which:
            if each in self.superseded:
                self.superseded.remove(each)
                self.drop_bytes(*each)

    def record_request(self, request: PendingRequest) -> None:
        """Record a request before it is sent."""
        with self.transaction():
            self.requests.note(request)

    def unbind(self, inode: Inode) -> None:
        """Turn the inode into one that has no entry on the service.

        The protection of the former entry no longer applies. Call within a transaction.
        """
        free = msgspec.structs.replace(
            inode.attributes, read_protected=False, write_protected=False
        )
        if free != inode.attributes:
            self.invalidations.put(InodeChanged(inode.ino, attr_only=True))
        self.inodes.update(
            inode, remote_id=None, remote_parent=None, remote_name=None, attributes=free
        )

    def resolved(self, request: PendingRequest) -> None:
        """Delete a pending request whose outcome is known.

        Also delete the bytes that were kept for the request, unless a row or a session needs them.
        """
        with self.transaction():
            self.requests.drop(request.ino)
        ino, generation = request.bytes_ino, request.generation
        users = self.inodes.find(ino), self.intents.get(ino), self.session(ino)
        if generation and generation not in {each.generation for each in users if each}:
            self.drop_bytes(ino, generation)

    def release_if_unreferenced(self, inode: Inode) -> None:
        """Delete the local bytes of an unlinked inode, and drop the inode from memory.

        Does nothing while a program has the file open. The bytes are kept while an intent needs
        them, and the inode stays in memory while the kernel refers to it.
        """
        if inode.parent != NOWHERE or inode.ino in self.opened:
            return
        if inode.generation and self.intents.get(inode.ino) is None:
            self.discard_bytes(inode)
            inode.generation = 0
        if not self.inodes.remembered(inode.ino):
            self.inodes.release(inode.ino)
            self.kernel.release(inode.ino)
            if inode.is_folder:
                self.folder_released.notify(inode.ino)
            if inode.remote_id is None:
                self.cache.drop(inode.ino)
