"""Container for the parts of a running deployment that the endpoints use."""

from dataclasses import dataclass
from pathlib import Path

from zonedrive.sandbox.attempts import Attempts
from zonedrive.sandbox.blobs import Blobs
from zonedrive.sandbox.codes import Codes
from zonedrive.sandbox.database import Database
from zonedrive.sandbox.entries import Entries
from zonedrive.sandbox.flows import Flows
from zonedrive.sandbox.groups import Groups
from zonedrive.sandbox.sessions import Sessions
from zonedrive.sandbox.settings import Organization
from zonedrive.sandbox.shares import Shares
from zonedrive.sandbox.signons import SignOns
from zonedrive.sandbox.users import Users
from zonedrive.sandbox.verification import Verification
from zonedrive.sandbox.zone_log import ZoneLog
from zonedrive.sandbox.zones import Zones


@dataclass(frozen=True, slots=True)
class Deployment:
    """Parts of a deployment, such as the settings, the database, and the users, zones and files."""

    organization: Organization
    database: Database
    users: Users
    groups: Groups
    zones: Zones
    entries: Entries
    sessions: Sessions
    codes: Codes
    attempts: Attempts
    verification: Verification
    flows: Flows
    signons: SignOns
    shares: Shares
    log: ZoneLog


def assemble(data: Path, database: Database, organization: Organization) -> Deployment:
    """Create a deployment that stores content below `data` and other data in `database`."""
    users, log = Users(database), ZoneLog(database)
    codes = Codes(database, organization.otp)
    attempts = Attempts(organization.block_after, organization.block_seconds)
    return Deployment(
        organization=organization,
        database=database,
        users=users,
        groups=Groups(database, users, organization.domain),
        zones=Zones(database),
        entries=Entries(database, Blobs(data), log),
        sessions=Sessions(database),
        codes=codes,
        attempts=attempts,
        verification=Verification(users, codes, attempts),
        flows=Flows(),
        signons=SignOns(),
        shares=Shares(database),
        log=log,
    )
