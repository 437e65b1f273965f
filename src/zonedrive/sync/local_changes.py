"""Local changes that the service does not know yet, for the merge of a listing."""

import logging
from collections.abc import Container, Iterable

from zonedrive.remote.service import Service
from zonedrive.state.local_state import LocalState

log = logging.getLogger(__name__)


class LocalChanges:
    """View of the outbox and the open files for `tree.listing.Merge`."""

    def __init__(self, state: LocalState, service: Service) -> None:
        self._state = state
        self._service = service
        self.local = state.local

    def with_local_changes(self) -> Iterable[int]:
        """Return the inodes for which `local` may return changes."""
        state = self._state
        return [*(intent.ino for intent in state.intents.all()), *state.opened]

    def in_doubt(self, remote_id: str) -> Container[str]:
        """Return the names in a folder that pending requests of this client may have created."""
        return self._state.requests.names_in(remote_id)

    def orphaned(self, ino: int) -> None:
        """Schedule the creation of a folder that the service has lost.  In a transaction."""
        state = self._state
        log.warning("a folder was deleted on the service while something in it was edited")
        if self._service.can("make_folder"):
            state.intents.place(ino, state.due())
