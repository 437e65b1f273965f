"""Table of users with their password digests, and the JSON form of a user in API responses.

This module does not depend on sessions, groups or zones.
"""

from dataclasses import dataclass
from typing import Any

from zonedrive.sandbox import passwords
from zonedrive.sandbox.database import Database, Row


@dataclass(frozen=True, slots=True)
class User:
    """User of the sandbox, as stored in its database."""

    id: str
    name: str
    password: bytes
    password_version: int
    administrator: bool
    otp_secret: str | None
    change_required: bool

    @property
    def authorization(self) -> str:
        """Value of the API's `authorization` field."""
        return "Administrator" if self.administrator else "Internal"

    def wire(self) -> dict[str, Any]:
        """Return the user as an item of the API's list of users."""
        return {
            "id": self.id,
            "name": self.name,
            "displayName": self.name,
            "authorization": self.authorization,
        }


class Users:
    """Table of users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        user_id: str,
        name: str,
        password: str,
        *,
        administrator: bool = False,
        otp_secret: str | None = None,
        change_required: bool = False,
    ) -> None:
        """Create a user; the password is stored as a digest."""
        self._database.run(
            "INSERT INTO users (id, name, password, administrator, otp_secret, change_required)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            user_id,
            name,
            passwords.digest(password),
            administrator,
            otp_secret,
            change_required,
        )

    def find(self, user_id: str) -> User | None:
        """Return the user with the id `user_id` (case-insensitive), or None."""
        row = self._database.one("SELECT * FROM users WHERE id = ?", user_id)
        return None if row is None else _user(row)

    def all(self) -> list[User]:
        """Return all users, ordered by id."""
        return [_user(row) for row in self._database.all("SELECT * FROM users ORDER BY id")]

    def change_password(self, user_id: str, password: str) -> None:
        """Set a new password and clear `change_required`.

        The user's existing tokens become invalid.
        """
        self._database.run(
            "UPDATE users SET password = ?, password_version = password_version + 1,"
            " change_required = 0 WHERE id = ?",
            passwords.digest(password),
            user_id,
        )


def _user(row: Row) -> User:
    return User(
        id=row["id"],
        name=row["name"],
        password=row["password"],
        password_version=row["password_version"],
        administrator=bool(row["administrator"]),
        otp_secret=row["otp_secret"],
        change_required=bool(row["change_required"]),
    )
