"""Random programs, with an outbox that works or is interrupted at any moment."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sync.desk import Desk
from tests.unit.sync.programs import OPERATIONS, Play
from tests.unit.sync.sending import ZONE

NUMBERS = st.integers(0, 255)
CALLS = st.tuples(st.sampled_from(OPERATIONS), NUMBERS, NUMBERS)


@settings(max_examples=250, deadline=None)
@given(st.lists(CALLS, max_size=120))
def test_every_save_is_one_version(calls: list[tuple[str, int, int]]) -> None:
    """With any other operations and any lost replies, a save is one version, and both sides end up
    equal.

    Files are created, written, renamed, exchanged and removed, the outbox sends at any time, and
    answers are late or lost. In between, each way to save is done once. In the end the service
    has exactly the local names and contents, and each saved file has one new version under the
    same id.
    """
    play = Play()
    for call in calls:
        play.do(*call)
    play.end()


def test_a_folder_moved_into_its_former_subfolder() -> None:
    """The move waits until the folder between the two has left the outer one."""
    desk = Desk()
    outer = desk.mkdir(ZONE, "outer")
    middle = desk.mkdir(outer.ino, "middle")
    inner = desk.mkdir(middle.ino, "inner")
    for node in (outer, middle, inner):
        (step,) = desk.steps()
        assert step.ino == node.ino
        desk.start(step)
        desk.answer(node.ino, lost=False)
    desk.rename(middle, ZONE, "middle")
    desk.rename(outer, inner.ino, "outer")
    for node in (middle, outer):
        (step,) = desk.steps()
        assert step.ino == node.ino
        desk.start(step)
        desk.answer(node.ino, lost=False)
    assert set(desk.service.tree()) == {"middle", "middle/inner", "middle/inner/outer"}


@settings(max_examples=50, deadline=None)
@given(st.lists(NUMBERS, max_size=60))
def test_simultaneous_saves(turns: list[int]) -> None:
    """Many programs save at the same time, and the outbox works after every single step."""
    play = Play()
    for turn in turns:
        play.do("save", turn, 0)
        play.do("outbox", turn, 0)
        play.do("answer" if turn % 3 else "lose", turn, 0)
    play.end()
