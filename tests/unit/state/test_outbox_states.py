"""Table of the outbox's states: it has exactly the transitions that occur."""

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.state.disk import zone_of
from zonedrive.causes import Cause
from zonedrive.model import Attributes, Entry, Revision
from zonedrive.state import (
    conflicts,
    local_operations,
    outbox_states,
    remote_binding,
    remote_operations,
)
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.intents import Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import Session
from zonedrive.state.outbox_states import REQUESTS, STATES, TRANSITIONS, Change, Event, Request
from zonedrive.state.pending_requests import PendingRequest

Seen = set[tuple[object, ...]]
DOCS = Path(__file__).parents[3] / "src" / "zonedrive" / "docs"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Record every transition of the test."""
    found: Seen = set()
    monkeypatch.setattr(outbox_states, "check", lambda *row: found.add(row))
    monkeypatch.setattr(outbox_states, "check_request", lambda *row: found.add(row))
    return found


class Machine:
    """Local state of one account, and operations of programs and the service on one file.

    The operations are those that `vfs` and `sync` call.
    """

    def __init__(self, state: LocalState) -> None:
        self.state = state
        self.zone = zone_of(state)
        self._number = 0

    def file(self, *, new: bool = False) -> Inode:
        """Create another file, which exists on the service unless it is `new`."""
        self._number += 1
        name = f"f{self._number}"
        if new:
            return local_operations.create_file(self.state, self.zone, name, 0o600)
        with self.state.transaction():
            return self.state.inodes.add(
                self.zone.ino, name, Kind.FILE, zone="z", remote_id=name, remote_parent="root",
                remote_name=name, revision=Revision("1"), size=1,
            )  # fmt: skip

    def entry(self, inode: Inode, name: str = "") -> Entry:
        """Return the service's entry of a file after a request."""
        self._number += 1
        return Entry(
            id=inode.remote_id or f"new{inode.ino}", zone_id="z", parent_id="root",
            name=name or inode.remote_name or inode.name, folder=False, size=1, modified_ns=1,
            modified_by="alice", attributes=Attributes(), revision=Revision(f"r{self._number}"),
        )  # fmt: skip

    def intent(self, inode: Inode) -> Intent:
        """Return the intent, which must exist."""
        found = self.state.intents.get(inode.ino)
        assert found is not None
        return found

    def open(self, inode: Inode) -> None:
        """Open the file as a program, and keep it open."""
        if inode.ino not in self.state.opened:
            self.state.new_open_file(inode)

    def save(self, inode: Inode) -> None:
        """Save the file as a program, and keep it open."""
        state, generation = self.state, self.state.next_generation()
        file = state.spool.create(inode.ino, generation)
        file.pwrite(0, b"x")
        base = None if inode.is_new else inode.revision
        session = Session(generation, file, base, 0, inode.revision)
        file.flush()
        local_operations.commit_content(state, inode, session)
        file.close()

    def rename(self, inode: Inode, name: str, target: Inode | None = None) -> None:
        """Rename the file in its folder as a program."""
        local_operations.rename(self.state, inode, self.zone, name, target)

    def send(self, inode: Inode) -> PendingRequest:
        """Begin an upload of the file."""
        request = PendingRequest(
            inode.ino, inode.ino, self.intent(inode).generation, 1, "z", "root",
            inode.remote_name or inode.name, inode.remote_id,
        )  # fmt: skip
        self.state.record_request(request)
        return request

    def send_move(self, inode: Inode) -> PendingRequest:
        """Begin a move of the file."""
        request = PendingRequest(
            inode.ino, inode.ino, 0, 0, "z", "root", inode.name, inode.remote_id
        )
        self.state.record_request(request)
        return request

    def do(self, event: Event, inode: Inode) -> None:
        """Apply an event to a file."""
        state = self.state
        match event:
            case Event.FLUSH:
                self.save(inode)
            case Event.SAVE if state.intents.get(inode.ino) is None:
                self._make_new(inode)
            case Event.SAVE if inode.is_new:
                self.rename(inode, f"{inode.name}+")
            case Event.SAVE:
                self._unpark(inode)
            case Event.OPEN:
                state.intents.hold(inode.ino)
            case Event.CLOSE:
                state.intents.let_go(inode.ino, 0)
            case Event.MOVE:
                self.rename(inode, f"{inode.name.strip('~')}-")
            case Event.PARK:
                self.rename(inode, f"{inode.name}~")
            case Event.REMOVE | Event.DELETE:
                local_operations.remove(state, inode, final=event is Event.DELETE)
            case Event.FAIL:
                state.intents.postpone(self.intent(inode), 0, "no answer", Cause.SERVICE)
            case Event.CONTENT_SENT:
                request = self.send(inode)
                remote_operations.record_arrival(state, inode, request, self.entry(inode))
            case Event.PLACE_SENT:
                remote_operations.record_move(
                    state, inode, "root", self.entry(inode, inode.name), done=self.intent(inode)
                )
            case Event.END:
                local_operations.forget(state, inode)

    def _make_new(self, inode: Inode) -> None:
        """Make a saved file a new one, as a rename over a file that the service has does."""
        self.save(inode)
        self.state.intents.let_go(inode.ino, 0)
        with self.state.transaction():
            remote_binding.detach_and_delete_remote(self.state, inode, 0)
            self.state.send_content_again(inode, None)

    def _unpark(self, inode: Inode) -> None:
        """Rename a file with local bytes from a local-only name to another one."""
        self.save(inode)
        self.rename(inode, f"{inode.name}~")
        self.rename(inode, inode.name.strip("~") + "-")


def path_to(wanted: Change) -> list[Event]:
    """Return the events that lead from a file without changes to a state, as the table says."""
    todo: deque[tuple[Change, list[Event]]] = deque([(Change.NONE, [])])
    known = {Change.NONE}
    while todo:
        state, path = todo.popleft()
        if state is wanted:
            return path
        for event, after in TRANSITIONS[state].items():
            if after not in known and event not in (Event.SAVE, Event.FAIL, Event.END):
                known.add(after)
                todo.append((after, [*path, event]))
    raise AssertionError(f"nothing leads to {wanted}")


def rows(table: Mapping[Any, Mapping[Any, Any]]) -> Seen:
    """Return the rows of a table."""
    return {(state, event, table[state][event]) for state in table for event in table[state]}


ROWS = [(state, event) for state, events in TRANSITIONS.items() for event in events]
REQUEST_ROWS: Seen = {(before, after) for before in REQUESTS for after in REQUESTS[before]}


@pytest.mark.parametrize(("before", "event"), ROWS, ids=lambda each: each.value.replace(" ", "-"))
def test_each_row_of_the_table_happens(
    machine: Machine, seen: Seen, before: Change, event: Event
) -> None:
    """Each row can occur, and all transitions on the way to it have rows."""
    inode = machine.file(new=(before, event) == (Change.SAVED, Event.SAVE))
    for each in path_to(before):
        machine.do(each, inode)
    machine.do(event, inode)
    assert (before, event, TRANSITIONS[before][event]) in seen
    assert seen <= rows(TRANSITIONS) | REQUEST_ROWS, seen


def test_each_row_of_the_requests_happens(machine: Machine, seen: Seen) -> None:
    """Uploads, new folders and moves end with an answer, or with the file that takes over."""
    state = machine.state
    sent, replaced = machine.file(), machine.file()
    for each in (sent, replaced):
        machine.save(each)
    state.resolved(machine.send(sent))
    conflicts.recreate(state, sent, machine.send(sent))  # the upload has made another file
    machine.send(replaced)
    new = machine.file(new=True)
    machine.save(new)
    machine.rename(new, replaced.name, replaced)
    assert state.requests.get(new.ino) is not None
    moved, taken = machine.file(), machine.file()
    for each in (moved, taken):
        machine.rename(each, f"{each.name}-")
        machine.send_move(each)
    request = state.requests.get(moved.ino)
    assert request is not None
    remote_operations.record_location(state, request, None)
    other = machine.file(new=True)
    machine.save(other)
    machine.rename(other, taken.name, taken)
    folder = local_operations.make_folder(state, machine.zone, "folder", 0o700)
    making = PendingRequest(folder.ino, folder.ino, 0, 0, "z", "root", "folder", None)
    state.record_request(making)
    state.resolved(making)
    state.record_request(making)
    machine.rename(folder, "folder~")
    assert {row for row in seen if isinstance(row[0], Request)} == REQUEST_ROWS


def test_a_new_folder_gets_a_local_only_name_during_its_creation(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder that the service may have created is deleted, and the local one stays."""
    state = machine.state
    folder = local_operations.make_folder(state, machine.zone, "folder", 0o700)
    making = PendingRequest(folder.ino, folder.ino, 0, 0, "z", "root", "folder", None)
    state.record_request(making)
    machine.rename(folder, "folder~")
    assert folder.local
    assert state.intents.get(folder.ino) is None
    (request,) = state.requests.all()
    assert request.ino != folder.ino
    assert machine.intent(state.inodes.get(request.ino)).gone
    assert not caplog.records


def test_a_transition_without_a_row_is_an_error(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """A daemon logs the error, and each test with a daemon fails on that."""
    inode = machine.file()
    machine.do(Event.PARK, inode)
    machine.save(inode)  # a parked file is saved on this machine only: no transition
    assert not caplog.records
    state = machine.state
    with state.transaction():
        state.intents.content(inode.ino, 1, 1, base=None, held=False, due_ns=0)
    (record,) = caplog.records
    assert record.levelname == "ERROR"


def test_the_page_for_users_matches_the_table() -> None:
    """The page has one line for each state, in the order of the table."""
    page = (DOCS / "SEMANTICS.md").read_text("utf-8")
    _, _, after = page.partition("| state of a change |")
    lines = after.splitlines()[2:]
    shown = [line for line in lines[: lines.index("")] if line]
    assert shown == [
        f"| {state.value} | {facts.meaning} | {facts.durable} | {facts.sends} |"
        for state, facts in STATES.items()
        if state is not Change.NONE
    ]
