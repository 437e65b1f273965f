"""What an account that is not mounted still has to upload.

Must not need a key, a logon or the service: a logoff asks it too.
"""

from zonedrive.logon.local import Backlog
from zonedrive.outbox import journal
from zonedrive.paths import AccountPaths


def at_rest(paths: AccountPaths) -> Backlog:
    """Changes in the account's journal, and the bytes they hold.  Raises StoreError."""
    return Backlog(*journal.waiting(paths.database))
