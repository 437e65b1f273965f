"""Conversions to the contract's objects and times, for several callers.

Knows nothing about the callers.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from zonedrive.model import Version, Zone
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.names import local_name, zone_name


def timestamp(ns: int) -> str:
    """Return a time in ns since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds")


def zone_names(tree: Inodes) -> dict[str, str]:
    """Return the names of the zones in the mount, by id."""
    return {inode.zone: inode.name for inode in tree.inodes_in(ROOT) if inode.kind is Kind.ZONE}


def zone_objects(zones: Iterable[Zone], known: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the objects of `zones`, sorted by name.

    `path` is the folder's name in the mount, null if it has none. `known` maps zone ids to names in
    the mount.
    """
    names, found = dict(known), []
    for zone in sorted(zones, key=lambda each: each.id):
        if zone.accessible and zone.id not in names:  # the name it gets when it is listed
            names[zone.id] = local_name(
                zone.name, zone.id, frozenset(names.values()), show=zone_name
            )
        found.append(
            {
                "id": zone.id,
                "name": zone.name,
                "path": names.get(zone.id) if zone.accessible else None,
                "accessible": zone.accessible,
                "size": zone.size,
                "users": zone.users,
            }
        )
    return sorted(found, key=lambda each: (str(each["name"]).casefold(), each["id"]))


def version_objects(versions: Sequence[Version]) -> list[dict[str, Any]]:
    """Return the objects of `versions`, in the same order."""
    return [
        {
            "version": one.version,
            "id": one.id,
            "size": one.size,
            "modified": timestamp(one.modified_ns),
            "modified_by": one.modified_by,
        }
        for one in versions
    ]
