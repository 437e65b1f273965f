"""Local changes that the service does not know yet, for the merge of a listing."""

import logging
from collections.abc import Container, Iterable

from zonedrive.remote.service import Service
from zonedrive.state.local_state import Core

log = logging.getLogger(__name__)


class Unsent:
    """View of the outbox and the open files for `tree.listing.Merge`."""

    def __init__(self, core: Core, service: Service) -> None:
        self._core = core
        self._service = service
        self.local = core.local

    def laden(self) -> Iterable[int]:
        """Return the inodes for which `local` may return changes."""
        core = self._core
        return [*(intent.ino for intent in core.journal.all()), *core.opened]

    def in_doubt(self, remote_id: str) -> Container[str]:
        """Return the names in a folder for which this client's requests are pending."""
        return self._core.doubts.names_in(remote_id)

    def orphaned(self, ino: int) -> None:
        """Schedule the creation of a folder that the service has lost.  In a transaction."""
        core = self._core
        log.warning("a folder was deleted on the service while something in it was edited")
        if self._service.can("make_folder"):
            core.journal.place(ino, core.due())
