"""Where the content of an entry comes from: what the cache asks when bytes are missing."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from zonedrive.content.source import Changed
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.remote.transfer import Download, Transfer
from zonedrive.tree.inode import Inode


class ServiceSource:
    """The service's current version of one file."""

    def __init__(
        self,
        transfer: Transfer,
        zone: str,
        file_id: str,
        revision: str,
        entry: Callable[[str, str], Awaitable[Entry]],
    ) -> None:
        """`revision` is the version that is meant; `entry` asks which one the service has."""
        self._transfer = transfer
        self._zone = zone
        self._file_id = file_id
        self._revision = revision
        self._entry = entry

    def open(self, offset: int) -> AbstractContextManager[Download]:
        """Begin a download at `offset` (blocking: in a worker thread)."""
        return self._transfer.download(self._zone, self._file_id, offset=offset)

    def open_range(self, offset: int, end: int) -> AbstractContextManager[Download]:
        """The same up to `end`, after which the connection can be used again."""
        return self._transfer.download(self._zone, self._file_id, offset=offset, end=end)

    async def confirm(self) -> None:
        """Raise Changed where the service has another version by now, or what hinders to know."""
        if (await self._entry(self._zone, self._file_id)).revision != self._revision:
            raise Changed("the service has another version by now")


class VersionSource:
    """One former version of a file: it never changes, so that there is nothing to confirm."""

    def __init__(self, transfer: Transfer, zone: str, file_id: str, version: str) -> None:
        """`version` is what the service calls it by."""
        self._transfer = transfer
        self._zone = zone
        self._file_id = file_id
        self._version = version

    def open(self, offset: int) -> AbstractContextManager[Download]:
        """Begin a download at `offset` (blocking: in a worker thread)."""
        return self._transfer.download(
            self._zone, self._file_id, offset=offset, version=self._version
        )

    def open_range(self, offset: int, end: int) -> AbstractContextManager[Download]:
        """The same up to `end`, after which the connection can be used again."""
        return self._transfer.download(
            self._zone, self._file_id, offset=offset, end=end, version=self._version
        )


def source_of(service: Service, inode: Inode) -> ServiceSource:
    """Return where the bytes of the service's present version of a file come from."""
    entry_id = inode.remote_id or ""
    return ServiceSource(service.transfer, inode.zone, entry_id, inode.revision, service.entry)
