"""Sources of file content: the cache reads missing bytes from them."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from zonedrive.content.source import Changed
from zonedrive.model import Entry
from zonedrive.remote.service import Service, Transfers
from zonedrive.remote.transfer import Download
from zonedrive.state.inode import Inode


class ServiceSource:
    """Source of the service's current version of one file."""

    def __init__(
        self,
        transfer: Transfers,
        zone: str,
        file_id: str,
        revision: str,
        entry: Callable[[str, str], Awaitable[Entry]],
    ) -> None:
        """Create a source for `revision`; `entry` fetches the service's current entry."""
        self._transfer = transfer
        self._zone = zone
        self._file_id = file_id
        self._revision = revision
        self._entry = entry

    def open(self, offset: int) -> AbstractContextManager[Download]:
        """Start a download at `offset`.  Blocking: call it in a worker thread."""
        return self._transfer.download(self._zone, self._file_id, offset=offset)

    def open_range(self, offset: int, end: int) -> AbstractContextManager[Download]:
        """Start a download from `offset` to `end`, after which the connection is reused."""
        return self._transfer.download(self._zone, self._file_id, offset=offset, end=end)

    async def confirm(self) -> None:
        """Raise Changed if the service has another version, or the error of the request."""
        if (await self._entry(self._zone, self._file_id)).revision != self._revision:
            raise Changed("the service has another version by now")


class VersionSource:
    """Source of one former version of a file, which never changes and needs no confirmation."""

    def __init__(self, transfer: Transfers, zone: str, file_id: str, version: str) -> None:
        """Create a source for the service's version id `version`."""
        self._transfer = transfer
        self._zone = zone
        self._file_id = file_id
        self._version = version

    def open(self, offset: int) -> AbstractContextManager[Download]:
        """Start a download at `offset`.  Blocking: call it in a worker thread."""
        return self._transfer.download(
            self._zone, self._file_id, offset=offset, version=self._version
        )

    def open_range(self, offset: int, end: int) -> AbstractContextManager[Download]:
        """Start a download from `offset` to `end`, after which the connection is reused."""
        return self._transfer.download(
            self._zone, self._file_id, offset=offset, end=end, version=self._version
        )


def source_of(service: Service, inode: Inode) -> ServiceSource:
    """Return the source of the service's current version of a file."""
    entry_id = inode.remote_id or ""
    return ServiceSource(service.transfer, inode.zone, entry_id, inode.revision, service.entry)
