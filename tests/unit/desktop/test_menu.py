"""Menus and emblems."""

from pathlib import Path

import pytest

from zonedrive.desktop import menu
from zonedrive.desktop.actions import ACTIONS
from zonedrive.desktop.client import Entry

EMBLEMS = Path(__file__).parents[3] / "packaging" / "desktop" / "emblems"
EVERYTHING = ("versions", "zone_log", "member_link", "share")
FILE = Entry("synced", False, False)
FOLDER = Entry("synced", True, False)


def actions(*entries: Entry, can: tuple[str, ...] = EVERYTHING) -> list[str]:
    return [item.action for item in menu.items(entries, can, len(entries) == 1)]


def test_a_synced_file() -> None:
    """Everything that the profile can do is offered."""
    assert actions(FILE) == ["keep", "versions", "log", "link", "share"]
    assert actions(FILE, can=()) == ["keep"]
    assert actions(FILE, can=("versions",)) == ["keep", "versions", "log"]
    assert actions(FOLDER, can=("versions",)) == ["keep"]


def test_a_folder_has_no_versions() -> None:
    assert actions(FOLDER) == ["keep", "log", "link", "share"]


def test_several_entries() -> None:
    """The menu has only items that fit all selected entries."""
    kept = FILE._replace(kept=True)
    assert actions(FILE, kept) == ["keep", "stop-keeping"]
    assert actions(kept, kept) == ["stop-keeping"]


def test_a_kept_file_has_its_emblem_when_the_content_is_here() -> None:
    """Until then the emblem says synced; the menu offers to stop keeping it."""
    kept = FILE._replace(kept=True)
    assert menu.emblem(kept) == "emblem-zonedrive-kept"
    assert menu.emblem(kept._replace(missing=True)) == "emblem-zonedrive-synced"
    assert "stop-keeping" in actions(kept._replace(missing=True))


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_waiting_files_can_be_sent(state: str) -> None:
    assert "send" in actions(FILE._replace(state=state))


def test_a_conflict_comes_first() -> None:
    assert actions(FILE._replace(state="conflict"))[0] == "conflict"


def test_a_local_file_has_no_menu() -> None:
    assert actions(FILE._replace(state="local")) == []


def test_no_menu_without_states() -> None:
    assert actions() == []


def test_each_item_has_an_action() -> None:
    """Every item of every menu can be done."""
    states = [FILE._replace(state=each) for each in (*menu.MARKED, "synced", "local")]
    every = {action for each in states for action in actions(each)}
    every |= set(actions(FILE._replace(kept=True)))
    every |= {item.action for paused in (False, True) for item in menu.top_items(paused)}
    every.add("overview")  # in the side bar
    assert every == set(ACTIONS)


def test_each_emblem_is_a_picture_of_the_package() -> None:
    """Every state has a picture, and no other pictures exist."""
    states = [FILE._replace(state=each) for each in (*menu.MARKED, "synced", "local")]
    names = {menu.emblem(each) for each in (*states, FILE._replace(kept=True))} - {""}
    assert names == {path.stem for path in EMBLEMS.glob("*.svg")}


def test_a_failure_is_shown_on_kept_files() -> None:
    assert menu.emblem(FILE._replace(state="failed", kept=True)) == "emblem-zonedrive-failed"
