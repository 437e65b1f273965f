"""Groups of users, with their direct and indirect members and their managers.

The module `zones` sets the levels of groups in zones. INVARIANT: no group contains itself, neither
directly nor through other groups.
"""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from zonedrive.sandbox.clock import iso, now_us
from zonedrive.sandbox.database import Database, Row
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.users import User, Users

LEVELS = ("None", "Access", "Manage")

# Every group that contains a user, directly or indirectly.
GROUPS_OF_USER = """
    WITH RECURSIVE mine(id) AS (
        SELECT group_id FROM group_members WHERE member_id = ? AND is_group = 0
        UNION
        SELECT m.group_id FROM group_members m JOIN mine ON m.member_id = mine.id
    )
"""
# Every user in a group, directly or indirectly.
USERS_OF_GROUP = """
    WITH RECURSIVE inside(id, is_group) AS (
        SELECT member_id, is_group FROM group_members WHERE group_id = ?
        UNION
        SELECT m.member_id, m.is_group FROM group_members m
        JOIN inside ON inside.is_group = 1 AND m.group_id = inside.id
    )
    SELECT id FROM inside WHERE is_group = 0
"""


class Change(NamedTuple):
    """New level of a group's member; the level 'None' removes the member from the group."""

    member_id: str
    level: str


class Groups:
    """Groups and their members, in the tables groups and group_members."""

    def __init__(self, database: Database, users: Users, domain: str) -> None:
        self._database = database
        self._users = users
        self._domain = domain

    def create(
        self,
        name: str,
        description: str,
        creator: str,
        members: Sequence[Change],
        *,
        scim: bool = False,
        creator_manages: bool = True,
    ) -> str:
        """Create a group and return its id.

        `scim` is true if the request used the scope SCIM. If no member manages the group, the
        creator becomes its manager, unless `scim` is true or `creator_manages` is false. Raises
        ApiError 409 if the name is taken, 400 for an unknown member.
        """
        group_id = f"group.{uuid.uuid4()}@{self._domain}"
        with self._database.transaction():
            if self.by_name(name) is not None:
                raise ApiError(409, "ALREADY_EXISTS", f"A group named {name!r} exists")
            self._database.run(
                "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?)",
                group_id,
                name,
                description,
                now_us(),
                creator,
                scim,
            )
            for change in members:
                self._apply(group_id, change)
            if creator_manages and not scim and not self._has_manager(group_id):
                self._apply(group_id, Change(creator, "Manage"))
        return group_id

    def change(
        self, group_id: str, members: Sequence[Change], *, relative: bool, scim: bool = False
    ) -> None:
        """Set the levels of `members`; if `relative` is false, remove all other members.

        If `scim` is true, only administrators can manage the group from then on. Raises ApiError
        400 for an unknown member or a group that would contain itself.
        """
        with self._database.transaction():
            if scim:
                self._database.run("UPDATE groups SET scim = 1 WHERE id = ?", group_id)
            if not relative:
                self._database.run("DELETE FROM group_members WHERE group_id = ?", group_id)
            for change in members:
                self._apply(group_id, change)

    def delete(self, group_id: str) -> None:
        """Delete the group, and remove the group from all zones and from all other groups."""
        with self._database.transaction():
            self._database.run("DELETE FROM zone_members WHERE member_id = ?", group_id)
            self._database.run("DELETE FROM group_members WHERE member_id = ?", group_id)
            self._database.run("DELETE FROM groups WHERE id = ?", group_id)

    def by_name(self, name: str) -> str | None:
        """Return the id of the group named `name`, or None."""
        found: str | None = self._database.scalar("SELECT id FROM groups WHERE name = ?", name)
        return found

    def exists(self, group_id: str) -> bool:
        """Return True if the group exists."""
        return self._database.one("SELECT 1 FROM groups WHERE id = ?", group_id) is not None

    def may_manage(self, group_id: str, user: User) -> bool:
        """Return True if the user may manage the group.

        Administrators may manage every group. Other users need the level Manage, directly or
        through a group, and may not manage a group that was created or changed through SCIM.
        """
        scim = self._database.scalar("SELECT scim FROM groups WHERE id = ?", group_id)
        if user.administrator or scim:
            return user.administrator
        found = self._database.one(
            GROUPS_OF_USER  # noqa: S608
            + " SELECT 1 FROM group_members WHERE group_id = ? AND manage = 1"
            " AND (member_id = ? OR member_id IN (SELECT id FROM mine))",
            user.id,
            group_id,
            user.id,
        )
        return found is not None

    def described(self, member_id: str, *, is_group: bool) -> dict[str, Any]:
        """Return the API's fields for a member: type, name and, for a user, `authorization`."""
        if is_group:
            name = self._database.scalar("SELECT name FROM groups WHERE id = ?", member_id)
            return {"memberType": "Group", "displayName": name}
        user = self._users.find(member_id)
        assert user is not None, "a member is a user or a group"
        return {
            "memberType": "User",
            "displayName": user.name,
            "authorization": user.authorization,
        }

    def wire(self, group_id: str, viewer: User) -> dict[str, Any]:
        """Return the group as the API's JSON object.

        The field `assignAccessRights` is True if `viewer` may manage the group. Raises ApiError 404
        if the group does not exist.
        """
        row = self._database.one("SELECT * FROM groups WHERE id = ?", group_id)
        if row is None:
            raise ApiError(404, "ID_NOT_FOUND", "There is no such group", group_id)
        members = self._database.all(
            "SELECT * FROM group_members WHERE group_id = ? ORDER BY rowid", group_id
        )
        return {
            "members": [self._member(member) for member in members],
            "properties": {
                "groupId": group_id,
                "name": row["name"],
                "description": row["description"],
                "createdAt": iso(row["created_us"]),
                "createdBy": row["created_by"],
                "administratorManaged": bool(row["scim"]) or not self._has_manager(group_id),
                "open": True,
                "zoneActions": {"assignAccessRights": self.may_manage(group_id, viewer)},
            },
        }

    def _member(self, row: Row) -> dict[str, Any]:
        level = "Manage" if row["manage"] else "Access"
        described = self.described(row["member_id"], is_group=bool(row["is_group"]))
        return {"memberId": row["member_id"], "accessLevel": level, **described}

    def _has_manager(self, group_id: str) -> bool:
        return (
            self._database.one(
                "SELECT 1 FROM group_members WHERE group_id = ? AND manage = 1", group_id
            )
            is not None
        )

    def _apply(self, group_id: str, change: Change) -> None:
        user = self._users.find(change.member_id)
        member_id = change.member_id if user is None else user.id
        if user is None and not self.exists(member_id):
            raise ApiError(400, "USER_UNKNOWN", f"There is no member {member_id!r}", member_id)
        if change.level == "None":
            self._database.run(
                "DELETE FROM group_members WHERE group_id = ? AND member_id = ?",
                group_id,
                member_id,
            )
            return
        if user is None:
            self._refuse_cycle(group_id, member_id)
        self._database.run(
            "INSERT INTO group_members VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET manage = excluded.manage",
            group_id,
            member_id,
            user is None,
            change.level == "Manage",
        )

    def _refuse_cycle(self, group_id: str, member_id: str) -> None:
        found = self._database.one(
            """WITH RECURSIVE inside(id) AS (
                 SELECT ? UNION
                 SELECT m.member_id FROM group_members m JOIN inside ON m.group_id = inside.id
                 WHERE m.is_group = 1
               ) SELECT 1 FROM inside WHERE id = ?""",
            member_id,
            group_id,
        )
        if found is not None:
            raise bad_argument("A group cannot be a member of itself, not even through others")
