"""Names: whatever the service calls an entry, a folder can show it."""

from hypothesis import given
from hypothesis import strategies as st

from zonedrive.tree.names import MAX_BYTES, local_name, may_show, shows, with_mark


def is_safe(name: str) -> bool:
    data = name.encode()
    return (
        0 < len(data) <= MAX_BYTES
        and name not in (".", "..")
        and not any(byte < 0x20 or byte in (0x2F, 0x7F) for byte in data)
    )


@given(st.text(max_size=400), st.text(max_size=20))
def test_any_name_becomes_one_that_a_folder_can_hold(name: str, entry_id: str) -> None:
    """No name from the service can leave its folder, break a tool or be too long."""
    shown = local_name(name, entry_id, ())
    assert is_safe(shown)
    assert shows(shown, name, entry_id)


@given(st.text(max_size=300))
def test_two_entries_that_look_alike_are_both_shown(name: str) -> None:
    """Two files of one name in one folder are two files here, under names that stay."""
    first = local_name(name, "1", ())
    second = local_name(name, "2", {first})
    assert is_safe(second)
    assert second != first
    assert local_name(name, "2", {first}) == second


@given(st.text(max_size=300), st.text(max_size=20))
def test_who_has_a_name_is_found_however_it_is_shown(name: str, entry_id: str) -> None:
    """An entry is looked for among few of its folder, and never missed."""
    first = local_name(name, "1", ())
    fits = may_show(name)
    assert fits(first)
    assert fits(local_name(name, entry_id, {first}))
    assert not fits("another name altogether" + first)


def test_ordinary_names_are_shown_as_they_are() -> None:
    """Umlauts, spaces, leading dots and percent signs need no change."""
    for name in ("Bericht März.docx", ".hidden", "50 % off.txt", "a%2Fb", "…", "-rf"):
        assert local_name(name, "1", ()) == name


def test_an_extension_survives_a_mark() -> None:
    """A marked document still opens with its program."""
    assert with_mark("report.final.docx", "~1") == "report.final~1.docx"
    assert with_mark("ä" * 300 + ".pdf", "~1").endswith("~1.pdf")
    assert with_mark(".profile", "~1") == ".profile~1"
