"""Zones, and the permissions of their members.

This module does not depend on the names and content of entries. Levels: None < Add < Modify <
Manage. A user's own level takes precedence; otherwise, the highest level among the user's groups
counts. A group cannot have the level Manage.
"""

import uuid
from enum import IntEnum
from typing import Any

from zonedrive.sandbox.clock import iso, now_us
from zonedrive.sandbox.database import Database, Row
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.groups import GROUPS_OF_USER, USERS_OF_GROUP

# The one zone type of the sandbox.
ZONE_TYPE = str(uuid.uuid5(uuid.NAMESPACE_DNS, "project-zone.sandbox.zonedrive"))
ZONE_TYPE_NAME = "Project zone"


class Level(IntEnum):
    """Permission of a member; each level includes the lower levels."""

    NONE = 0
    ADD = 1  # list, read, add new names
    MODIFY = 2  # also versions of existing files, rename, move, delete, restore
    MANAGE = 3  # also remove permanently, and set members

    @classmethod
    def parse(cls, text: str) -> "Level | None":
        """Return the level with the API's name `text`, or None if there is no such level."""
        return {"None": cls.NONE, "Add": cls.ADD, "Modify": cls.MODIFY, "Manage": cls.MANAGE}.get(
            text
        )


class Zones:
    """Zones and their members, in the tables zones and zone_members."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        description: str,
        manager: str,
        root_id: str,
        *,
        allow_external_sharing: bool,
        accessible: bool,
    ) -> str:
        """Create a zone with its manager as the only member; return the zone's id.

        The caller must create the root folder, with the id `root_id`.
        """
        zone_id = str(uuid.uuid4())
        self._database.run(
            "INSERT INTO zones VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            zone_id,
            name,
            description,
            root_id,
            now_us(),
            manager,
            allow_external_sharing,
            accessible,
        )
        self.set_member(zone_id, manager, Level.MANAGE, is_group=False)
        return zone_id

    def set_member(self, zone_id: str, member_id: str, level: Level, *, is_group: bool) -> None:
        """Set the level of a user or group in the zone; NONE removes the member.

        Raises ApiError 400 if a group would become a manager, 409 WRONG_STATE if the zone would
        have no manager.
        """
        if is_group and level == Level.MANAGE:
            raise bad_argument("A group cannot manage a zone")
        if level < Level.MANAGE and self._managers(zone_id) == {member_id}:
            raise ApiError(
                409, "WRONG_STATE", "A zone keeps at least one manager: name another first", zone_id
            )
        if level == Level.NONE:
            self._database.run(
                "DELETE FROM zone_members WHERE zone_id = ? AND member_id = ?", zone_id, member_id
            )
            return
        self._database.run(
            "INSERT INTO zone_members VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET level = excluded.level",
            zone_id,
            member_id,
            is_group,
            level,
        )

    def members(self, zone_id: str) -> list[Row]:
        """Return the members of the zone as rows, in the order in which they joined."""
        return self._database.all(
            "SELECT member_id, is_group, level FROM zone_members WHERE zone_id = ? ORDER BY rowid",
            zone_id,
        )

    def by_name(self, name: str) -> Row | None:
        """Return the zone named `name`, or None."""
        return self._database.one("SELECT * FROM zones WHERE name = ?", name)

    def level(self, zone_id: str, user_id: str) -> Level:
        """Return the user's own level in the zone, or else the highest level of the user's groups.

        Return NONE if neither the user nor a group of the user is a member.
        """
        own = self._database.scalar(
            "SELECT level FROM zone_members WHERE zone_id = ? AND member_id = ?", zone_id, user_id
        )
        if own is not None:
            return Level(own)
        through_groups = self._database.scalar(
            GROUPS_OF_USER  # noqa: S608
            + " SELECT max(level) FROM zone_members"
            " WHERE zone_id = ? AND member_id IN (SELECT id FROM mine)",
            user_id,
            zone_id,
        )
        return Level(through_groups or 0)

    def enter(self, zone_id: str, user_id: str, needed: Level) -> Row:
        """Return the zone's row if the user has at least the level `needed`.

        Raises ApiError 404 UNKNOWN_ZONE if the zone does not exist, 403 INVALID_ACCESS if the user
        is not a member or the API has no access to the zone, and 403 NOT_ALLOWED if the member's
        level is too low.
        """
        zone = self._database.one("SELECT * FROM zones WHERE id = ?", zone_id)
        if zone is None:
            raise ApiError(404, "UNKNOWN_ZONE", "There is no such zone", zone_id)
        level = self.level(zone_id, user_id)
        if level == Level.NONE:
            raise ApiError(403, "INVALID_ACCESS", "You are not a member of this zone", zone_id)
        if not zone["accessible"]:
            raise ApiError(403, "INVALID_ACCESS", "This zone is closed to the API", zone_id)
        if level < needed:
            raise ApiError(
                403,
                "NOT_ALLOWED",
                f"This needs the level {needed.name.capitalize()}, you have "
                f"{level.name.capitalize()}",
                zone_id,
            )
        return zone

    def shares_outside(self, zone_id: str) -> bool:
        """Return True if the zone's content may be shared with external parties."""
        return bool(
            self._database.scalar("SELECT allow_external_sharing FROM zones WHERE id = ?", zone_id)
        )

    def visible(self, user_id: str) -> list[dict[str, Any]]:
        """Return the zones that the user is a member of, as JSON objects in order of creation."""
        rows = self._database.all("SELECT * FROM zones ORDER BY rowid")
        return [self._wire(row) for row in rows if self.level(row["id"], user_id) > Level.NONE]

    def _wire(self, row: Row) -> dict[str, Any]:
        return {
            "id": row["id"],
            "name": row["name"],
            "description": row["description"],
            "rootId": row["root_id"],
            "type": ZONE_TYPE,
            "typeName": ZONE_TYPE_NAME,
            "createdAt": iso(row["created_us"]),
            "createdBy": row["created_by"],
            "currentSize": self._size(row["id"]),
            "numberOfUsers": len(self._people(row["id"])),
            "allowExternalSharing": bool(row["allow_external_sharing"]),
            "ssiAccessible": bool(row["accessible"]),
            "webAccessible": True,
            "useECM": False,
        }

    def _size(self, zone_id: str) -> int:
        """Return the total size in bytes of the current versions of files that are not deleted."""
        size: int = self._database.scalar(
            "SELECT coalesce(sum(size), 0) FROM entries WHERE zone_id = ? AND trash_id IS NULL",
            zone_id,
        )
        return size

    def _managers(self, zone_id: str) -> set[str]:
        rows = self._database.all(
            "SELECT member_id FROM zone_members WHERE zone_id = ? AND level = ?",
            zone_id,
            Level.MANAGE,
        )
        return {row["member_id"] for row in rows}

    def _people(self, zone_id: str) -> set[str]:
        """Return the ids of the zone's users, including the users of its groups."""
        people: set[str] = set()
        for row in self._database.all(
            "SELECT member_id, is_group FROM zone_members WHERE zone_id = ?", zone_id
        ):
            if row["is_group"]:
                inside = self._database.all(USERS_OF_GROUP, row["member_id"])
                people.update(user["id"] for user in inside)
            else:
                people.add(row["member_id"])
        return people
