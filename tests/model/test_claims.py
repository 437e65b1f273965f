"""The ledger of the two machines finds the errors that it is meant to find."""

from tests.model.claims import NOT_READ, Claims, History, head


def save(claims: Claims, who: str, path: str, saw: str = NOT_READ) -> str:
    """Record a confirmed save."""
    token, line = claims.begin(who, saw)
    assert head(b"something before\n" + line) == token
    claims.saved(who, path, token)
    return token


def test_confirmed_saves_must_exist_once() -> None:
    """Missing and duplicate saves are found, but not superseded ones or those in a conflict
    copy."""
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
