"""Interface to the service as typed methods.

The interface hides the HTTP requests, and does not depend on inodes, the kernel, caches or the
upload queue. `http_service` implements the interface. No error message contains the name of an
entry, because errors are stored and logged in places where such names are not allowed.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from zonedrive.model import Entry, Version, Zone
from zonedrive.remote.connectivity import Connectivity, State
from zonedrive.remote.profiles.operations import Profile
from zonedrive.remote.wire.entries import Listed, ListedZones

if TYPE_CHECKING:
    from zonedrive.remote.transfer import Download


class Transfers(Protocol):
    """Interface for streaming file content. All methods block; call them in a worker thread."""

    def download(
        self,
        zone_id: str,
        file_id: str,
        *,
        offset: int = 0,
        end: int | None = None,
        version: str | None = None,
    ) -> "Download":
        """Start to download a file, or its old version `version`; return the download in progress.

        The download covers the bytes from `offset` up to, but not including, `end` (None: the end
        of the file). If the service ignores or refuses ranges, the download covers the whole
        content, and `Download.offset` is 0. A failed start is retried a few times. Raises
        subclasses of RemoteError. Raises NotSupported if `version` is given and the profile has no
        operation `version_content`.
        """

    def upload(
        self,
        zone_id: str,
        folder_id: str,
        name: str,
        body: Iterable[bytes],
        size: int,
        *,
        cancelled: Callable[[], bool] = ...,
    ) -> Entry:
        """Upload `size` bytes of `body` as `name` into a folder; return the resulting entry.

        The request is sent once, with one exception. If the service rejects the request because the
        logon has ended, and `body` can be iterated again, the request is sent a second time after a
        renewal of the logon.

        Raises ReplyLost if the whole request was sent but its effect is unknown, for example
        because the response cannot be read. Raises Interrupted or another subclass of Unreachable
        if the upload had no effect. Raises Cancelled after `cancelled()` returned True, StoreError
        if `body` does not yield `size` bytes, and other subclasses of RemoteError if the service
        rejects the upload.
        """

    def prepare(self) -> None:
        """Open a connection in advance, so that the next download starts faster; ignore errors."""

    def hang_up(self) -> None:
        """Abort all transfers in progress, and reject new transfers.

        An aborted transfer raises Interrupted, or ReplyLost if it is an upload whose bytes were all
        sent.
        """


class Service(Protocol):
    """Interface to one deployment, accessed as one user.

    All methods may run concurrently on one trio loop. A method that fails raises a subclass of
    errors.RemoteError. A method whose operation is missing in the profile raises NotSupported and
    sends no request. Requests that only read are retried a few times. Requests that change
    something are sent once, except after a response with status 401.
    """

    link: Connectivity
    transfer: Transfers
    profile: Profile

    async def aclose(self) -> None:
        """Close all connections, and abort transfers in progress as `Transfers.hang_up` does."""

    async def reconnect(self, *, dead: bool) -> None:
        """Close the idle connections; if the state is not `online`, probe the service at once.

        Call this after a suspend or a change of network. If `dead`, also abort the transfers in
        progress, because no more data can arrive on their connections.
        """

    def can(self, operation: str, *, folder: bool | None = None) -> bool:
        """Return True if the profile supports `operation`, one of operations.OPERATIONS.

        `folder` selects the variant for folders or for files; None accepts either.
        """
        return self.profile.can(operation, folder=folder)

    def can_place(self, *, folder: bool, renamed: bool, moved: bool) -> bool:
        """Return True if the method `move` can make the requested change to an entry.

        `renamed` requests a new name, `moved` a new parent folder. `folder` is True for a folder,
        False for a file.
        """
        return self.profile.can_place(folder, renamed=renamed, moved=moved)

    def member_link(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> str:
        """Return the URL of an entry's web page for members of its zone. Sends no request."""

    @property
    def places(self) -> int:
        """Maximum number of concurrent metadata requests."""

    @property
    def underway(self) -> int:
        """Number of metadata requests in progress."""

    async def zones(self) -> list[Zone]:
        """Return all zones of the user, including those not accessible through the API."""
        return (await self.listed_zones()).zones

    async def listed_zones(self) -> ListedZones:
        """Return all zones, and the ids of zones that the service described incompletely."""

    async def listing(self, zone_id: str, folder_id: str) -> list[Entry]:
        """Return the entries of a folder, from all pages, in the service's order.

        Deleted entries are left out, and each id occurs once.
        """
        return (await self.listed(zone_id, folder_id)).entries()

    async def listed(self, zone_id: str, folder_id: str) -> Listed:
        """Return the listing of a folder; each entry is parsed on first access."""

    async def entry(self, zone_id: str, file_id: str) -> Entry:
        """Return the entry with the id `file_id`, even if it is deleted (see `Entry.deleted`)."""

    async def upload(self, zone_id: str, folder_id: str, name: str, data: bytes) -> Entry:
        """Upload `data` as the file `name`, and return the resulting entry.

        Use this method for small files only: unlike `transfer.upload`, it uses no thread and no
        rate limit. Raises ReplyLost if the effect is unknown.
        """

    async def content(self, zone_id: str, file_id: str, size: int) -> bytes:
        """Return the whole content of a small file; larger files need `transfer`.

        Raises BadAnswer if the content has more than `size` bytes. No more than `size` bytes are
        held in memory.
        """

    async def make_folder(self, zone_id: str, parent_id: str, name: str) -> Entry:
        """Create a folder and return its entry. Raises AlreadyExists if the name is taken."""

    async def move(
        self, zone_id: str, entry_id: str, parent_id: str, name: str, *, folder: bool | None = None
    ) -> Entry:
        """Rename an entry, move it within its zone, or both; return the changed entry.

        `parent_id` and `name` are the entry's new parent and new name. Here and in the methods
        below, `folder` is True for a folder, False for a file, and None if unknown; some profiles
        have separate endpoints for files and folders.
        """

    async def delete(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Move an entry to the service's trash; a folder is moved with all its content."""

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        """Restore an entry from the trash, and return the restored entry."""

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Delete an entry permanently."""

    async def versions(self, zone_id: str, file_id: str) -> list[Version]:
        """Return all versions of a file, newest first."""

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        """Return the entries in a zone's trash with their deletion time in ns (0: unknown)."""

    async def levels(self) -> dict[str, str]:
        """Return the user's access level in each zone, by zone id; for example Add or Modify."""

    async def probe(self, state: State) -> None:
        """Send a request that shows whether `state` still applies.

        The request changes nothing, and its result is reported to `Connectivity`. Raises no
        RemoteError. See `Connectivity.run`.
        """
