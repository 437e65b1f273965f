"""The ledger of the two machines finds the errors that it is meant to find."""

import pytest

from tests.model.claims import NOT_READ, Claims, History, head


def save(claims: Claims, who: str, path: str, saw: str = NOT_READ) -> str:
    """Record a confirmed save."""
    token, line = claims.begin(who, saw)
    assert head(b"something before\n" + line) == token
    claims.saved(who, path, token)
    return token


def test_confirmed_saves_must_exist_once() -> None:
    """Missing and duplicate saves are found, but not superseded ones or conflict copies."""
    claims = Claims()
    first, second, third = (save(claims, "A", path) for path in ("a", "a", "b"))
    claims.sent(claims.here("A"))
    assert claims.due == {second, third}
    there = [History("id of a", "a", (None, second)), History("id of x", "x", (third,))]
    assert claims.findings(there) == []
    assert claims.findings(there[:1]) == [f"{third} is not on the service"]
    doubled = [*there, History("id of c", "c", (third, first))]
    assert claims.findings(doubled) == [f"{third} is on the service 2 times: ['x', 'c']"]
    claims.took("id of x", "x")
    assert claims.findings(doubled) == []
    claims.moved.clear()
    claims.renamed("A", "b", "c")
    assert claims.findings(doubled) == []


def test_overwritten_versions_are_found() -> None:
    """A save is based on the version that was read, also through saves that were never sent."""
    claims = Claims()
    theirs = save(claims, "B", "a")
    blind = save(claims, "A", "a", "0")
    assert claims.findings([History("id of a", "a", (theirs, blind))]) == [
        f"a: {blind} (read 0) overwrote {theirs} unseen"
    ]
    for path, is_found in (("b", True), ("a", False)):
        claims.took("id of a", path)
        assert bool(claims.findings([History("id of a", "a", (theirs, blind))])) is is_found
    unsent = save(claims, "A", "b", theirs)
    later = save(claims, "A", "b", unsent)
    assert claims.findings([History("id of b", "b", (theirs, later))]) == []


@pytest.mark.parametrize(
    ("checked_s", "is_found"), [(None, False), (11.0, True), (10.0, False), (9.0, False)]
)
def test_a_version_that_arrives_after_the_check_is_not_found(
    checked_s: float | None, is_found: bool
) -> None:
    """A machine cannot know of what was saved since it asked for the version to be replaced."""
    claims = Claims()
    theirs, blind = save(claims, "B", "a"), save(claims, "A", "a", "0")
    there = History("id of a", "a", (theirs, blind), (10.0, 12.0), (None, checked_s))
    assert bool(claims.findings([there])) is is_found


def test_a_renamed_file_is_no_reason_to_overwrite_a_version() -> None:
    """Only a file that was renamed over another one need not have read that."""
    claims = Claims()
    base = save(claims, "B", "a")
    claims.sent({"a": base})
    edit, theirs = save(claims, "A", "a", base), save(claims, "B", "a")
    claims.renamed("A", "a", "b")
    there = [History("id of a", "b", (base, theirs, edit))]
    assert claims.findings(there) == [f"b: {edit} (read {base}) overwrote {theirs} unseen"]
    claims.renamed("A", "b", "c", replaced=7)
    assert claims.findings(there) == []


def test_a_save_continues_the_file_that_was_renamed_over_the_shown_version() -> None:
    """The version that the rename replaced need not be read; another version must be."""
    claims = Claims()
    base = save(claims, "A", "a")
    theirs, edit = save(claims, "B", "a"), save(claims, "A", "a", base)
    claims.replaced_ns[base] = 5  # the same content, renamed over `theirs`
    for shown_ns, is_found in ((5, False), (6, True)):
        there = History("a", "a", (base, theirs, edit), modified_ns=(1, shown_ns, 9))
        assert bool(claims.findings([there])) is is_found
