"""Sessions and tokens, with the secrets that callers send, and the scopes that limit callers.

This module does not depend on how users log on. Only the SHA-256 hash of a secret is stored.
Sessions and tokens survive a restart.
"""

import hashlib
import secrets
import uuid
from typing import Any, NamedTuple

import msgspec

from zonedrive.sandbox.clock import now_us
from zonedrive.sandbox.database import Database, Row

# Actions of a permission; `all` includes the others.
ACTIONS = ("all", "create", "list", "get", "access", "modify", "delete")

# Name of this API in a scope's `clients`.
CLIENT = "ServiceSSI"


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limit on the actions of a session or token.

    An unknown field is rejected, because it may describe a limit that the sandbox cannot enforce.
    """

    name: str = ""
    description: str = ""
    clients: list[str] = []
    permissions: dict[str, dict[str, bool]] = {}
    limitations: dict[str, Any] = {}
    extensions: dict[str, Any] = {}

    def unknown_actions(self) -> list[str]:
        """Return the unknown permissions as 'resource.action', in the order of `permissions`."""
        return [
            f"{resource}.{action}"
            for resource, flags in self.permissions.items()
            for action in flags
            if action not in ACTIONS
        ]

    def allows(self, resource: str, action: str) -> bool:
        """Return True if the scope allows `action` (create, list, get, …) on a resource.

        All fields must allow the action. `clients`, if not empty, must contain CLIENT. A scope
        named SCIM allows only users and groups. `permissions`, if not empty, denies all resources
        that it does not contain.
        """
        if self.clients and CLIENT not in self.clients:
            return False
        if self.name == "SCIM" and resource not in ("users", "groups"):
            return False
        if not self.permissions:
            return True
        flags = self.permissions.get(resource, {})
        return flags.get("all", False) or flags.get(action, False)


class Grant(NamedTuple):
    """User and scope of a session or token; the scope None means unlimited."""

    user_id: str
    scope: Scope | None


class Sessions:
    """Tables of sessions and tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, user_id: str, life_ms: int, scope: Scope | None) -> str:
        """Start a session of `life_ms` milliseconds; return its id (only a hash is stored)."""
        self._database.run("DELETE FROM sessions WHERE expires_us <= ?", now_us())
        secret = secrets.token_urlsafe(32)
        self._database.run(
            "INSERT INTO sessions VALUES (?, ?, ?, ?)",
            _hash(secret),
            user_id,
            _text(scope),
            now_us() + life_ms * 1000,
        )
        return secret

    def end(self, secret: str) -> bool:
        """End a session; return False if no such session exists (a token is not a session)."""
        return (
            self._database.run(
                "DELETE FROM sessions WHERE secret = ? AND expires_us > ?", _hash(secret), now_us()
            )
            > 0
        )

    def expire_all(self) -> None:
        """End all sessions; tokens stay valid."""
        self._database.run("DELETE FROM sessions")

    def end_scoped(self, user_id: str, scope: Scope) -> None:
        """End a user's sessions whose scope is equal to `scope`."""
        self._database.run(
            "DELETE FROM sessions WHERE user_id = ? AND scope = ?", user_id, _text(scope)
        )

    def create_token(
        self, user_id: str, name: str, life_seconds: int, scope: Scope | None
    ) -> dict[str, Any]:
        """Create a token; return its id, its secret and its expiry (milliseconds since the epoch).

        The secret cannot be read again, because only its hash is stored.
        """
        token_id, secret = str(uuid.uuid4()), secrets.token_urlsafe(40)
        created = now_us()
        expires = created + life_seconds * 1_000_000
        self._database.run(
            "INSERT INTO tokens SELECT ?, ?, id, ?, ?, ?, ?, password_version FROM users"
            " WHERE id = ?",
            token_id,
            _hash(secret),
            name,
            _text(scope),
            created,
            expires,
            user_id,
        )
        return {"id": token_id, "token": secret, "expiry": expires // 1000}

    def revoke(self, user_id: str, token_id: str) -> bool:
        """Make a token of the user expire now; return False if the user has no such token.

        The token remains in the list of tokens.
        """
        now = now_us()
        return (
            self._database.run(
                "UPDATE tokens SET expires_us = min(expires_us, ?) WHERE id = ? AND user_id = ?",
                now,
                token_id,
                user_id,
            )
            > 0
        )

    def tokens(self, user_id: str) -> list[dict[str, Any]]:
        """Return the user's tokens, including expired ones, oldest first, without secrets."""
        rows = self._database.all(
            "SELECT tokens.*, users.password_version AS current FROM tokens"
            " JOIN users ON users.id = tokens.user_id WHERE user_id = ? ORDER BY tokens.rowid",
            user_id,
        )
        return [_token(row) for row in rows]

    def resolve(self, secret: str) -> Grant | None:
        """Return the user and scope of a session id or token, or None if the secret is not valid.

        A token is no longer valid after its user has changed the password.
        """
        row = self._database.one(
            "SELECT user_id, scope FROM sessions WHERE secret = ?1 AND expires_us > ?2"
            " UNION ALL SELECT user_id, scope FROM tokens JOIN users ON users.id = user_id"
            " WHERE secret = ?1 AND expires_us > ?2"
            " AND tokens.password_version = users.password_version",
            _hash(secret),
            now_us(),
        )
        if row is None:
            return None
        return Grant(row["user_id"], _scope(row["scope"]))


def _token(row: Row) -> dict[str, Any]:
    scope = _scope(row["scope"])
    usable = row["expires_us"] > now_us() and row["password_version"] == row["current"]
    answer: dict[str, Any] = {
        "id": row["id"],
        "tokenName": row["name"],
        "expiry": row["expires_us"] // 1000,
        "validity": (row["expires_us"] - row["created_us"]) // 1_000_000,
        "valid": usable,
    }
    if scope is not None:
        answer["scope"] = msgspec.to_builtins(scope)
    return answer


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _text(scope: Scope | None) -> str | None:
    return None if scope is None else msgspec.json.encode(scope).decode()


def _scope(text: str | None) -> Scope | None:
    return None if text is None else msgspec.json.decode(text, type=Scope)
