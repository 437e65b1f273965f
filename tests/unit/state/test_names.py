"""Local names: a folder can show any name of the service."""

from hypothesis import given
from hypothesis import strategies as st

from zonedrive.state.names import (
    MAX_BYTES,
    is_respelled,
    local_name,
    may_show,
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
    assert is_safe(second)
    assert second != first
    assert local_name(name, "2", {first}) == second


@given(st.text(max_size=300), st.text(max_size=20))
def test_who_has_a_name_is_found_however_it_is_shown(name: str, entry_id: str) -> None:
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
    """Such a zone gets a similar name; below the top level the name is unchanged."""
    for name in (".Trash", ".Trash-1000", ".git", ".hidden", ".xdg-volume-info", "...", "autorun",
                 "AutoRun.inf", "autorun.sh", "lost+found", "node_modules", "CVS",
                 "-rf", "~root"):  # fmt: skip
        shown = zone_name(name)
        assert shown != name
        assert shown[1:] == name[1:]
        assert shown[0] == chr(ord(name[0]) + 0xFEE0)
    for name in ("Trash", "a-b", "a~", "a.git", "autorunner", "Project X", "\u200b.git", "Zone 1"):
        assert zone_name(name) == name
