"""Folders that are prefetched for a program, and their number, without kernel and service."""

import time
from collections.abc import Iterator

import pytest

from tests.unit.state.disk import zone_of
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_walks import AT_ONCE_S, GONE_S, LEVELS, MOST, SOON_S, DirectoryWalks


class World:
    """Tree of folders, with a record of prefetch requests."""

    def __init__(self, tree: Inodes, zone: Inode, clock: list[float]) -> None:
        self.tree, self.zone, self.clock = tree, zone, clock
        self.room = 1000
        self.listed: set[int] = {zone.ino}
        self.asked: list[str] = []
        self.lands = True
        self.walks = DirectoryWalks(
            tree,
            wanted=lambda folder: folder.ino not in self.listed,
            ask=self._ask,
            spare=lambda: self.room,
        )

    def make(self, parent: Inode, *names: str) -> list[Inode]:
        """Create folders that the service has."""
        made = []
        with self.tree.transaction():
            for name in names:
                where = f"{parent.remote_id}/{name}"
                made.append(self.tree.add(parent.ino, name, Kind.FOLDER, zone="z", remote_id=where))
        return made

    def visit(self, folder: Inode) -> None:
        """List a folder as a program."""
        self.walks.reading(folder.ino)
        known = folder.ino in self.listed
        if known and not self.walks.expects(folder.ino):
            return
        self.walks.used(folder, listed=known)
        self.listed.add(folder.ino)
        self.walks.landed(folder.ino)
        self.land()

    def land(self) -> None:
        """Complete all requested listings."""
        for ino in self.coming():
            self.listed.add(ino)
            self.walks.landed(ino)

    def coming(self) -> Iterator[int]:
        """Yield the requested folders that are not listed yet."""
        while waiting := [ino for ino in self.asked_inos if ino not in self.listed]:
            yield waiting[0]

    @property
    def asked_inos(self) -> list[int]:
        """Return the inode numbers of all requested folders."""
        return [int(each.partition(" ")[0]) for each in self.asked]

    @property
    def names(self) -> list[str]:
        """Return the names of all requested folders, in order."""
        return [each.partition(" ")[2] for each in self.asked]

    def _ask(self, folder: Inode) -> None:
        self.asked.append(f"{folder.ino} {folder.name}")


@pytest.fixture
def world(state: LocalState, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return an empty zone, and a clock that stands still."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return World(state.inodes, zone_of(state), clock)


def names(prefix: str, count: int) -> list[str]:
    """Return names in order."""
    return [f"{prefix}{number:05}" for number in range(count)]


def test_the_second_sibling_begins_a_walk(world: World) -> None:
    """After two folders of one parent the following ones are prefetched, in their order."""
    folders = world.make(world.zone, *names("f", 10))
    world.visit(folders[2])
    assert world.names == []
    world.visit(folders[3])
    assert world.names == ["f00004", "f00005"]
    world.visit(folders[4])
    assert world.names == [f"f0000{number}" for number in (4, 5, 6, 7, 8)]


def test_a_prefetched_folder_is_checked_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is checked when it is listed, and not again when the program visits it."""
    looked: list[int] = []
    folders_in = world.tree.rows.folders_in

    def note(parent: int) -> dict[int, str]:
        looked.append(parent)
        return folders_in(parent)

    monkeypatch.setattr(world.tree.rows, "folders_in", note)
    folders = world.make(world.zone, *names("f", 20))
    (inside,) = world.make(folders[0], "inside")
    for folder in (world.zone, folders[0], inside, *folders[1:]):
        world.visit(folder)
    assert len(world.names) == 19
    assert all(looked.count(folder.ino) == 1 for folder in folders[3:])


def test_a_folder_was_read_lately_for_a_moment(world: World) -> None:
    """The time starts again when the listing of the folder arrives."""
    ino = world.zone.ino
    assert not world.walks.was_read_lately(ino)
    world.walks.reading(ino)
    assert world.walks.was_read_lately(ino)
    world.clock[0] += AT_ONCE_S
    assert not world.walks.was_read_lately(ino)
    world.walks.landed(ino)
    assert world.walks.was_read_lately(ino)
    assert not world.walks.was_read_lately(900)


def test_two_siblings_long_after_each_other_are_no_walk(world: World) -> None:
    """A person may look into one folder and later into another one."""
    folders = world.make(world.zone, *names("f", 10))
    world.visit(folders[0])
    world.clock[0] += SOON_S + 1
    world.visit(folders[1])
    assert world.names == []


@pytest.mark.parametrize(("child", "walks"), [(0, True), (5, False)])
def test_listing_a_folder_and_its_first_child_may_be_a_walk(
    world: World, child: int, walks: bool
) -> None:
    """`find` begins this way; entering any other child does not begin a walk."""
    folders = world.make(world.zone, *names("f", 10))
    (inside,) = world.make(folders[child], "inside")
    world.walks.reading(world.zone.ino)
    world.visit(folders[child])
    assert world.names == []
    world.visit(inside)
    assert world.names == (["f00001", "f00002"] if walks else [])


def test_repeated_visits_are_no_walk(world: World) -> None:
    """Repeated visits of the same folder do not begin a walk."""
    folders = world.make(world.zone, *names("f", 10))
    world.walks.reading(world.zone.ino)
    for _ in range(20):
        world.walks.reading(folders[0].ino)
        world.walks.used(folders[0], listed=False)
    assert world.names == []


def test_a_tree_is_listed_as_it_is_walked(world: World) -> None:
    """The first folder is listed with everything below it before the second; each folder once."""
    order: list[Inode] = []
    for top in world.make(world.zone, *names("t", 12)):
        order.append(top)
        for sub in world.make(top, *names(top.name + "s", 5)):
            order += [sub, *world.make(sub, "x", "y")]
    world.walks.reading(world.zone.ino)
    came_late = []
    for folder in order:
        if folder.ino not in world.listed:
            came_late.append(folder.name)
        world.visit(folder)
    assert len(came_late) <= 4
    assert len(world.asked_inos) == len(set(world.asked_inos))
    assert {*world.asked_inos} <= {folder.ino for folder in order}


def test_a_walk_over_siblings(world: World) -> None:
    """For `ls */` the subfolders are not prefetched."""
    tops = world.make(world.zone, *names("t", 40))
    for top in tops:
        world.make(top, "inside")
    for top in tops[:20]:
        world.visit(top)
    assert "inside" not in world.names
    assert "t00025" in world.names


def test_no_more_than_the_window_is_ahead(world: World) -> None:
    """Ten thousand folders are not listed for a program that visits some of them."""
    folders = world.make(world.zone, *names("f", 3000))
    for number, folder in enumerate(folders[:200]):
        world.visit(folder)
        assert len(world.asked) <= number + MOST


def test_prefetching_waits_for_a_free_slot(world: World) -> None:
    """Prefetching continues as soon as a slot is free."""
    folders = world.make(world.zone, *names("f", 10))
    world.room = 0
    world.visit(folders[0])
    world.visit(folders[1])
    assert world.names == []
    world.room = 1
    world.walks.go_on()
    assert world.names == ["f00002", "f00003"]


def test_a_walk_that_stops_is_forgotten(world: World) -> None:
    """Listings that have completed since cause no further prefetching."""
    folders = world.make(world.zone, *names("f", 10))
    world.room = 0
    world.visit(folders[0])
    world.visit(folders[1])
    world.clock[0] += GONE_S
    world.room = 1000
    world.walks.landed(folders[1].ino)
    assert world.names == []


def test_it_goes_on_further_up(world: World) -> None:
    """A program that finishes a folder and visits the next sibling continues its walk."""
    first, second, _ = world.make(world.zone, "a", "b", "c")
    inside = world.make(first, *names("f", 4))
    world.visit(inside[0])
    for folder in inside[1:]:
        world.visit(folder)
    world.visit(second)
    assert "c" in world.names


def test_going_on_further_up_keeps_the_number_of_folders_ahead(world: World) -> None:
    """The program goes on at its speed, so as many folders are prefetched as before."""
    tops = world.make(world.zone, *names("t", 40))
    for folder in world.make(tops[0], *names("s", 5)):
        world.visit(folder)
    world.visit(tops[1])
    assert world.names[3:] == [top.name for top in tops[2:18]]


def test_accesses_to_parent_folders_are_no_walk(world: World) -> None:
    """Folders above are used repeatedly: their siblings are not prefetched."""
    first, *_ = world.make(world.zone, "a", "b", "c")
    inside = world.make(first, *names("f", 6))
    world.visit(inside[0])
    world.visit(inside[1])
    world.walks.used(first, listed=True)
    world.visit(inside[2])
    assert not {"b", "c"} & set(world.names)


def test_a_second_thread_is_served_as_well(world: World) -> None:
    """If two threads share a walk, the next folders of both are prefetched."""
    folders = world.make(world.zone, *names("f", 100))
    for one, other in zip(folders[:20], folders[50:70], strict=True):
        world.visit(one)
        world.visit(other)
    assert {"f00010", "f00060"} <= set(world.names)


@pytest.mark.parametrize("first", [0, 4])
def test_a_walk_in_order_of_names(world: World, first: int) -> None:
    """If the service lists in another order, two folders are enough to recognise the order."""
    shuffled = [f"f{number * 7 % 30:02}" for number in range(30)]
    folders = {folder.name: folder for folder in world.make(world.zone, *shuffled)}
    late = []
    for name in sorted(folders)[first:]:
        if folders[name].ino not in world.listed:
            late.append(name)
        world.visit(folders[name])
    assert late == [f"f{first:02}", f"f{first + 1:02}"]
    assert len(world.asked) == len(set(world.asked)) == 28 - first


def test_the_root_and_a_zone_are_no_siblings(world: World) -> None:
    """Every program that opens a zone has visited the root before."""
    world.make(world.zone, *names("f", 3))
    with world.tree.transaction():
        world.tree.add(ROOT, "Other", Kind.ZONE, zone="o", remote_id="other")
    world.listed.remove(world.zone.ino)
    world.visit(world.tree.get(ROOT))
    world.visit(world.zone)
    assert world.names == []


def test_a_program_that_leaves_out_folders_gets_fewer_ahead(world: World) -> None:
    """The folders that it has passed are not expected any more, and those behind them still are."""
    folders = world.make(world.zone, *names("f", 90))
    for folder in folders[:6]:
        world.visit(folder)
    ahead = [number for number in range(90) if world.walks.expects(folders[number].ino)]
    assert ahead == list(range(6, 38))
    before = len(world.asked)
    world.visit(folders[20])
    assert [number for number in range(90) if world.walks.expects(folders[number].ino)] == list(
        range(21, 38)
    )
    for folder in folders[21:38]:
        world.visit(folder)
    assert before < len(world.asked) < 90


def test_a_program_that_leaves_a_tree_is_not_followed_into_it(world: World) -> None:
    """After it has passed folders inside of another one, only its siblings are prefetched."""
    tops = world.make(world.zone, *names("t", 30))
    for top in tops:
        world.make(top, *names("s", 3))
    world.walks.reading(world.zone.ino)
    world.visit(tops[0])
    for sub in world.tree.inodes_in(tops[0].ino):
        world.visit(sub)
    assert any(name.startswith("s") for name in world.names)
    for top in tops[1:6]:
        world.visit(top)
    before = len(world.names)
    for top in tops[6:12]:
        world.visit(top)
    assert not [name for name in world.names[before:] if name.startswith("s")]


def test_a_large_tree_is_walked_to_its_end(world: World) -> None:
    """The memory of a walk is limited; each folder is still listed once."""
    order: list[Inode] = []
    for top in world.make(world.zone, *names("t", 400)):
        order += [top, *world.make(top, "x")]
    world.walks.reading(world.zone.ino)
    late = 0
    for folder in order:
        late += folder.ino not in world.listed
        world.visit(folder)
        assert all(len(walk._levels) <= LEVELS for walk in world.walks._walks)
    assert late == 2, "only until the walk is recognised"
    assert len(world.asked_inos) == len(set(world.asked_inos))


def test_a_deep_tree_is_walked_to_its_end(world: World) -> None:
    """Folders that the program has left take no memory, however many folders are above it."""
    order = [world.zone]
    for _ in range(LEVELS + 10):
        order += world.make(order[-1], "d")
    depth = len(order)
    order += world.make(order[-1], *names("f", 2 * LEVELS))
    for folder in order:
        world.visit(folder)
        assert all(len(walk._levels) <= depth + MOST + 1 for walk in world.walks._walks)
    assert len(world.asked_inos) == len(set(world.asked_inos))


def test_a_folder_that_the_program_has_left_is_not_prefetched(world: World) -> None:
    """The rest of its subfolders is of no use any more."""
    tops = world.make(world.zone, *names("t", 8))
    subs = {top.name: world.make(top, *names(f"{top.name}s", 40)) for top in tops}
    world.walks.reading(world.zone.ino)
    for folder in (tops[0], *subs["t00000"][:3], tops[1]):
        world.visit(folder)
    before = len(world.names)
    for folder in subs["t00001"][:12]:
        world.visit(folder)
    assert not [name for name in world.names[before:] if name.startswith("t00000s")]
    assert "t00001s00012" in world.names


def test_a_step_back_does_not_change_the_order(world: World) -> None:
    """Only a step to the next name shows that the program goes by names."""
    shuffled = [f"f{number * 7 % 30:02}" for number in range(30)]
    folders = world.make(world.zone, *shuffled)
    for number in (0, 1, 5):
        world.visit(folders[number])
    asked = world.names
    assert {shuffled[6], shuffled[7]} <= set(asked)
    assert "f06" not in asked


def test_a_folder_that_is_moved_into_its_own_subfolder_is_not_followed_for_ever(
    world: World,
) -> None:
    """The subfolder was moved out of it before, so that both are known as a part of the other."""
    above, later = world.make(world.zone, "above", "later")
    first, below = world.make(above, "first", "second")
    world.room = 0
    for folder in (world.zone, above, first):
        world.visit(folder)
    with world.tree.transaction():
        world.tree.move(below, later.ino, "below")
        world.tree.move(above, below.ino, "above")
    last = world.make(below, "last")[0]
    world.visit(later)
    world.room = 1000
    world.visit(below)
    assert world.asked_inos == [last.ino]
