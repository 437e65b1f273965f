"""Checks of a scope, which restricts a session or token by permissions and limitations.

The checks do not depend on the user. The names and meanings of limitations are specific to the
sandbox. The limitation `zones` allows access only to the listed zones. The limitation `entries`
allows only two actions: reading the listed entries and everything below them, and listing the
zones.
"""

from collections.abc import Mapping
from typing import Any

from zonedrive.sandbox.entries import Entries
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.sessions import ACTIONS, Scope

LIMITATIONS = ("zones", "entries")
DEEPEST = 20  # levels of nested arrays and objects
READING = ("list", "get", "access")
OF_ENTRIES = ("file_id", "folder_id", "entry_id")  # path parameters of endpoints


def check(scope: Scope | None) -> None:
    """Raise ApiError 400 for a scope with an unknown permission or an invalid limitation.

    An unknown limitation is rejected, because the sandbox cannot enforce it. A scope that is nested
    too deeply is rejected, because it could be parsed but not serialized.
    """
    if scope is None:
        return
    if _is_deeper([scope.limitations, scope.extensions], DEEPEST):
        raise bad_argument(f"The scope is nested deeper than {DEEPEST} levels")
    if unknown := scope.unknown_actions():
        raise bad_argument(
            f"The scope has unknown permissions: {', '.join(unknown)}; there are"
            f" {', '.join(ACTIONS)}"
        )
    for name, value in scope.limitations.items():
        if name not in LIMITATIONS:
            raise bad_argument(f"The scope has an unknown limitation, {name}")
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise bad_argument(f"The limitation {name} is an array of identifiers")


def _is_deeper(value: Any, levels: int) -> bool:
    """Return True if lists and dictionaries in `value` are nested more than `levels` deep."""
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(layer)


def zones(scope: Scope | None) -> list[str] | None:
    """Return the ids of the zones that a scope allows; None means all zones."""
    return None if scope is None else scope.limitations.get("zones")


def refuse_beyond(
    scope: Scope, resource: str, action: str, place: Mapping[str, Any], entries: Entries
) -> None:
    """Raise ApiError 403 if the scope forbids a request.

    `resource` and `action` together are the permission that the endpoint needs. `place` contains
    the path parameters of the request.
    """
    refusal = ApiError(403, "NOT_ALLOWED", "The scope of this session or token forbids this")
    if not scope.allows(resource, action):
        raise refusal
    only_zones = zones(scope)
    if only_zones is not None and place.get("zone_id", "") not in ["", *only_zones]:
        raise refusal
    roots = scope.limitations.get("entries")
    if roots is None:
        return
    is_list_of_zones = (resource, action) == ("zones", "list") and "zone_id" not in place
    is_inside = any(
        entries.is_inside(place[name], root)
        for name in OF_ENTRIES
        if name in place
        for root in roots
    )
    is_reading = resource == "files" and action in READING
    if not (is_list_of_zones or (is_reading and is_inside)):
        raise refusal
