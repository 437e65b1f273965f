"""File system in memory behind the real handlers and a real mount, in a separate process.

`python -m tests.unit.fuse.memory DIR [OPTION...]` mounts it at DIR.  It prints `mounted`, executes
one line of JSON from standard input at a time, and answers each with a line on standard output:

    {"put": "name", "data": "text"}     change or create a file without the kernel, and notify
                                        the kernel unless "quietly"; or many: ["name", ...]
    {"remove": "name"}                  remove it likewise
    {"stall": ["lookup", ...]}          these operations hang from now on
    {"hold": "x"}                       reads of content that begins so hang; "" ends that
    {"fail": {"open": "NotLoggedOn"}}   these operations raise this error
    {"seen": true}                      the calls so far, and the lookup counts
"""

import errno
import json
import logging
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import trio

from zonedrive import errors
from zonedrive.fuse.mount import Session
from zonedrive.fuse.mountpoint import check
from zonedrive.fuse.options import parse
from zonedrive.state.attributes import Attr
from zonedrive.state.invalidation import EntryChanged, EntryGone, InodeChanged, Invalidation
from zonedrive.state.open_file import Opened
from zonedrive.supervisor import Supervisor
from zonedrive.vfs.namespace import Listed
from zonedrive.views.stack import FileSystem

ROOT = 1
SOURCE = "https://memory.example:8443/a,b"


def _attr(ino: int, mode: int, size: int = 0) -> Attr:
    """Return the stat fields of a new inode."""
    past = 1_700_000_000_000_000_000
    return Attr(
        ino, mode, 1, size, mtime_ns=past + 123_456_789, ctime_ns=past, atime_ns=past,
        uid=os.getuid(), gid=os.getgid(), entry_timeout=300.0, attr_timeout=300.0,
    )  # fmt: skip


class Memory:
    """File system in memory with the operations of `FileSystem` that `fuse` calls."""

    def __init__(self) -> None:
        self.attrs = {ROOT: _attr(ROOT, stat.S_IFDIR | 0o755)}
        self.data: dict[int, bytearray] = {}
        self.children: dict[int, dict[bytes, int]] = {ROOT: {}}
        self.lookups: Counter[int] = Counter()
        self.calls: Counter[str] = Counter()
        self.stalled: set[str] = set()
        self.held = b""
        self.going_on = trio.Event()
        self.failing: dict[str, str] = {}
        self.flags: list[int] = []
        self.listings: dict[int, tuple[str, list[str]]] = {}  # what they were made of, and names
        self.send, self.invalidations = trio.open_memory_channel[Invalidation](1000)

    async def _called(self, verb: str) -> None:
        self.calls[verb] += 1
        if verb in self.failing:
            name = self.failing[verb]
            if name == "KeyError":
                raise KeyError(name)
            kind = getattr(errors, name)
            raise kind("as told")
        if verb in self.stalled:
            await trio.sleep_forever()

    def _child(self, parent: int, name: bytes) -> int:
        try:
            return self.children[parent][name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such name") from None

    def add(self, parent: int, name: bytes, mode: int, data: bytes = b"") -> Attr:
        """Add an entry."""
        ino = len(self.attrs) + 1  # none is ever removed
        self.attrs[ino] = _attr(ino, mode, len(data))
        self.children[parent][name] = ino
        if stat.S_ISDIR(mode):
            self.children[ino] = {}
        else:
            self.data[ino] = bytearray(data)
        return self.attrs[ino]

    async def lookup(self, parent: int, name: bytes) -> Attr:
        await self._called("lookup")
        self.calls[f"lookup {os.fsdecode(name)}"] += 1
        if name == b"never":  # a name that the kernel may know not to exist
            return _attr(0, 0)
        ino = self._child(parent, name)
        self.lookups[ino] += 1
        return self.attrs[ino]

    def forget(self, ino: int, count: int) -> None:
        self.lookups[ino] -= count

    def remember(self, inos: Collection[int]) -> None:
        self.lookups.update(inos)

    async def getattr(self, ino: int) -> Attr:
        await self._called("getattr")
        return self.attrs[ino]

    async def setattr(self, ino: int, *, size: int | None = None, **_times: object) -> Attr:
        await self._called("setattr")
        if size is not None:
            self._resize(ino, size)
        return self.attrs[ino]

    def _resize(self, ino: int, size: int) -> None:
        data = self.data[ino]
        del data[size:]
        data.extend(bytes(size - len(data)))
        self.attrs[ino].size = size

    async def opendir(self, ino: int) -> int:
        await self._called("opendir")
        return ino

    async def load(self, handle: int) -> None:
        await self._called("load")

    def listed(self, handle: int, start: int) -> Listed:
        found = repr([(name, self.attrs[ino]) for name, ino in self.children[handle].items()])
        if found != self.listings.get(handle, ("", []))[0]:
            names = [".", "..", *map(bytes.decode, self.children[handle])]
            self.listings[handle] = found, names
        return Listed(handle, self.listings[handle][1], 300.0)

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attr, int]]:
        self.calls["readdir"] += 1
        own = self.attrs[handle]
        entries = [(b".", own), (b"..", own)]
        entries += [(name, self.attrs[ino]) for name, ino in self.children[handle].items()]
        for number, (name, attr) in list(enumerate(entries, 1))[start:]:
            yield name, attr, number

    async def releasedir(self, handle: int) -> None:
        await self._called("releasedir")

    async def open(self, ino: int, flags: int, pid: int) -> Opened:
        await self._called("open")
        self.flags.append(flags)
        if flags & os.O_TRUNC:
            self._resize(ino, 0)
        return Opened(ino, keep_cache=True)

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Opened, Attr]:
        await self._called("create")
        attr = self.add(parent, name, stat.S_IFREG | stat.S_IMODE(mode))
        self.lookups[attr.ino] += 1
        return Opened(attr.ino, keep_cache=True), attr

    def available(self, handle: int, offset: int, size: int) -> None:
        """Return no bytes, so that every read takes the slow path."""

    async def read(self, handle: int, offset: int, size: int) -> bytes:
        await self._called("read")
        if self.held and self.data[handle].startswith(self.held):
            await self.going_on.wait()
        return bytes(self.data[handle][offset : offset + size])

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        await self._called("write")
        content = self.data[handle]
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
        self.attrs[handle].size = len(content)
        return len(data)

    async def flush(self, handle: int) -> None:
        await self._called("flush")

    async def fsync(self, handle: int) -> None:
        await self._called("fsync")

    async def release(self, handle: int) -> None:
        await self._called("release")

    async def mkdir(self, parent: int, name: bytes, mode: int) -> Attr:
        await self._called("mkdir")
        attr = self.add(parent, name, stat.S_IFDIR | stat.S_IMODE(mode))
        self.lookups[attr.ino] += 1
        return attr

    async def statfs(self) -> tuple[int, int]:
        return 4096 * 1000, 4096 * 400

    async def getxattr(self, ino: int, name: bytes) -> bytes:
        await self._called("getxattr")
        if name == b"user.zonedrive.id":
            return b"%d" % ino
        raise OSError(errno.ENODATA, "none")

    async def listxattr(self, ino: int) -> list[bytes]:
        return [b"user.zonedrive.id", b"user.zonedrive.zone"]

    async def setxattr(self, ino: int, name: bytes, value: bytes) -> None:
        raise OSError(errno.ENOTSUP, "read-only")

    # ---- orders ----

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute a command; see the module."""
        if "put" in order:
            names = [order["put"]] if isinstance(order["put"], str) else order["put"]
            for name in names:
                self._put(name.encode(), order["data"].encode(), order.get("quietly", False))
        if "remove" in order:
            name = order["remove"].encode()
            self.send.send_nowait(EntryGone(ROOT, name, self.children[ROOT].pop(name)))
        self.stalled = set(order.get("stall", self.stalled))
        self.failing = order.get("fail", self.failing)
        if "hold" in order:
            self.held = order["hold"].encode()
            self.going_on.set()
            self.going_on = trio.Event()
        named = {ino: name.decode() for name, ino in self.children[ROOT].items()}
        counts = {named[ino]: count for ino, count in self.lookups.items() if ino in named}
        return {"calls": dict(self.calls), "lookups": counts, "flags": self.flags}

    def _put(self, name: bytes, data: bytes, quietly: bool) -> None:
        ino = self.children[ROOT].get(name)
        if ino is None:
            self.add(ROOT, name, stat.S_IFREG | 0o644, data)
            if not quietly:
                self.send.send_nowait(EntryChanged(ROOT, name))
            return
        self.data[ino][:] = data
        self.attrs[ino] = msgspec.structs.replace(
            self.attrs[ino], size=len(data), mtime_ns=time.time_ns()
        )
        self.send.send_nowait(InodeChanged(ino, attr_only=False))


async def _obey(files: Memory) -> None:
    lines = os.fdopen(os.dup(0), "rb")
    while line := await trio.to_thread.run_sync(lines.readline, abandon_on_cancel=True):
        print(json.dumps(files.obey(json.loads(line))), flush=True)


async def _serve(files: Memory, session: Session) -> None:
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(15) as signals:
            await nursery.start(session.run)
            print("mounted", flush=True)
            nursery.start_soon(_obey, files)
            nursery.start_soon(_stop_at, signals, session)
            await session.ended.wait()
        nursery.cancel_scope.cancel()


async def _stop_at(signals: Any, session: Session) -> None:
    async for _ in signals:
        session.stop()


def main() -> int:
    """Run the process; print an error in one line on standard error."""
    logging.basicConfig(format="%(levelname)s %(message)s")
    files = Memory()
    try:
        options = parse(sys.argv[2:])
        session = Session(cast(FileSystem, files), check(sys.argv[1]), SOURCE, Supervisor())
        session.attach(options)
    except errors.ZonedriveError as wrong:
        print(wrong.line(), file=sys.stderr)
        return 1
    try:
        trio.run(_serve, files, session)
    finally:
        session.close()
    print("ended", flush=True)
    os._exit(0)  # a thread may still wait for standard input


if __name__ == "__main__":
    assert Path(sys.argv[1]).parent.exists()
    sys.exit(main())
