"""The parts of a running deployment, put together: what the endpoints work on."""

from dataclasses import dataclass
from pathlib import Path

from zonedrive.sandbox.blobs import Blobs
from zonedrive.sandbox.codes import Codes
from zonedrive.sandbox.database import Database
from zonedrive.sandbox.entries import Entries
from zonedrive.sandbox.flows import Flows
from zonedrive.sandbox.groups import Groups
from zonedrive.sandbox.sessions import Sessions
from zonedrive.sandbox.settings import Organization
from zonedrive.sandbox.signons import SignOns
from zonedrive.sandbox.users import Users
from zonedrive.sandbox.zones import Zones


@dataclass(frozen=True, slots=True)
class Deployment:
    """One organization with its people, zones and content."""

    organization: Organization
    database: Database
    users: Users
    groups: Groups
    zones: Zones
    entries: Entries
    sessions: Sessions
    codes: Codes
    flows: Flows
    signons: SignOns


def assemble(data: Path, database: Database, organization: Organization) -> Deployment:
    """Build the parts around an open database and the folder --data."""
    users = Users(database)
    return Deployment(
        organization=organization,
        database=database,
        users=users,
        groups=Groups(database, users, organization.domain),
        zones=Zones(database),
        entries=Entries(database, Blobs(data)),
        sessions=Sessions(database),
        codes=Codes(database, organization.otp),
        flows=Flows(),
        signons=SignOns(),
    )
