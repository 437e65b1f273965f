"""Rules of names, bytes and releases that all operations share."""

import errno
import itertools
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import cast

import pytest

from tests.unit.state.test_outbox_states import Machine
from zonedrive.causes import Cause
from zonedrive.model import Revision
from zonedrive.state import conflict_copies, conflicts, local_operations, remote_operations
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.invalidation import EntryChanged, EntryGone, InodeChanged, Invalidation
from zonedrive.state.merge import Merged
from zonedrive.state.names import local_name
from zonedrive.state.open_file import Handle, KernelInodes, Session, ino_of
from zonedrive.state.pending_requests import PendingRequest


def told(machine: Machine) -> list[Invalidation]:
    """Return the queued invalidations for the kernel."""
    queue, items = machine.state.invalidations.receive, []
    while queue.statistics().current_buffer_used:
        items.append(queue.receive_nowait())
    return items


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (b"a" * 255, 0), (b"a" * 256, errno.ENAMETOOLONG), ("\u00e4".encode() * 127, 0),
        ("\u00e4".encode() * 128, errno.ENAMETOOLONG), (b"\xff", errno.EILSEQ),
        (b"\t" * 85, 0), (b"\t" * 86, errno.ENAMETOOLONG),
    ],
)  # fmt: skip
def test_a_name_has_255_bytes_at_most_here_and_as_it_is_shown(
    machine: Machine, name: bytes, wrong: int
) -> None:
    """A control character is shown as a symbol of three bytes."""
    if not wrong:
        assert len(machine.state.checked_name(name).encode()) <= 255
        return
    with pytest.raises(OSError) as refused:
        machine.state.checked_name(name)
    assert refused.value.errno == wrong


def test_nothing_is_saved_in_a_folder_that_was_removed_as_a_whole(machine: Machine) -> None:
    """A file there would be deleted with the folder; a zone has no folder above it."""
    state = machine.state
    outer = local_operations.make_folder(state, machine.zone, "outer", 0o700)
    inner = local_operations.make_folder(state, outer, "inner", 0o700)
    for each in (inner, outer, machine.zone, state.inodes.get(ROOT)):
        state.require_folders(each)
    with state.transaction():
        state.inodes.unlink(outer, tombstone=True)
    with pytest.raises(FileNotFoundError):
        state.require_folders(inner)
    state.require_folders(machine.zone)


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_a_change_of_a_folder_repeats_what_failed_in_it(
    machine: Machine, failed: bool, inside: bool
) -> None:
    """The reason may be gone; other changes keep their time."""
    state, file = machine.state, machine.file()
    machine.rename(file, "b")
    far = 1 << 62
    cause = Cause.REFUSED if failed else Cause.SERVICE
    state.intents.postpone(machine.intent(file), far, "no", cause)
    state.retry_failed_in(machine.zone.ino if inside else ROOT)
    assert (machine.intent(file).due_ns < far) == (failed and inside)


def nested(machine: Machine) -> Inode:
    """Return a folder in a folder of the zone."""
    state, above = machine.state, machine.zone
    with state.transaction():
        for each in ("outer", "inner"):
            above = state.inodes.add(
                above.ino, each, Kind.FOLDER, zone=above.zone, remote_id=each, listed=True
            )
    return above


@pytest.mark.parametrize("change", ["", "bytes", "intent", "new file", "removed", "elsewhere"])
def test_local_changes_below_a_folder_are_found(machine: Machine, change: str) -> None:
    """Only a change of an entry that is below the folder counts."""
    state, inner = machine.state, nested(machine)
    outer = state.inodes.get(inner.parent)
    file = machine.file()
    if change != "elsewhere":
        with state.transaction():
            state.inodes.move(file, inner.ino, "file")
    match change:
        case "bytes":
            with state.transaction():
                state.inodes.update(file, generation=5)
        case "intent" | "elsewhere":
            folder = state.inodes.get(file.parent)
            local_operations.rename(state, file, folder, "b", None)
        case "new file":
            draft = local_operations.create_file(state, inner, "new", 0o600)
            opened = state.new_open_file(draft)
            opened.session = cast(Session, object())
        case "removed":
            local_operations.remove(state, file)
    expected = change in ("bytes", "intent", "new file")
    for folder in (inner, outer):
        assert state.holds_local_changes(folder) == expected
    for above in (machine.zone, state.inodes.get(ROOT)):
        assert state.holds_local_changes(above) == (expected or change == "elsewhere")


def next_step(steps: Iterator[int]) -> None:
    """Count one instruction of SQLite."""
    next(steps)


def test_the_search_for_local_changes_does_not_read_the_folder(machine: Machine) -> None:
    """An access that the service refuses must not walk through everything that is known."""
    state, inner = machine.state, nested(machine)
    work, connection = [0, 0], state.database._connection
    for number in range(2):
        with state.transaction():
            files = {
                f"{number} {each}": {"kind": Kind.FILE, "remote_id": f"{number} {each}"}
                for each in range(500)
            }
            state.inodes.add_all(inner.ino, files)
        steps = itertools.count()
        connection.set_progress_handler(partial(next_step, steps), 1)
        assert not state.holds_local_changes(machine.zone)
        connection.set_progress_handler(None, 0)
        work[number] = next(steps)
    assert work[0] == work[1]


def test_a_listing_is_told_to_the_kernel(machine: Machine) -> None:
    """Copies of a former version are deleted; entries that are gone are no error."""
    state, file = machine.state, machine.file()
    generation = state.next_generation()
    state.spool.create(file.ino, generation).close()
    merged = Merged()
    merged.gone.append((machine.zone.ino, "gone", 900))
    merged.moved.append((machine.zone.ino, "moved"))
    merged.content += [file.ino, 901]
    merged.copies.append((file.ino, generation))
    merged.attributes.append(902)
    told(machine)
    remote_operations.queue_invalidations(state, merged)
    assert told(machine) == [
        EntryGone(machine.zone.ino, b"gone", 900), EntryChanged(machine.zone.ino, b"moved"),
        InodeChanged(file.ino, attr_only=False), InodeChanged(902, attr_only=True),
    ]  # fmt: skip
    assert state.spool.stored() == []


def copied(machine: Machine) -> Inode:
    """Return a file whose local bytes are a copy of the service's version."""
    state, inode = machine.state, machine.file()
    generation = state.next_generation()
    file = state.spool.create(inode.ino, generation)
    local_operations.adopt_copy(state, inode, generation, file)
    file.close()
    return inode


@pytest.mark.parametrize(
    "use", ["nothing", "reading", "writing", "other version", "edited", "older edit", "newer edit"]
)
def test_a_copy_of_the_services_version_is_deleted_when_it_is_not_needed(
    machine: Machine, use: str
) -> None:
    """Open readers continue with the service's version; bytes of an edit are no copy."""
    state, inode = machine.state, copied(machine)
    generation = inode.generation
    opened = None
    match use:
        case "reading" | "writing":
            opened = state.new_open_file(inode)
            if use == "reading":
                opened.local = generation, state.spool.open(inode.ino, generation)
            if use == "writing":
                file = state.spool.open(inode.ino, generation)
                opened.session = Session(generation, file, inode.revision, 0, inode.revision)
        case "other version":
            with state.transaction():
                state.inodes.update(inode, revision=Revision("2"))
        case "edited" | "older edit" | "newer edit":
            number = generation - (use == "older edit") + (use == "newer edit")
            with state.transaction():
                state.intents.content(
                    inode.ino, number, 1, base=inode.revision, held=False, due_ns=0
                )
    state.revert_to_remote(inode)
    kept = use in ("writing", "other version", "edited")
    assert inode.generation == (generation if kept else 0)
    assert state.spool.stored() == ([(inode.ino, generation)] if kept else [])
    if opened is not None and use != "writing":
        assert opened.content == inode.revision
        assert opened.local is None
    if opened is not None and opened.session is not None:
        opened.session.file.close()


@pytest.mark.parametrize("needed", ["inode", "intent", "session", "nothing", "no bytes"])
def test_the_bytes_of_a_request_are_kept_as_long_as_something_needs_them(
    machine: Machine, needed: str
) -> None:
    """A pending request keeps its bytes; afterwards only a row or a session does."""
    state, inode = machine.state, machine.file()
    machine.save(inode)
    generation = inode.generation
    request = machine.send(inode)
    if needed != "intent":
        with state.transaction():
            state.intents.drop(inode.ino)
    if needed != "inode":
        with state.transaction():
            state.inodes.update(inode, generation=0)
    opened = state.new_open_file(inode)
    if needed == "session":
        file = state.spool.open(inode.ino, generation)
        opened.session = Session(generation, file, inode.revision, 0, inode.revision)
    state.drop_bytes(inode.ino, generation)
    assert state.spool.stored() == [(inode.ino, generation)]
    if needed == "no bytes":
        state.spool.delete(inode.ino, generation)
    state.resolved(request)
    kept = needed in ("inode", "intent", "session")
    assert state.spool.stored() == ([(inode.ino, generation)] if kept else [])
    if opened.session is not None:
        opened.session.file.close()


@pytest.mark.parametrize("reference", ["none", "kernel", "open", "name"])
def test_a_removed_file_is_released_when_nobody_uses_it(machine: Machine, reference: str) -> None:
    """The bytes of the file are deleted once no program has it open."""
    state, inode = machine.state, machine.file(new=True)
    machine.save(inode)
    match reference:
        case "kernel":
            state.inodes.remember(inode.ino)
        case "open":
            state.new_open_file(inode)
    if reference != "name":
        with state.transaction():
            state.inodes.unlink(inode)
            state.intents.drop(inode.ino)
    state.release_if_unreferenced(inode)
    assert bool(state.spool.stored()) == (reference in ("open", "name"))
    assert (state.inodes.find(inode.ino) is None) == (reference == "none")


def test_a_renamed_file_that_the_service_lost_is_gone_here(machine: Machine) -> None:
    """The kernel forgets its name, unless it was removed here as well."""
    state, renamed, removed = machine.state, machine.file(), machine.file()
    outdated: list[int | None] = []
    state.listing_outdated.add(outdated.append)
    machine.rename(renamed, "renamed")
    local_operations.remove(state, removed)
    told(machine)
    for each in (renamed, state.inodes.get(removed.ino)):
        conflicts.accept_deletion(state, machine.intent(each), each)
        assert state.inodes.find(each.ino) is None
    assert told(machine) == [EntryGone(machine.zone.ino, b"renamed", renamed.ino)]
    assert outdated == [machine.zone.ino, NOWHERE]
    assert len(state.intents) == 0


@pytest.mark.parametrize(
    ("host", "shown_host"), [("ho/st", "ho_st"), ("h\udcff\nst", "h\ufffd st")]
)
def test_copies_have_names_of_their_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, host: str, shown_host: str
) -> None:
    """Copies of one second are numbered; what a name cannot have is replaced."""
    state, file = machine.state, machine.file()
    state.user = "a/lice"
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    with state.transaction():
        state.inodes.update(file, remote_name="report.txt")
        shown = local_name("report.txt", file.remote_id or "", {"report.txt"})
        state.inodes.move(file, machine.zone.ino, shown)
    groups: dict[str, list[str]] = {}
    for number in range(5):
        name = conflict_copies.copy_name(state, file)
        with state.transaction():
            state.inodes.add(machine.zone.ino, name, Kind.FILE, zone="z", remote_id=str(number))
        stem, mark, rest = name.partition(")")
        groups.setdefault(stem, []).append(rest)
        assert stem.startswith(f"report (conflict, a_lice on {shown_host}, ")
        assert mark
    for rests in groups.values():
        wanted = [".txt", *(f" {number}.txt" for number in range(2, len(rests) + 1))]
        assert rests == wanted


@pytest.mark.parametrize("held", ["nothing", "these bytes", "older bytes", "newer bytes"])
def test_open_readers_keep_the_bytes_that_they_have_seen(machine: Machine, held: str) -> None:
    """The newer content gets its own kernel inode; the former bytes stay open for the readers."""
    state, inode = machine.state, machine.file()
    machine.save(inode)
    before = inode.generation
    opened = state.new_open_file(inode)
    handle = Handle(opened, opened.number, readable=True, writable=False, append=False)
    opened.handles.append(handle)
    opened.pages = True
    other = {"these bytes": before, "older bytes": before - 1, "newer bytes": before + 1}.get(held)
    if other is not None:
        if other != before:
            state.spool.create(inode.ino, other).close()
        opened.local = other, state.spool.open(inode.ino, other)
    former = opened.local
    with state.transaction():
        state.inodes.update(inode, generation=0, revision=Revision("2"))
    told(machine)
    assert state.supersede(inode)
    state.drop_bytes(inode.ino, before)
    assert opened.superseded
    assert opened.local is not None
    assert opened.local[0] == before
    assert (opened.local is former) == (held == "these bytes")
    assert opened.local[1].pread(0, 1) == b"x"
    assert inode.ino not in state.opened
    assert state.kernel.number(inode.ino) != opened.number
    assert told(machine) == [EntryChanged(machine.zone.ino, inode.name.encode())]
    opened.close()


def test_handles_that_have_read_nothing_follow_the_new_content(machine: Machine) -> None:
    """A program that only writes continues with the newer version."""
    state, inode = machine.state, machine.file()
    opened = state.new_open_file(inode)
    reader = Handle(opened, opened.number, readable=True, writable=False, append=False)
    writer = Handle(opened, opened.number, readable=False, writable=True, append=False)
    opened.handles += [reader, writer]
    opened.writers, opened.pages = 1, True
    with state.transaction():
        state.inodes.update(inode, revision=Revision("2"))
    assert state.supersede(inode)
    successor = state.opened[inode.ino]
    assert (reader.file, writer.file) == (opened, successor)
    assert (opened.handles, opened.writers) == ([reader], 0)
    assert (successor.handles, successor.writers) == ([writer], 1)
    assert opened.told.nlink == 0


def test_the_attributes_of_a_newer_version_have_another_inode_number(machine: Machine) -> None:
    """A program that has read the former version must not get its size or its cached pages."""
    state, inode = machine.state, machine.file()
    opened = state.new_open_file(inode)
    handle = Handle(opened, opened.number, readable=True, writable=False, append=False)
    opened.handles.append(handle)
    opened.pages = True
    assert state.attr(inode, 0).ino == opened.number
    with state.transaction():
        state.inodes.update(inode, revision=Revision("2"), size=7)
    attr = state.attr(inode, 0)
    assert attr.ino not in (inode.ino, opened.number)
    assert (attr.size, opened.told.size) == (7, 1)
    assert ino_of(attr.ino) == inode.ino


@pytest.mark.parametrize("frozen", [True, False])
def test_content_that_is_closed_is_sent_again_at_once(machine: Machine, frozen: bool) -> None:
    """While a close waits for the upload, the session is frozen, and no program has it open."""
    state, inode = machine.state, machine.file()
    opened = state.new_open_file(inode)
    file = state.spool.create(inode.ino, 5)
    opened.session = Session(5, file, inode.revision, 0, inode.revision)
    opened.session.frozen = frozen
    with state.transaction():
        state.inodes.update(inode, generation=5)
        state.send_content_again(inode, None)
    assert machine.intent(inode).held is not frozen
    file.close()


@pytest.mark.parametrize("use", ["unread", "unchanged", "writing"])
def test_content_that_nobody_has_read_is_replaced_in_its_place(machine: Machine, use: str) -> None:
    """The kernel drops its pages, and the file keeps its number."""
    state, inode = machine.state, machine.file()
    opened = state.new_open_file(inode)
    opened.pages = use != "unread"
    opened.handles.append(Handle(opened, opened.number, True, False, False))
    if use == "writing":
        file = state.spool.create(inode.ino, 5)
        opened.session = Session(5, file, inode.revision, 0, inode.revision)
    if use != "unchanged":
        with state.transaction():
            state.inodes.update(inode, revision=Revision("2"))
    told(machine)
    state.content_changed(inode)
    assert told(machine) == [InodeChanged(inode.ino, attr_only=False)]
    assert state.opened[inode.ino] is opened
    assert opened.content == Revision("2" if use == "unread" else "1")
    if opened.session is not None:
        opened.session.file.close()


@pytest.mark.parametrize(
    ("offset", "length", "mapped"),
    [
        (0, 5000, True), (0, 5001, False), (0, 4096, True), (0, 8192, False), (0, 100, False),
        (1, 4999, False), (4096, 904, True), (4096, 905, False), (4096, 903, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("readable", [True, False])
def test_a_write_of_whole_pages_may_come_from_a_mapping(
    machine: Machine, offset: int, length: int, mapped: bool, readable: bool
) -> None:
    """The kernel writes such pages up to the end of the file, which has 5000 bytes here."""
    opened = machine.state.new_open_file(machine.file())
    opened.known_size = 5000
    handle = Handle(opened, 1, readable=readable, writable=True, append=True)
    assert handle.is_of_a_mapping(offset, length, 5000) == (mapped and readable)


def test_the_age_of_a_session_is_the_time_since_it_began(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file without content is kept only for a while."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    file = machine.state.spool.create(7, 1)
    session = Session(1, file, None, 0, Revision(""))
    clock[0] += 2.5
    assert session.age == 2.5
    file.close()


def test_requests_are_found_by_the_names_that_they_may_have_given(machine: Machine) -> None:
    """A move of a known entry creates none, and the names of other folders are independent."""
    requests = machine.state.requests
    places = (("f", "new", None), ("e", "new in e", None), ("g", "new in g", None),
              ("f", "moved", "4"), ("e", "moved", "5"), ("f", "other", "6"))  # fmt: skip
    with machine.state.transaction():
        for ino, (folder, name, remote_id) in enumerate(places, 1):
            generation = 0 if remote_id else 1
            requests.note(PendingRequest(ino, ino, generation, 1, "z", folder, name, remote_id))
    assert requests.names_in("f") == {"new"}
    assert [each.ino for each in requests.moved_to("f", "moved")] == [4]
    assert requests.moved_to("f", "new") == []


def test_a_request_that_another_inode_has_taken_over_is_still_pending(machine: Machine) -> None:
    """The answer finds the request under the new inode number."""
    state, inode = machine.state, machine.file(new=True)
    machine.save(inode)
    sent = machine.send(inode)
    assert state.requests.present(sent) == sent
    with state.transaction():
        state.requests.pass_on(inode.ino, 900)
    found = state.requests.present(sent)
    assert found is not None
    assert (found.ino, found.bytes_ino, found.name) == (900, inode.ino, inode.name)
    with state.transaction():
        state.requests.drop(900)
    assert state.requests.present(sent) is None


@pytest.mark.parametrize("ino", [2, 1000, 10**9])
def test_a_kernel_number_contains_its_inode(machine: Machine, ino: int) -> None:
    """Each version that a program reads has another number of the same inode."""
    kernel, opened = KernelInodes(), machine.state.new_open_file(machine.file())
    opened.ino = opened.number = ino
    numbers = [kernel.number(ino)]
    for _ in range(3):
        kernel.renew(opened)
        opened.number = kernel.number(ino)
        numbers.append(opened.number)
    assert len({*numbers}) == 4
    assert {ino_of(number) for number in numbers} == {ino}
    assert set(kernel.former) == {*numbers[:3]}


@pytest.mark.parametrize("is_removed", [True, False])
def test_the_kernel_number_of_a_file_is_kept_as_long_as_the_file(
    machine: Machine, is_removed: bool
) -> None:
    """Programs would otherwise take the file for another one; a removed file takes no memory."""
    state, inode = machine.state, machine.file(new=True)
    state.kernel.renew(state.new_open_file(inode))
    number = state.kernel.number(inode.ino)
    state.opened.clear()
    state.kernel.former.clear()
    if is_removed:
        with state.transaction():
            state.inodes.unlink(inode)
    state.release_if_unreferenced(inode)
    assert state.kernel.number(inode.ino) == (inode.ino if is_removed else number)


def test_synced_bytes_are_replaced_only_by_a_commit(machine: Machine) -> None:
    """A transaction that fails leaves them current; after a commit they wait for a flush."""
    state, which = machine.state, (7, 1)
    state.durable.add(which)
    state.spool.create(*which).close()
    with pytest.raises(OSError), state.transaction():
        state.supersede_bytes(*which)
        raise OSError(errno.ENOSPC, "the disk is full")
    assert state.superseded == []
    with state.transaction():
        state.supersede_bytes(*which)
    assert (state.superseded, state.spool.stored()) == ([which], [which])
    state.delete_superseded([which, which])
    assert (state.superseded, state.spool.stored(), state.durable) == ([], [], set())
