"""Interface to the service as typed methods.

Knows nothing about HTTP, inodes, the kernel, caches or the outbox. `http_service` implements it.
No message contains a name, because errors are stored and logged in places where names are not
allowed.
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
    """Streams of content. Every method blocks, so it is called in a worker thread."""

    def download(
        self,
        zone_id: str,
        file_id: str,
        *,
        offset: int = 0,
        end: int | None = None,
        version: str | None = None,
    ) -> "Download":
        """Return the content of a file from `offset` up to `end`, as a context manager.

        Opening is retried a few times. A service that ignores ranges sends everything: see
        `Download.offset`. `version` names an old version. Raises NotSupported for an old version if
        the profile has no version_content.
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

        The request is sent once and never retried, except after a renewal of the logon if `body` is
        repeatable. Raises ReplyLost if everything was sent but the result is unknown (also if the
        answer cannot be read), Interrupted or another Unreachable if the upload certainly had no
        effect, Cancelled once `cancelled()` is true, StoreError if `body` does not have `size`
        bytes, and the error of a rejection.
        """

    def prepare(self) -> None:
        """Open a connection, because a download is likely to follow. Errors are ignored."""

    def hang_up(self) -> None:
        """Abort all current and future transfers at once; they end with Interrupted."""


class Service(Protocol):
    """One deployment, accessed as one user. All methods may run concurrently on one trio loop.

    Every method raises subclasses of errors.RemoteError. A method without an endpoint in the
    profile raises NotSupported at once. Reading methods retry a few times, changing methods never
    do.
    """

    link: Connectivity
    transfer: Transfers
    profile: Profile

    async def aclose(self) -> None:
        """Close all connections; running transfers end with Interrupted."""

    async def reconnect(self, *, dead: bool) -> None:
        """Stop using the existing connections and probe the service at once.

        Call this after a suspend or a change of network. `dead`: also abort the connections in use,
        because no more data can arrive on them.
        """

    def can(self, operation: str, *, folder: bool | None = None) -> bool:
        """Return True if the profile defines `operation`, one of operations.OPERATIONS.

        `folder` selects the variant for folders or for files; None accepts either.
        """
        return self.profile.can(operation, folder=folder)

    def can_place(self, *, folder: bool, renamed: bool, moved: bool) -> bool:
        """Return True if `move` can change the name, the parent, or both, as requested."""
        return self.profile.can_place(folder, renamed=renamed, moved=moved)

    def member_link(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> str:
        """Return the address of an entry's page for members of its zone."""

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
        """Return all zones, with information on what the service left out."""

    async def listing(self, zone_id: str, folder_id: str) -> list[Entry]:
        """Return the entries of a folder, from all pages, in the service's order.

        Deleted entries are left out, and each id occurs once.
        """
        return (await self.listed(zone_id, folder_id)).entries()

    async def listed(self, zone_id: str, folder_id: str) -> Listed:
        """Return the listing of a folder; each entry is parsed on first access."""

    async def entry(self, zone_id: str, file_id: str) -> Entry:
        """Return one file or folder; it may be a deleted one, see Entry.deleted."""

    async def upload(self, zone_id: str, folder_id: str, name: str, data: bytes) -> Entry:
        """Upload a small file without a thread and without the rate limit of `transfer.upload`."""

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
        """Rename an entry, move it within its zone, or both.

        `parent_id` and `name` are the new ones. Here and in the methods below, `folder` says
        whether the entry is a folder, for profiles that distinguish files from folders.
        """

    async def delete(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Move an entry to the service's trash; a folder is moved with all its content."""

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        """Restore an entry from the trash."""

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """Delete an entry permanently."""

    async def versions(self, zone_id: str, file_id: str) -> list[Version]:
        """Return all versions of a file, newest first."""

    async def deletions(self, zone_id: str) -> list[tuple[Entry, int]]:
        """Return the entries in a zone's trash with their deletion time in ns (0: unknown)."""

    async def levels(self) -> dict[str, str]:
        """Return the user's access level per zone id, in the service's words: Add, Modify, …"""

    async def probe(self, state: State) -> None:
        """Send a harmless request to find out whether `state` has ended. See Connectivity.run."""
