"""Settings of the organization, read from the world file and then stored in the database.

This module does not parse TOML; see `world`.
"""

import msgspec

from zonedrive.sandbox.database import Database


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identity provider, or method of personal identification."""

    name: str
    description: str = ""


class Organization(msgspec.Struct, frozen=True):
    """Settings of the whole deployment.

    `otp` is the kind of one-time codes (see `codes`); "None" means that no code is required.
    `session_seconds` limits the lifetime of a session. `page_listings` enables the pagination of
    zones and folders, `ranges` enables range requests. A user name is blocked for `block_seconds`
    after `block_after` consecutive failures to log on.
    """

    name: str
    domain: str
    otp: str = "None"
    session_seconds: int = 3600
    page_listings: bool = False
    ranges: bool = True
    block_after: int = 10
    block_seconds: float = 60
    identity_providers: list[Named] = []
    personal_id: list[Named] = []
    idp_required: bool = False  # everybody signs on at an identity provider
    idp_users: list[str] = []  # users who sign on at an identity provider

    def signs_on_elsewhere(self, user_id: str) -> bool:
        """Return True if a user must sign on at an identity provider, not with a password."""
        return self.idp_required or user_id.lower() in map(str.lower, self.idp_users)


def save(database: Database, organization: Organization) -> None:
    """Store the settings; called only once, when the sandbox's initial data is loaded."""
    text = msgspec.json.encode(organization).decode()
    database.run("INSERT INTO settings (key, value) VALUES ('organization', ?)", text)


def load(database: Database) -> Organization | None:
    """Return the stored settings, or None if the initial data has not been loaded yet."""
    text = database.scalar("SELECT value FROM settings WHERE key = 'organization'")
    return None if text is None else msgspec.json.decode(text, type=Organization)
