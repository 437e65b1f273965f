"""The organization's settings as the world file gave them and the database keeps them.

Must not know TOML.
"""

import msgspec

from zonedrive.sandbox.database import Database


class Named(msgspec.Struct, frozen=True):
    """An identity provider, or a kind of personal identification."""

    name: str
    description: str = ""


class Organization(msgspec.Struct, frozen=True):
    """What holds for the whole deployment."""

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
    idp_users: list[str] = []  # these do

    def signs_on_elsewhere(self, user_id: str) -> bool:
        """Whether a password alone does not log this user on, but a provider does."""
        return self.idp_required or user_id.lower() in map(str.lower, self.idp_users)


def save(database: Database, organization: Organization) -> None:
    """Keep the settings, once, when the world is filled."""
    text = msgspec.json.encode(organization).decode()
    database.run("INSERT INTO settings (key, value) VALUES ('organization', ?)", text)


def load(database: Database) -> Organization | None:
    """The settings kept, or None in a database that was never filled."""
    text = database.scalar("SELECT value FROM settings WHERE key = 'organization'")
    return None if text is None else msgspec.json.decode(text, type=Organization)
