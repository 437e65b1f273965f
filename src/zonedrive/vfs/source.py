"""Where the content of an entry comes from: what the cache asks when bytes are missing."""

from contextlib import AbstractContextManager

from zonedrive.remote.transfer import Download, Transfer


class ServiceSource:
    """The service's current version of one file."""

    def __init__(self, transfer: Transfer, zone: str, file_id: str) -> None:
        self._transfer = transfer
        self._zone = zone
        self._file_id = file_id

    def open(self, offset: int) -> AbstractContextManager[Download]:
        """Begin a download at `offset` (blocking: in a worker thread)."""
        return self._transfer.download(self._zone, self._file_id, offset=offset)

    def open_range(self, offset: int, end: int) -> AbstractContextManager[Download]:
        """The same up to `end`, after which the connection can be used again."""
        return self._transfer.download(self._zone, self._file_id, offset=offset, end=end)
