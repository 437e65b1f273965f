"""What of the inodes the service does not know yet, as a listing that is merged asks for it."""

import logging
from collections.abc import Container, Iterable

from zonedrive.remote.service import Service
from zonedrive.vfs.core import Core

log = logging.getLogger(__name__)


class Unsent:
    """The outbox and the open files, for `tree.listing.Merge`."""

    def __init__(self, core: Core, service: Service) -> None:
        self._core = core
        self._service = service
        self.local = core.local

    def laden(self) -> Iterable[int]:
        """The inodes of which `local` may tell anything."""
        core = self._core
        return [*(intent.ino for intent in core.journal.all()), *core.opened]

    def in_doubt(self, remote_id: str) -> Container[str]:
        """Names in a folder under which something of ours may have arrived."""
        return self._core.doubts.names_in(remote_id)

    def orphaned(self, ino: int) -> None:
        """A folder is no longer on the service: it is to be made again.  In a transaction."""
        core = self._core
        log.warning("a folder was deleted on the service while something in it was edited")
        if self._service.can("make_folder"):
            core.journal.place(ino, core.due())
