"""Local names: a folder can show any name of the service."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonedrive.state.names import (
    MAX_BYTES,
    folded,
    is_respelled,
    local_name,
    may_show,
    name_of_original,
    safe,
    shows,
    typed,
    with_mark,
    zone_name,
)

STEERING = [*map(chr, (*range(0x20), *range(0x7F, 0xA0))), *map(chr, range(0x202A, 0x202F))]
STEERING += map(chr, range(0x2066, 0x206A))


def is_safe(name: str) -> bool:
    data = name.encode()
    return (
        0 < len(data) <= MAX_BYTES
        and name not in (".", "..")
        and "/" not in name
        and not set(STEERING) & set(name)
    )


@given(st.text(max_size=400), st.text(max_size=20))
def test_any_name_becomes_one_that_a_folder_can_hold(name: str, entry_id: str) -> None:
    """No name from the service can leave its folder, break a tool or be too long."""
    shown = local_name(name, entry_id, ())
    assert is_safe(shown)
    assert shows(shown, name, entry_id)


@given(st.text(max_size=300))
def test_two_entries_that_look_alike_are_both_shown(name: str) -> None:
    """Two files with the same name in one folder have two different, permanent local names."""
    first = local_name(name, "1", ())
    second = local_name(name, "2", {first})
    assert shows(first, name, None)
    assert shows(second, name, None)
    assert is_safe(second)
    assert second != first
    assert local_name(name, "2", {first}) == second


@given(st.text(max_size=300), st.text(max_size=20))
def test_an_entry_is_found_by_its_local_name(name: str, entry_id: str) -> None:
    """An entry is found by its local name without comparing all entries of the folder."""
    first = local_name(name, "1", ())
    fits = may_show(name)
    assert fits(first)
    assert fits(local_name(name, entry_id, {first}))
    assert not fits("another name altogether" + first)


def test_ordinary_names_are_shown_as_they_are() -> None:
    """Umlauts, spaces, leading dots and percent signs are unchanged."""
    for name in ("Bericht März.docx", ".hidden", "50 % off.txt", "a%2Fb", "…", "-rf"):
        assert local_name(name, "1", ()) == name


def test_an_extension_survives_a_mark() -> None:
    """The extension is kept, so that the document opens with the same program."""
    assert with_mark("report.final.docx", "~1") == "report.final~1.docx"
    assert with_mark("ä" * 300 + ".pdf", "~1").endswith("~1.pdf")
    assert with_mark(".profile", "~1") == ".profile~1"
    assert with_mark("a." + "x" * 20, "~1") == "a~1." + "x" * 20
    assert with_mark("a." + "x" * 21, "~1") == "a." + "x" * 21 + "~1"


def test_the_marks_of_an_entry_never_change() -> None:
    """Programs and backups know a file by its name, which is the same in later versions."""
    digest = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    taken = {"a.txt"}
    for digits in (8, 16, 64):
        name = local_name("a.txt", "1", taken)
        assert name == f"a~{digest[:digits]}.txt"
        taken.add(name)


@given(st.text(max_size=300), st.integers(1, 5))
def test_an_entry_is_shown_although_its_marks_are_taken(name: str, number: int) -> None:
    """A coworker who gives the names with its marks to other files does not hide an entry."""
    taken = set[str]()
    for _ in range(3 + number):
        taken.add(local_name(name, "1", taken))
    shown = local_name(name, "1", taken)
    assert shown not in taken
    assert is_safe(shown)
    assert may_show(name)(shown)
    assert shows(shown, name, "1")
    assert shows(shown, name, None)
    assert not shows(shown, name, "2")


def test_an_entry_with_a_long_name_is_found_by_the_beginning_of_its_name() -> None:
    """The mark replaces the end of such a name."""
    for name in ("ä" * 300 + ".pdf", "n" * 256):
        shown = local_name(name, "1", ())
        assert not shown.startswith(name.partition(".")[0])
        assert may_show(name)(shown)


def test_a_long_name_of_the_service_is_compared_at_once() -> None:
    """A hostile name, whose accents take minutes to sort, does not block the loop."""
    before, hostile = time.process_time(), "a" + "\u0315" * 500_000 + "\u0300" * 500_000
    assert folded(hostile) == folded(hostile)
    assert folded(hostile) != folded("a")
    assert time.process_time() < before + 10


def test_a_name_with_a_similar_beginning_needs_no_comparison() -> None:
    """The quick test compares as many characters as a mark leaves of the longest name."""
    assert not may_show("report of the first quarter.pdf")("report of the first year~1.pdf")


@given(st.text(st.sampled_from([*STEERING, "a", ".", "\u200d", "\U0001f469"]), max_size=40))
def test_programs_and_the_service_mean_the_same_name(name: str) -> None:
    """A file created under a name looks like the service's entry of that name."""
    shown = typed(name)
    assert typed(shown) == shown
    assert name in ("", ".", "..") or safe(name) == shown
    assert (shown == name) or is_respelled(shown)


def test_names_that_differ_stay_different() -> None:
    """Each control character has its own replacement, so that no file replaces another."""
    assert len({typed(f"a{char}b") for char in STEERING}) == len(STEERING)


def test_marks_that_writing_needs_stay() -> None:
    """Joiners, direction marks without an override, variation selectors and accents are kept."""
    for name in ("a\u200cb", "a\u200db", "\u200ea\u200f", "\u061c", "\u2764\ufe0f", "e\u0301"):
        assert safe(name) == typed(name) == name


def test_no_zone_has_a_name_that_is_special_at_the_top() -> None:
    """A zone with a special name gets a similar one; below the top level the name is unchanged."""
    for name in (".Trash", ".Trash-1000", ".git", ".hidden", ".xdg-volume-info", "...", "autorun",
                 "AutoRun.inf", "autorun.sh", "lost+found", "node_modules", "CVS",
                 "-rf", "~root"):  # fmt: skip
        shown = zone_name(name)
        assert shown != name
        assert shown[1:] == name[1:]
        assert shown[0] == chr(ord(name[0]) + 0xFEE0)
    for name in ("Trash", "a-b", "a~", "a.git", "autorunner", "Project X", "\u200b.git", "Zone 1"):
        assert zone_name(name) == name


@pytest.mark.parametrize(
    ("local", "name"),
    [("a", "b"), ("b", "a"), ("a", "a\x1bb"), ("z", "a\x1bb"), ("a~0", "a"), ("a\u241bb", "ab")],
)
def test_another_name_is_no_shown_form(local: str, name: str) -> None:
    """A local rename to such a name is sent to the service."""
    assert not shows(local, name, "1")
    assert not shows(local, name, None)


@pytest.mark.parametrize(
    ("local", "name"),
    [("a\u241bb", "a\x80b"), ("\u241b\xa0", "\x9f\xa0"), ("\u241b\u241b", "\x80\x9f")],
)
def test_a_name_that_an_earlier_version_has_shown(local: str, name: str) -> None:
    """Version 0.1.0 showed one symbol for all controls from U+0080 to U+009F."""
    assert shows(local, name, "1")


@pytest.mark.parametrize(
    ("char", "shown"),
    [
        ("\0", "\u2400"), ("\t", "\u2409"), ("\x1f", "\u241f"), ("\x7f", "\u2421"),
        ("\x80", "\u241b@"), ("\x85", "\u241bE"), ("\x9f", "\u241b_"), ("/", "\uff0f"),
        ("\u202a", "\u2039LRE\u203a"), ("\u202b", "\u2039RLE\u203a"),
        ("\u202c", "\u2039PDF\u203a"), ("\u202d", "\u2039LRO\u203a"),
        ("\u202e", "\u2039RLO\u203a"), ("\u2066", "\u2039LRI\u203a"),
        ("\u2067", "\u2039RLI\u203a"), ("\u2068", "\u2039FSI\u203a"),
        ("\u2069", "\u2039PDI\u203a"), ("\ud800", "\ufffd"), ("\udfff", "\ufffd"),
        (" ", " "), ("~", "~"), ("\xa0", "\xa0"), ("\u202f", "\u202f"), ("\u2065", "\u2065"),
        ("\u206a", "\u206a"), ("\ue000", "\ue000"), ("\ud7ff", "\ud7ff"),
    ],
)  # fmt: skip
def test_characters_that_steer_programs_are_shown_as_symbols(char: str, shown: str) -> None:
    """Names of earlier versions stay valid: this table never changes."""
    assert safe(f"a{char}b") == f"a{shown}b"


@pytest.mark.parametrize("user", ["alice@acme.example", "Ann (HR) Lee", "a(b)@c"])
def test_a_conflict_copy_tells_the_name_of_its_original(user: str) -> None:
    """Also if the name of the user has parentheses."""
    copy = f"salaries (conflict, {user} on host, 2026-11-21 14-03-07) 2.xlsx"
    assert name_of_original(copy) == "salaries.xlsx"
