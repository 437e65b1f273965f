"""The service, seen from inside: typed verbs over HTTPS.  Nothing above sees a status or a URL."""

from zonedrive.remote.link import Link, State
from zonedrive.remote.profile import Profile, load_profile
from zonedrive.remote.service import Service, open_service
from zonedrive.remote.transfer import Cancelled, Download, Transfer

__all__ = [
    "Cancelled",
    "Download",
    "Link",
    "Profile",
    "Service",
    "State",
    "Transfer",
    "load_profile",
    "open_service",
]
