"""The service, seen from inside: typed verbs over HTTPS.  Nothing above sees a status or a URL.

What `__all__` names is for everybody's programs and stays as it is: see README.md beside this file.
The other names are zonedrive's own, for the daemon.
"""

from zonedrive.model import (
    Attributes,
    Entry,
    Group,
    Level,
    Member,
    NewToken,
    Scope,
    Token,
    Version,
    Zone,
)
from zonedrive.remote.client import Client, Credentials
from zonedrive.remote.directory import Directory
from zonedrive.remote.link import Link as Link
from zonedrive.remote.link import State as State
from zonedrive.remote.profile import Profile as Profile
from zonedrive.remote.profile import load_profile as load_profile
from zonedrive.remote.service import Service as Service
from zonedrive.remote.service import open_service as open_service
from zonedrive.remote.transfer import Cancelled as Cancelled
from zonedrive.remote.transfer import Download as Download
from zonedrive.remote.transfer import Transfer as Transfer

__all__ = [
    "Attributes",
    "Client",
    "Credentials",
    "Directory",
    "Entry",
    "Group",
    "Level",
    "Member",
    "NewToken",
    "Scope",
    "Token",
    "Version",
    "Zone",
]
