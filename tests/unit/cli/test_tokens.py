"""Table of the tokens."""

import pytest

from zonedrive.cli import tokens


@pytest.mark.parametrize(
    ("name", "record", "row"),
    [
        (None, {"id": "1", "name": "robot"}, {"name": "robot", "id": "1"}),
        (
            "robot",
            {"id": "1", "tokenName": "robot", "name": "by bob", "scope": "SCIM"},
            {"name": "robot", "id": "1", "name (service)": "by bob", "scope": "SCIM"},
        ),
    ],
)
def test_fields_of_the_deployment_are_shown(
    name: str | None, record: dict[str, str], row: dict[str, str]
) -> None:
    """Also a field that is named like a column."""
    shown = {"id": "1", "name": name, "expires": None, "expired": None, "this_logon": False}
    assert tokens.row_of({**shown, "record": record}) == row
