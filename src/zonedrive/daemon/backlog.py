"""What an account that is not mounted still has to upload, and whether its data key is needed.

Must not need a key, a logon or the service: a logon and a logoff ask it too.
"""

from zonedrive.content.spool import is_any_sealed
from zonedrive.logon.local import Backlog
from zonedrive.outbox import journal
from zonedrive.paths import AccountPaths
from zonedrive.tree.glance import may_be_sealed


def at_rest(paths: AccountPaths) -> Backlog:
    """Changes in the account's journal, and the bytes they hold.  Raises StoreError."""
    return Backlog(*journal.waiting(paths.database))


def needs_key(paths: AccountPaths) -> bool:
    """Whether something here may be encrypted: then no new key may take the place of the old."""
    return may_be_sealed(paths.database) or is_any_sealed(paths.outgoing)
