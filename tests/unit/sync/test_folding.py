"""Folding: the service gets the local state in few and ordered steps."""

from collections.abc import Set
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from zonedrive.causes import Cause
from zonedrive.state.intents import Intent
from zonedrive.sync.planner import Action, InodeView, Place, fold

ZONE = 1
A, B, C = (ZONE, "a"), (ZONE, "b"), (ZONE, "c")


def intent(ino: int, **fields: object) -> Intent:
    return Intent(ino, seq=ino, **fields)  # type: ignore[arg-type]


def new_file(ino: int, place: Place) -> InodeView:
    return InodeView(ino, folder=False, new=True, place=place, origin=None)


def old_file(ino: int, origin: Place, place: Place | None = None) -> InodeView:
    return InodeView(ino, folder=False, new=False, place=place or origin, origin=origin)


def folded(*items: tuple[Intent, InodeView]) -> list[tuple[Action, int, int]]:
    subjects = {subject.ino: subject for _, subject in items}
    return [
        (step.action, step.ino, step.other) for step in fold([item[0] for item in items], subjects)
    ]


def awaited(*items: tuple[Intent, InodeView], unites: bool = False) -> dict[int, Set[int]]:
    """Return the inodes that each step waits for."""
    subjects = {subject.ino: subject for _, subject in items}
    steps = fold([item[0] for item in items], subjects, unites_spellings=unites)
    return {step.ino: step.after for step in steps}


def test_an_edit_in_place_is_one_upload() -> None:
    """Writing into an existing file makes one version and no other change."""
    assert folded((intent(2, generation=7), old_file(2, A))) == [(Action.UPLOAD, 2, 0)]


def test_a_file_still_open_for_writing_is_not_sent() -> None:
    """Incomplete content is not sent while a program has the file open."""
    assert folded((intent(2, generation=7, held=True), old_file(2, A))) == []


@pytest.mark.parametrize("away", [{"gone": True}, {"place": True}])
def test_a_new_file_where_an_old_one_was_becomes_its_next_version(away: dict[str, bool]) -> None:
    """If an editor deletes or renames a file and writes it again, its history continues."""
    former = old_file(2, A, B)
    assert folded((intent(2, **away), former), (intent(3, generation=9), new_file(3, A))) == [
        (Action.ADOPT, 3, 2)
    ]


@pytest.mark.parametrize("away", [{"gone": True}, {"place": True}])
def test_a_new_file_at_the_last_place_of_an_old_one_becomes_its_next_version(
    away: dict[str, bool],
) -> None:
    """The service does not know that the old file was there, and gets the rename later."""
    former = replace(old_file(2, A, C), left=B)
    saved = intent(3, generation=9), new_file(3, B)
    written = intent(3, generation=9, held=True), new_file(3, B)
    assert folded((intent(2, **away), former), saved) == [(Action.ADOPT, 3, 2)]
    assert folded((intent(2, **away), former), written) == []
    assert fold([intent(2, **away)], {2: former}, {B}) == []


def test_a_parked_file_at_the_last_place_of_an_old_one_keeps_its_entry() -> None:
    """A coworker has moved the entry, which the new file takes over as soon as it is complete."""
    parked = replace(old_file(2, A, C), left=B, local=True, moved=True)
    change = intent(2, parked=True, place=True)
    assert fold([change], {2: parked}, {B}) == []
    assert folded((change, parked)) == [(Action.WITHDRAW, 2, 0)]


def test_a_new_file_at_the_place_on_the_service_comes_first() -> None:
    """The new file at the last local place is a new entry."""
    former = intent(2, gone=True), replace(old_file(2, A), left=B)
    first = intent(3, generation=9), new_file(3, A)
    second = intent(4, generation=9), new_file(4, B)
    steps = [(Action.ADOPT, 3, 2), (Action.UPLOAD, 4, 0)]
    assert folded(former, first, second) == steps
    other = intent(5, place=True), replace(old_file(5, B, C), left=A)
    assert folded(former, other, first, second) == [(Action.ADOPT, 3, 2), (Action.ADOPT, 4, 5)]


@pytest.mark.parametrize("final", [False, True])
def test_none_of_two_files_with_one_last_place_is_adopted(final: bool) -> None:
    """Either could be meant, unless one of them was moved into the trash."""
    one = intent(2, gone=True), replace(old_file(2, A), left=B)
    two = intent(3, gone=True, place=final), replace(old_file(3, C), left=B)
    new = intent(4, generation=9), new_file(4, B)
    taken = [(Action.DELETE, 3, 0), (Action.ADOPT, 4, 2)]
    none = [(Action.DELETE, 2, 0), (Action.DELETE, 3, 0), (Action.UPLOAD, 4, 0)]
    assert folded(one, two, new) == (taken if final else none)


def test_a_removed_file_waits_for_another_one_that_has_its_last_place() -> None:
    """The other file loses its own entry to a new file, and can then take over this one."""
    removed = intent(2, gone=True), replace(old_file(2, A), left=B)
    moved = intent(3, place=True), old_file(3, C, B)
    new = intent(4, generation=9), new_file(4, C)
    assert folded(removed, moved, new) == [(Action.ADOPT, 4, 3)]


def test_only_an_entry_that_leaves_its_place_is_adopted_there() -> None:
    """A coworker moved an edited file: a new file at its former place is independent."""
    edited = intent(2, generation=7), old_file(2, A, B)
    assert folded(edited, (intent(3, generation=9), new_file(3, A))) == [
        (Action.UPLOAD, 2, 0),
        (Action.UPLOAD, 3, 0),
    ]


def test_a_name_waits_for_a_file_that_may_have_arrived_under_it() -> None:
    """A new file was renamed after a request without an answer: its former name is free later."""
    renamed = InodeView(2, folder=False, new=True, place=B, origin=A)
    folder = InodeView(3, folder=True, new=True, place=A, origin=None)
    steps = fold([intent(2, generation=7), intent(3, place=True)], {2: renamed, 3: folder})
    assert {step.ino: step.after for step in steps} == {2: frozenset(), 3: frozenset({2})}


@pytest.mark.parametrize("reading", [False, True])
def test_a_trashed_file_has_no_successor(reading: bool) -> None:
    """A trashed file exists in the trash, and the new file with its name has no history."""
    trashed = intent(2, gone=True, place=True, held=reading), old_file(2, A)
    steps = fold([trashed[0], intent(3, generation=9)], {2: trashed[1], 3: new_file(3, A)})
    assert [(step.action, step.ino) for step in steps] == [(Action.DELETE, 2), (Action.UPLOAD, 3)]
    assert steps[1].after == {2}
    assert fold([trashed[0]], {2: trashed[1]}, {A})  # nor for a program that writes there
    assert bool(fold([trashed[0]], {2: trashed[1]})) is not reading


def test_the_old_file_waits_while_its_successor_is_being_written() -> None:
    """Nothing is deleted on the service before the replacing bytes are complete."""
    assert (
        folded(
            (intent(2, gone=True), old_file(2, A)),
            (intent(3, generation=9, held=True), new_file(3, A)),
        )
        == []
    )


@pytest.mark.parametrize(
    ("other", "view", "action"),
    [
        (
            {"place": True}, InodeView(3, folder=True, new=True, place=A, origin=None),
            Action.MAKE,
        ),
        ({"place": True, "generation": 9}, old_file(3, B, A), Action.MOVE),
        ({}, new_file(3, A), None),
    ],
    ids=["new folder", "moved file", "file without content"],
)  # fmt: skip
def test_only_a_new_file_with_content_takes_over_an_entry(
    other: dict[str, object], view: InodeView, action: Action | None
) -> None:
    """The removed file is deleted before anything else gets its name."""
    steps = fold([intent(2, gone=True), intent(3, **other)], {2: old_file(2, A), 3: view})
    found = {step.ino: (step.action, step.after) for step in steps}
    assert found.pop(2) == (Action.DELETE, frozenset())
    assert found == ({} if action is None else {3: (action, frozenset({2}))})


def test_a_parked_file_whose_entry_was_moved_is_not_adopted() -> None:
    """The parked file has no successor, even if a file without an entry comes to its place."""
    parked = InodeView(
        3, folder=False, new=False, place=(ZONE, "c~"), origin=C, local=True, moved=True
    )
    assert folded(
        (intent(2, place=True), old_file(2, A, C)),
        (intent(3, place=True, parked=True), parked),
        (intent(4, generation=9), new_file(4, A)),
    ) == [(Action.ADOPT, 4, 2), (Action.WITHDRAW, 3, 0)]


def test_a_deleted_file_that_is_still_read_is_deleted_later() -> None:
    """A program that has a deleted file open can read it to the end."""
    assert folded((intent(2, gone=True, held=True), old_file(2, A))) == []


def test_a_deleted_file_that_is_still_read_makes_room_for_another_entry() -> None:
    """A new folder, or a moved one, has its place, or that of a removed folder above it.

    A moved folder takes the file with it.
    """
    read = intent(2, gone=True, held=True), old_file(2, A)
    new_folder = intent(4, place=True), InodeView(4, folder=True, new=True, place=A, origin=None)
    moved = intent(5, place=True), InodeView(5, folder=True, new=False, place=A, origin=B)
    assert folded(read, new_folder) == [(Action.MAKE, 4, 0), (Action.DELETE, 2, 0)]
    assert folded(read, moved) == [(Action.MOVE, 5, 0), (Action.DELETE, 2, 0)]
    inside = InodeView(3, folder=False, new=False, place=(9, "x"), origin=(9, "x"), inside=(9, 1))
    removed = intent(9, gone=True), InodeView(9, folder=True, new=False, place=A, origin=A)
    held = intent(3, gone=True, held=True), inside
    assert folded(held, removed) == [(Action.DELETE, 9, 0)]
    steps = fold(
        [each for each, _ in (held, removed, new_folder)],
        {view.ino: view for _, view in (held, removed, new_folder)},
    )
    waits = {step.ino: set(step.after) for step in steps}
    assert waits == {9: {3}, 4: {9}, 3: set()}
    away = intent(9, place=True), InodeView(9, folder=True, new=False, place=B, origin=A)
    assert folded(held, away, new_folder) == [(Action.MOVE, 9, 0), (Action.MAKE, 4, 0)]


def test_a_folder_is_created_before_its_content() -> None:
    """Content never waits for a folder that will not be created."""
    folder = InodeView(2, folder=True, new=True, place=A, origin=None)
    steps = fold(
        [intent(3, generation=4), intent(2, place=True)],
        {2: folder, 3: new_file(3, (2, "inside"))},
    )
    waits = {step.ino: step.after for step in steps}
    assert waits == {2: frozenset(), 3: frozenset({2})}


def test_a_folder_is_moved_into_its_former_subfolder_after_the_one_between_has_left() -> None:
    """The service would otherwise refuse to move a folder into itself."""
    outer = InodeView(
        2, folder=True, new=False, place=(4, "a"), origin=A, inside=(ZONE,), toward=(3, 2, ZONE)
    )
    middle = InodeView(3, folder=True, new=False, place=B, origin=(2, "b"), inside=(2, ZONE))
    steps = fold([intent(2, place=True), intent(3, place=True)], {2: outer, 3: middle})
    assert {step.ino: step.after for step in steps} == {2: {3}, 3: frozenset()}


def test_an_upload_waits_for_an_entry_with_another_spelling_of_its_name() -> None:
    """The service may store the file as a version of the entry, which leaves this place."""
    upload = intent(3, generation=7), new_file(3, (ZONE, "A"))
    items = [(intent(2, place=True), old_file(2, A, B)), upload]
    assert awaited(*items) == {2: frozenset(), 3: {2}}


@pytest.mark.parametrize("stays", ["refused", "held up", "in use"])
@pytest.mark.parametrize("unites", [False, True])
def test_no_upload_waits_for_another_spelling_that_may_stay_for_ever(
    stays: str, *, unites: bool
) -> None:
    """The user or a program must act first, and most services treat the names as different.

    The entry waits itself for a folder that the service refuses, or for a file that is read.
    """
    upload = intent(3, generation=7), new_file(3, (ZONE, "A"))
    waiting = intent(2, place=True), old_file(2, A, (4, "a"))
    items = [waiting, upload]
    if stays == "refused":
        items[0] = replace(waiting[0], cause=Cause.REFUSED), waiting[1]
    elif stays == "held up":
        folder = InodeView(4, folder=True, new=True, place=B, origin=None)
        items.append((intent(4, place=True, cause=Cause.REFUSED), folder))
    else:
        folder = InodeView(2, folder=True, new=False, place=A, origin=A)
        read = replace(old_file(5, (2, "read")), inside=(2, ZONE))
        items = [(intent(2, gone=True), folder), (intent(5, gone=True, held=True), read), upload]
    assert awaited(*items, unites=unites)[3] == ({2} if unites else frozenset())


@pytest.mark.parametrize("number", [2, 1000])
def test_an_entry_that_was_renamed_and_renamed_back_waits_for_nothing(number: int) -> None:
    """The place on the service is its own; large numbers are not the same object twice."""
    view = old_file(int(str(number)), A)
    (step,) = fold([intent(number, place=True)], {number: view})
    assert (step.action, step.ino, step.after) == (Action.MOVE, number, frozenset())


@pytest.mark.parametrize("inside", [(2, ZONE), (9, 2, ZONE)], ids=["in it", "in a subfolder"])
@pytest.mark.parametrize("change", [{"generation": 7}, {"place": True}, {"gone": True}])
def test_a_removed_folder_is_deleted_after_the_changes_of_its_entries(
    change: dict[str, Any], inside: tuple[int, ...]
) -> None:
    """A version of a file in a deleted folder would be lost, and so would a file moved out of it.

    A folder that is removed as a whole takes along its subfolders, which have no step.
    """
    folder = InodeView(2, folder=True, new=False, place=(ZONE, "f"), origin=(ZONE, "f"))
    file = replace(old_file(3, (inside[0], "a"), B), inside=inside)
    steps = fold([intent(2, gone=True), intent(3, **change)], {2: folder, 3: file})
    assert {step.ino: step.after for step in steps} == {2: {3}, 3: frozenset()}


def test_a_folder_that_is_inside_itself_by_its_last_known_places_is_deleted() -> None:
    """The service knows the true places, so the deletion does not wait for itself."""
    folder = InodeView(2, folder=True, new=False, place=A, origin=(3, "a"), inside=(3, 2))
    (step,) = fold([intent(2, gone=True)], {2: folder})
    assert (step.action, step.after) == (Action.DELETE, frozenset())


def test_two_names_exchanged_take_a_third_one_on_the_way() -> None:
    """One of the files gets a temporary name, so that the service never has two with one name."""
    steps = folded(
        (intent(2, place=True), old_file(2, A, B)), (intent(3, place=True), old_file(3, B, A))
    )
    assert [action for action, _, _ in steps].count(Action.ASIDE) == 1


# ---- any change at all ----


def seen(items: list[tuple[Intent, InodeView]]) -> dict[int, InodeView]:
    """Return the views, each with its folders on the service."""
    origins = {view.ino: view.origin for _, view in items if view.origin is not None}

    def inside(ino: int) -> tuple[int, ...]:
        return (origins[ino][0], *inside(origins[ino][0])) if ino in origins else ()

    return {view.ino: replace(view, inside=inside(view.ino)) for _, view in items}


@st.composite
def worlds(draw: st.DrawFn) -> list[tuple[Intent, InodeView]]:
    """Generate folders and files, each anywhere before and anywhere (or nowhere) after."""
    names = st.sampled_from("abc")
    folders = draw(st.lists(st.integers(10, 13), unique=True, max_size=3))
    items: list[tuple[Intent, InodeView]] = []
    origins: set[Place] = set()
    places: set[Place] = set()
    kept: list[int] = []
    old: list[int] = []
    for number, ino in enumerate(folders + list(range(20, 20 + draw(st.integers(0, 6))))):
        folder = number < len(folders)
        origin = (draw(st.sampled_from([ZONE, *old])), draw(names)) if draw(st.booleans()) else None
        if origin in origins:
            origin = None
        place = (draw(st.sampled_from([ZONE, *kept])), draw(names))
        gone = draw(st.booleans()) and origin is not None
        if not gone and place in places:
            if origin is None:
                continue
            gone = True
        if origin is not None:
            origins.add(origin)
        if not gone:
            places.add(place)
        generation = 0 if folder or gone else draw(st.integers(0, 9))
        if origin is None and not folder:
            generation = generation or 1
        moved = not gone and (place != origin) and (origin is not None or folder)
        if folder:
            if origin is not None:
                old.append(ino)
            if not gone:
                kept.append(ino)
        subject = InodeView(ino, folder, origin is None, place, origin)
        items.append((intent(ino, generation=generation, place=moved, gone=gone), subject))
    # An unchanged child of a folder that goes would have kept the folder from being removed.
    return [
        (replace_place(each), subject) if subject.origin == subject.place else (each, subject)
        for each, subject in items
    ]


def replace_place(each: Intent) -> Intent:
    return Intent(each.ino, each.seq, generation=each.generation, gone=each.gone)
