"""Client of the daemons, which caches the states of entries and keeps them up to date.

The client runs in the event loop of another program, such as a file manager. The client uses
non-blocking sockets and no threads, because a file manager's embedded Python does not let threads
run.

INVARIANT: in such a program, only `soon` blocks, for at most the time that the caller specifies.
The functions `blocking` and `serving` are for separate processes. A daemon that does not answer in
time is disconnected, and its entries have no states until the daemon answers again.
"""

import json
import select
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from . import mounts

ANSWER_SECONDS = 5.0  # longest time for an answer
FIRST_RETRY_SECONDS = 0.5  # first pause before another search for daemons; the pause doubles
LONGEST_RETRY_SECONDS = 60.0
GATHER_SECONDS = 0.01  # queries that arrive within this time share a request
BATCH = 500  # maximum number of paths in a request
BATCH_BYTES = 60_000  # maximum bytes of a request's paths; the socket's buffer has room for them
CHUNK = 65_536  # bytes that are read at a time
MOST_ENTRIES = 50_000  # maximum number of cached states


class Entry(NamedTuple):
    """State of one entry, as the daemon reports it."""

    state: str
    folder: bool
    kept: bool  # True for a pinned entry
    missing: bool = False  # True for a pinned file whose content is not on this machine yet


class Loop(Protocol):
    """Interface to the event loop of the program."""

    def watch(self, fd: int, urgent: bool, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever `fd` is readable or, if `urgent`, has an exceptional condition.

        Return a function that ends the calls.
        """

    def later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once after `seconds`; return a function that cancels the call."""


class Lines:
    """Connection to a daemon that sends and receives JSON objects, one per line."""

    def __init__(
        self, path: Path, loop: Loop, received: Callable[[Any], None], ended: Callable[[], None]
    ) -> None:
        """Connect to the socket `path`. Raises OSError if no daemon accepts the connection.

        `received` is called with each JSON object, and `ended` once when the connection is lost.
        """
        self._socket = mounts.connect(path)
        self._received, self._ended = received, ended
        self._buffer = bytearray()
        self._unwatch = loop.watch(self._socket.fileno(), False, self.read)

    def send(self, request: dict[str, object]) -> None:
        """Send a request; close the connection if the socket does not accept all bytes at once."""
        line = json.dumps(request).encode("ascii") + b"\n"
        try:
            if self._socket.send(line) != len(line):
                self._end()
        except OSError:
            self._end()

    def read(self) -> None:
        """Read from the socket without waiting, and handle each complete line."""
        try:
            chunk = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._end()
            return
        self._buffer += chunk
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                self._end()
                return
            self._received(message)

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for data, and handle the complete lines."""
        if not self.is_open:
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if poll.poll(1000 * seconds):
            self.read()

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def _end(self) -> None:
        if self.is_open:
            self.close()
            self._ended()

    def close(self) -> None:
        """Close the connection."""
        if self.is_open:
            self._unwatch()
            self._socket.close()


class Daemon:
    """Daemon of one mount, with a connection for queries and a connection for change reports."""

    def __init__(self, path: Path, client: "Client", loop: Loop) -> None:
        """Open both connections, and request change reports.

        Raises OSError if the daemon does not accept the connections.
        """
        self.path = path
        self.mount = ""  # mount point, once the daemon has reported it
        self.account = ""
        self.title = ""  # name of the account, for the user
        self.can: frozenset[str] = frozenset()
        self.link = "online"  # or "offline" or "logon-required"
        self.paused = False  # the uploads are paused
        self.counts: dict[str, int] = {}
        self.queue: dict[str, None] = {}  # paths to ask for, in order
        self.asked: list[str] = []  # paths of the request in progress
        self._client, self._loop = client, loop
        self._cancel: Callable[[], None] = lambda: None
        self._changes = Lines(path, loop, self._change, self._lost)
        try:
            self._questions = Lines(path, loop, self._answer, self._lost)
        except OSError:
            self._changes.close()
            raise
        self._expect()
        self._changes.send({"command": "watch"})
        if not self._changes.is_open:
            raise ConnectionResetError("the daemon ended")

    def ask(self) -> None:
        """Request the states of the next queued paths, unless a request is in progress."""
        if self.asked or not self.queue or not self.mount or not self._questions.is_open:
            return
        size = 0
        for path in self.queue:
            size += len(json.dumps(path))
            if len(self.asked) == BATCH or (size > BATCH_BYTES and self.asked):
                break
            self.asked.append(path)
        for path in self.asked:
            del self.queue[path]
        self._expect()
        self._questions.send({"command": "states", "paths": self.asked})

    def wait(self, paths: Iterable[str], seconds: float) -> None:
        """Wait up to `seconds` until the daemon has answered the queries for these paths."""
        end = time.monotonic() + seconds
        wanted = set(paths)
        while wanted & (self.queue.keys() | set(self.asked)):
            left = end - time.monotonic()
            if left <= 0 or not self._questions.is_open:
                return
            self._questions.wait(left)

    def close(self) -> None:
        """Close both connections."""
        self._cancel()
        self._changes.close()
        self._questions.close()

    def _expect(self) -> None:
        """Restart the timeout for the daemon's next answer."""
        self._cancel()
        self._cancel = self._loop.later(ANSWER_SECONDS, self._lost)

    def _answer(self, message: Any) -> None:
        asked, self.asked = self.asked, []
        self._cancel()
        self._client.learn(asked, message.get("states", []))
        self.ask()

    def _change(self, message: Any) -> None:
        if "error" in message or message.get("done"):  # an older daemon, or the end of the mount
            self._lost()
            return
        self.link, self.counts = str(message["link"]), dict(message["counts"])
        self.paused = bool(message.get("paused", False))
        if "mountpoint" in message:
            self._cancel()
            self.mount, self.account = str(message["mountpoint"]), str(message["account"])
            self.title = str(message.get("title", self.account))
            self.can = frozenset(message["can"])
            self._client.introduce()
        self._client.change(self, message.get("changed", {}), bool(message.get("everything")))

    def _lost(self) -> None:
        self.close()
        self._client.lose(self)


class Client:
    """Cached states of the entries of all mounts, and the connections to the daemons."""

    def __init__(self, loop: Loop, on_change: Callable[[list[str]], None]) -> None:
        """Connect to the daemons; `on_change` is called with paths whose states have changed."""
        self._loop, self._on_change = loop, on_change
        self._entries: dict[str, Entry] = {}
        self._daemons: dict[Path, Daemon] = {}
        self._prefixes: tuple[str, ...] = ()
        self._waiting: dict[str, None] = {}  # requested paths, not yet in a daemon's queue
        self._gathering = False
        self._retry = FIRST_RETRY_SECONDS
        self._cancel_retry: Callable[[], None] = lambda: None
        self._table = mounts.MOUNTINFO.open("rb", buffering=0)
        self._unwatch = loop.watch(self._table.fileno(), True, self.look)
        self.look()

    # ---- queries ----

    def is_inside(self, path: str) -> bool:
        """Return True if the path is a mount point or below a mount point."""
        return f"{path}/".startswith(self._prefixes)

    def entry(self, path: str) -> Entry | None:
        """Return the cached state of the entry at `path`, or None if it is not cached.

        If the state is not cached, request it from the daemon. A path outside mounts has no state.
        """
        if not self.is_inside(path):
            return None
        found = self._entries.get(path)
        if found is None:
            self._waiting[path] = None
            if not self._gathering:
                self._gathering = True
                self._loop.later(GATHER_SECONDS, self._distribute)
        return found

    def soon(self, paths: Iterable[str], seconds: float) -> dict[str, Entry]:
        """Return the states of the entries at `paths`, keyed by path.

        Wait up to `seconds` for states that are not cached. States that do not arrive in time are
        left out.
        """
        wanted = list(paths)
        unknown = [path for path in wanted if self.entry(path) is None and self.is_inside(path)]
        if unknown:
            self._distribute()
            end = time.monotonic() + seconds
            for daemon in list(self._daemons.values()):
                daemon.wait(unknown, max(0.0, end - time.monotonic()))
        return {path: self._entries[path] for path in wanted if path in self._entries}

    def daemon(self, path: str) -> Daemon | None:
        """Return the connected daemon whose mount contains the path, or None."""
        for each in self._daemons.values():
            if each.mount and f"{path}/".startswith(f"{each.mount}/"):
                return each
        return None

    def daemons(self) -> list[Daemon]:
        """Return the connected daemons that have reported their mount points."""
        return [each for each in self._daemons.values() if each.mount]

    @property
    def is_complete(self) -> bool:
        """True if each connected daemon has reported its mount point."""
        return all(each.mount for each in self._daemons.values())

    def request(
        self, daemon: Daemon, request: dict[str, object], answered: Callable[[dict[str, Any]], None]
    ) -> None:
        """Send a request to a daemon on a separate connection, and call `answered` once.

        `answered` gets the answer, or {} if none arrives within ANSWER_SECONDS seconds.
        """

        def end(message: dict[str, Any]) -> None:
            cancel()
            lines.close()
            answered(message)

        try:
            lines = Lines(daemon.path, self._loop, end, lambda: end({}))
        except OSError:
            answered({})
            return
        cancel = self._loop.later(ANSWER_SECONDS, lambda: end({}))
        lines.send(request)

    def close(self) -> None:
        """Close all connections and the mount table."""
        self._cancel_retry()
        self._unwatch()
        self._table.close()
        for daemon in self._daemons.values():
            daemon.close()

    # ---- mounts and daemons ----

    def look(self) -> None:
        """Read the mount table, and connect to the daemons that are not connected.

        Schedule another call to this method if a mount point has not been reported by a connected
        daemon yet.
        """
        self._table.seek(0)
        chunks = iter(lambda: self._table.read(CHUNK), b"")
        points = mounts.mount_points(b"".join(chunks))
        self._prefixes = tuple(f"{point}/" for point in points)
        known = {daemon.mount for daemon in self._daemons.values() if daemon.mount}
        for path in mounts.sockets() if set(points) - known else ():
            if path not in self._daemons:
                try:
                    self._daemons[path] = Daemon(path, self, self._loop)
                except OSError:
                    continue
        self._cancel_retry()
        if set(points) - known:
            self._cancel_retry = self._loop.later(self._retry, self.look)
            self._retry = min(2 * self._retry, LONGEST_RETRY_SECONDS)
        else:
            self._retry = FIRST_RETRY_SECONDS

    def introduce(self) -> None:
        """Request the states of paths that waited until a daemon reported its mount point."""
        self._retry = FIRST_RETRY_SECONDS
        self._distribute()

    def lose(self, daemon: Daemon) -> None:
        """Remove a daemon that has ended or does not answer, and the states of its entries."""
        if self._daemons.pop(daemon.path, None) is None:
            return
        gone = self._below(daemon)
        for path in gone:
            del self._entries[path]
        if daemon.mount:  # a daemon that has answered before: do not wait for the longest pause
            self._retry = FIRST_RETRY_SECONDS
        self._cancel_retry()
        self._cancel_retry = self._loop.later(self._retry, self.look)
        self._on_change([*gone, *([daemon.mount] if daemon.mount else [])])

    # ---- answers ----

    def learn(self, paths: list[str], states: list[Any]) -> None:
        """Store the states that a daemon has returned for `paths`; None removes a stored state."""
        changed = []
        for path, state in zip(paths, states, strict=False):
            if state is None:
                if self._entries.pop(path, None) is not None:
                    changed.append(path)
                continue
            # A daemon of an earlier version does not send `missing`.
            entry = Entry(*(state.get(name, False) for name in Entry._fields))
            if self._entries.get(path) != entry:
                self._entries[path] = entry
                changed.append(path)
        while len(self._entries) > MOST_ENTRIES:
            del self._entries[next(iter(self._entries))]
        if changed:
            self._on_change(changed)

    def change(self, daemon: Daemon, changed: dict[str, Any], everything: bool) -> None:
        """Store the changes that a daemon reports for entries whose states are cached.

        If `everything` is True, query all cached states of the mount again. A changed entry whose
        state is being queried is queried again, too. `on_change` always includes the mount point,
        because the mount's entry counts, its connection to the service or the pause of its uploads
        may have changed.
        """
        news = {
            f"{daemon.mount}/{path}" if path else daemon.mount: state
            for path, state in changed.items()
        }
        known = {path: state for path, state in news.items() if path in self._entries}
        if known:
            self.learn(list(known), list(known.values()))
        again = self._below(daemon) if everything else []
        # The answer to the request in progress may be older than this report.
        again += [path for path in daemon.asked if everything or path in news]
        daemon.queue.update(dict.fromkeys(again))
        daemon.ask()
        self._on_change([daemon.mount])

    def _below(self, daemon: Daemon) -> list[str]:
        prefix = f"{daemon.mount}/"
        return [path for path in self._entries if f"{path}/".startswith(prefix)]

    def _distribute(self) -> None:
        """Queue the requested paths for their daemons; keep paths without a connected daemon."""
        self._gathering = False
        waiting, self._waiting = self._waiting, {}
        for path in waiting:
            daemon = self.daemon(path)
            if daemon is not None:
                daemon.queue[path] = None
            elif len(self._waiting) < MOST_ENTRIES:
                self._waiting[path] = None
        for daemon in list(self._daemons.values()):  # one that has ended is removed
            daemon.ask()


def blocking(path: Path, request: dict[str, object], silence: float) -> dict[str, Any]:
    """Send a request to the daemon with the socket `path`, and return the last line of its answer.

    `silence` is the maximum time between two lines, in seconds. Raises TimeoutError if a line takes
    longer, OSError if the connection fails, and ValueError if a line is not JSON.
    """
    for message in _lines(path, request, silence):
        if message.get("done") or "error" in message:
            return message
    raise ConnectionResetError("the daemon ended")


class Mount(NamedTuple):
    """Mounted account."""

    socket: Path  # of its daemon
    folder: str

    def has(self, path: str) -> bool:
        """Return True if an absolute path is the mount's folder or below it."""
        return f"{path}/".startswith(f"{self.folder}/")


def serving(path: str) -> Mount | None:
    """Return the mount that contains the path, or None if no daemon reports such a mount."""
    for each in mounts.sockets():
        try:
            first = next(_lines(each, {"command": "watch"}, ANSWER_SECONDS), {})
        except (OSError, ValueError):
            continue
        if (folder := first.get("mountpoint")) and (mount := Mount(each, folder)).has(path):
            return mount
    return None


def _lines(path: Path, request: dict[str, object], silence: float) -> Iterator[dict[str, Any]]:
    with mounts.connect(path) as connection:
        connection.settimeout(silence)
        connection.sendall(json.dumps(request).encode("ascii") + b"\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                yield json.loads(line)
