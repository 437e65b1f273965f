"""Comparison of local bytes with the service's bytes, which are downloaded for this purpose.

Size and author alone prove nothing: two versions by one user may have the same size.
"""

from collections.abc import Iterator

import trio

from zonedrive.content.content_file import ContentFile
from zonedrive.errors import Damaged
from zonedrive.remote.service import Service
from zonedrive.state.local_state import LocalState
from zonedrive.state.pending_requests import PendingRequest


class ContentComparison:
    """Comparison of versions on the service with bytes of the spool."""

    def __init__(self, state: LocalState, service: Service) -> None:
        self._state = state
        self._service = service
        # Separate threads, so that others do not wait for the service as well.
        self._threads = trio.CapacityLimiter(state.settings.transfers)

    async def is_what_was_sent(
        self, doubt: PendingRequest, file_id: str, version: str | None = None
    ) -> bool:
        """Return True if a version on the service has the bytes of this client's request."""
        try:
            file = self._state.spool.open(doubt.bytes_ino, doubt.generation)
        except (FileNotFoundError, Damaged):
            return False
        try:
            return await self.same_bytes(file, doubt.zone, file_id, version)
        except Damaged:
            return False
        finally:
            file.close()

    async def same_bytes(
        self, file: ContentFile, zone: str, file_id: str, version: str | None = None
    ) -> bool:
        """Return True if a version on the service, by default the current one, equals `file`."""
        transfer = self._service.transfer

        def pieces() -> Iterator[bytes | memoryview]:
            with transfer.download(zone, file_id, version=version) as download:
                yield from download

        def compare() -> bool:
            offset = 0
            for piece in pieces():
                if file.pread(offset, len(piece)) != piece:
                    return False
                offset += len(piece)
            return offset == file.size

        return await trio.to_thread.run_sync(compare, limiter=self._threads)
