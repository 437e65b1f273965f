"""Sources of file content, from which the cache reads missing bytes."""

from contextlib import AbstractContextManager

from zonedrive.errors import Changed, NotFound
from zonedrive.model import differ_in_precision
from zonedrive.remote.service import Service
from zonedrive.remote.transfer import Download
from zonedrive.state.inode import Inode


class VersionSource:
    """Source of the content of one version of a file."""

    def __init__(
        self, service: Service, zone: str, file_id: str, version: str | None = None
    ) -> None:
        """Create a source for the version with the id `version`, by default the current version."""
        self._service = service
        self._zone = zone
        self._file_id = file_id
        self._version = version

    def open(self, offset: int, end: int | None = None) -> AbstractContextManager[Download]:
        """Start a download of the bytes from `offset` up to `end` (exclusive, default: all).

        This method blocks, so call it in a worker thread.
        """
        return self._service.transfer.download(
            self._zone, self._file_id, offset=offset, end=end, version=self._version
        )

    async def confirm(self) -> None:
        """Check with a request for the file's entry that the service itself answers.

        Raises RemoteError if the request fails. A stored version never changes, but a captive
        portal may answer instead of the service.
        """
        await self._service.entry(self._zone, self._file_id)


class CurrentSource(VersionSource):
    """Source of the service's current version of a file."""

    def __init__(self, service: Service, inode: Inode) -> None:
        super().__init__(service, inode.zone, inode.remote_id or "")
        self._revision = inode.revision

    def open(self, offset: int, end: int | None = None) -> AbstractContextManager[Download]:
        """Start a download like `VersionSource.open`. Raises NotFound if the file has no entry."""
        if not self._file_id:
            raise NotFound("the file was deleted on the service")
        return super().open(offset, end)

    async def confirm(self) -> None:
        """Raise Changed if the service has another version, or RemoteError if the request fails.

        Revisions that differ only in the precision of the time count as the same version.
        """
        found = (await self._service.entry(self._zone, self._file_id)).revision
        if found != self._revision and not differ_in_precision(found, self._revision):
            raise Changed("the service has a newer version")
