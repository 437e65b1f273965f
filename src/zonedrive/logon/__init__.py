"""Who we are to the service: accounts, secrets, the logon, and the bearer in each request."""

from zonedrive.logon.account import Account
from zonedrive.logon.keys import data_box
from zonedrive.logon.secrets import Secret, SecretStore, open_store
from zonedrive.logon.session import BearerAuth
from zonedrive.logon.stored import stored

__all__ = ["Account", "BearerAuth", "Secret", "SecretStore", "data_box", "open_store", "stored"]
