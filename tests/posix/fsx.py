"""Random operations on one file, compared byte by byte with a model in memory.

    python -m tests.posix.fsx --operations 200000 --seed 1 DIR

Works on any file system. An operation is complete in itself, so every part of a list of operations
can be run, too, and a failing list can be shortened.

INVARIANT: a run depends on its seed alone, not on time.
"""

import argparse
import contextlib
import errno
import hashlib
import itertools
import mmap
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

LARGEST = 300_000  # bytes: several chunks of any buffering below
EDGES = (0, 1, 511, 512, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 196_608)
LONGEST_SHRUNK = 2000  # operations
KEPT_IN_MIND = 4000  # digests of former states


class Op(NamedTuple):
    """Single operation; values out of range are fitted to the file when it runs."""

    kind: str
    offset: int
    length: int
    seed: int

    def data(self) -> bytes:
        """Return the bytes that the operation writes."""
        return random.Random(self.seed).randbytes(self.length)


class Mismatch(AssertionError):
    """Difference between the file and the model."""


def operations(seed: int, count: int, leave_out: Sequence[str] = ()) -> Iterator[Op]:
    """Yield `count` operations."""
    chance = random.Random(seed)
    kinds = [kind for kind in WEIGHTS if kind not in leave_out]
    weights = [WEIGHTS[kind] for kind in kinds]
    for _ in range(count):
        kind = chance.choices(kinds, weights)[0]
        offset = chance.choice(EDGES) if chance.random() < 0.3 else chance.randrange(LARGEST)
        length = min(int(chance.expovariate(1 / 6000)), 140_000)
        if chance.random() < 0.2:
            length = chance.choice(EDGES)
        yield Op(kind, min(offset, LARGEST - 1), length, chance.getrandbits(32))


class Exerciser:
    """File, its model, and the descriptors on it."""

    def __init__(self, path: Path, start: bytes = b"") -> None:
        """Use the file at `path`, which contains `start` already, or create it."""
        self.path = path
        self._other = path.with_name(f"{path.name}.other")
        self.model = bytearray(start)
        self._fd: int | None = None
        self._reader: int | None = None
        self._before: tuple[int, int] | None = None  # mtime and ino, while nothing is written
        # Digests of what stood there when nobody had it open for writing: what may be a version.
        self.whole: deque[bytes] = deque([hashlib.sha256(start).digest()], KEPT_IN_MIND)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._settled()

    def run(self, many: Iterable[Op]) -> None:
        """Run all operations, then compare everything. Raises Mismatch, or OSError."""
        for op in many:
            getattr(self, op.kind)(op)
        self.close(Op("close", 0, 0, 0))
        self._compare(self.path.read_bytes(), bytes(self.model), 0, "the file at the end")

    def close_descriptors(self) -> None:
        """Close the open descriptors in any state."""
        for descriptor in (self._fd, self._reader):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._fd = self._reader = None

    # ---- reading ----

    def read(self, op: Op) -> None:
        offset = self._fit(op.offset)
        found = os.pread(self._open(), op.length, offset)
        self._compare(found, bytes(self.model[offset : offset + op.length]), offset, "pread")

    def readv(self, op: Op) -> None:
        offset = self._fit(op.offset)
        parts = [bytearray(op.length // 3), bytearray(1), bytearray(op.length // 2)]
        count = os.preadv(self._open(), parts, offset)
        found = b"".join(parts)[:count]
        expected = bytes(self.model[offset : offset + sum(map(len, parts))])
        self._compare(found, expected, offset, "preadv")

    def read_elsewhere(self, op: Op) -> None:
        """Read through a read-only descriptor that stays open during all operations."""
        if self._reader is None:
            self._reader = os.open(self.path, os.O_RDONLY)
        offset = self._fit(op.offset)
        found = os.pread(self._reader, op.length, offset)
        self._compare(
            found, bytes(self.model[offset : offset + op.length]), offset, "another descriptor"
        )

    def map_read(self, op: Op) -> None:
        if not self.model:
            return
        offset = self._fit(op.offset)
        with mmap.mmap(self._open(), len(self.model), prot=mmap.PROT_READ) as memory:
            found = memory[offset : offset + op.length]
        self._compare(found, bytes(self.model[offset : offset + op.length]), offset, "a mapping")

    def stat(self, op: Op) -> None:
        """Check the exact size, and that time and inode are stable while no program writes."""
        for found in (self.path.stat(), os.fstat(self._open())):
            if found.st_size != len(self.model):
                raise Mismatch(f"stat says {found.st_size} bytes, not {len(self.model)}")
            if found.st_nlink != 1:
                raise Mismatch(f"{found.st_nlink} links")
            now = (found.st_mtime_ns, found.st_ino)
            if self._before not in (None, now):
                raise Mismatch(f"mtime and inode went from {self._before} to {now} by themselves")
            self._before = now

    # ---- writing ----

    def write(self, op: Op) -> None:
        self._put(op.offset, op.data(), lambda data: os.pwrite(self._open(), data, op.offset))

    def writev(self, op: Op) -> None:
        def write(data: bytes) -> int:
            cut = len(data) // 3
            return os.pwritev(self._open(), [data[:cut], b"", data[cut:]], op.offset)

        self._put(op.offset, op.data(), write)

    def append(self, op: Op) -> None:
        """Append through a descriptor of its own, while others are open."""
        if len(self.model) + op.length > LARGEST:
            return
        with self._opened(os.O_WRONLY | os.O_APPEND) as descriptor:
            self._put(len(self.model), op.data(), lambda data: os.write(descriptor, data))

    def map_write(self, op: Op) -> None:
        self._map(self._open(), op)

    def map_write_closed(self, op: Op) -> None:
        """Write through a mapping whose descriptor is already closed."""
        descriptor = os.open(self.path, os.O_RDWR)
        self._map(descriptor, op, close=True)
        self._settled()

    def map_write_appending(self, op: Op) -> None:
        """Write through a mapping with O_APPEND, which affects only write(2)."""
        with self._opened(os.O_RDWR | os.O_APPEND) as descriptor:
            self._map(descriptor, op)

    def map_private(self, op: Op) -> None:
        """Check that writes to a private mapping are visible only there."""
        if not self.model:
            return
        offset = self._fit(op.offset)
        with mmap.mmap(self._open(), 0, flags=mmap.MAP_PRIVATE) as memory:
            data = op.data()[: len(self.model) - offset]
            memory[offset : offset + len(data)] = data
        self.read(op)

    def truncate(self, op: Op) -> None:
        """Truncate the file by its name, while it may be open."""
        self._resize(op.offset, lambda size: os.truncate(self.path, size))
        self._settled()

    def ftruncate(self, op: Op) -> None:
        self._resize(op.offset, lambda size: os.ftruncate(self._open(), size))

    def rewrite(self, op: Op) -> None:
        """Write the whole file again after O_TRUNC."""
        with self._opened(os.O_WRONLY | os.O_TRUNC) as descriptor:
            self.model.clear()
            self._put(0, op.data(), lambda data: os.write(descriptor, data))

    # ---- keeping and naming ----

    def fsync(self, op: Op) -> None:
        os.fsync(self._open())

    def close(self, op: Op) -> None:
        """Close all descriptors."""
        for descriptor in (self._fd, self._reader):
            if descriptor is not None:
                os.close(descriptor)
        self._fd = self._reader = None
        self._settled()

    def rename(self, op: Op) -> None:
        """Rename the file and rename it back, if the file system can rename."""
        with self._or_refused():
            self.path.rename(self._other)
            self.stat_at(self._other)
            self._other.rename(self.path)

    def replace(self, op: Op) -> None:
        """Replace the file by a new one; an open descriptor keeps the old one."""
        self.close(op)
        kept = os.open(self.path, os.O_RDONLY)
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_bytes(op.data())
        offset = self._fit(op.offset)
        expected = bytes(self.model[offset : offset + 5000])
        try:
            with self._or_refused():
                new.rename(self.path)
                self.model[:] = op.data()
                self._before = None
            self._compare(os.pread(kept, 5000, offset), expected, offset, "the replaced file")
        finally:
            os.close(kept)
        self._settled()

    def stat_at(self, path: Path) -> None:
        """Check the size under another name."""
        if (size := path.stat().st_size) != len(self.model):
            raise Mismatch(f"stat says {size} bytes under another name, not {len(self.model)}")

    # ---- inside ----

    def _open(self) -> int:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR)
        return self._fd

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        descriptor = os.open(self.path, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        self._settled()

    @staticmethod
    @contextlib.contextmanager
    def _or_refused() -> Iterator[None]:
        try:
            yield
        except PermissionError as refused:
            if refused.errno != errno.EPERM:
                raise

    def _fit(self, offset: int) -> int:
        return offset % len(self.model) if self.model else 0

    def _put(self, offset: int, data: bytes, write: Callable[[bytes], int]) -> None:
        data = data[: LARGEST - offset]
        if (count := write(data)) != len(data):
            raise Mismatch(f"{count} of {len(data)} bytes were written")
        if data:
            self.model.extend(bytes(max(0, offset - len(self.model))))
            self.model[offset : offset + len(data)] = data
        self._before = None

    def _resize(self, size: int, cut: Callable[[int], None]) -> None:
        cut(size)
        del self.model[size:]
        self.model.extend(bytes(size - len(self.model)))
        self._before = None

    def _map(self, descriptor: int, op: Op, *, close: bool = False) -> None:
        size = len(self.model)
        offset = self._fit(op.offset)
        data = op.data()[: size - offset]
        try:
            memory = mmap.mmap(descriptor, size) if size else None
        finally:
            if close:
                os.close(descriptor)
        if memory is None:
            return
        with memory:
            memory[offset : offset + len(data)] = data
            if op.seed % 3:
                memory.flush()
        self.model[offset : offset + len(data)] = data
        if not close:
            os.fsync(descriptor)
        self._before = None

    def _settled(self) -> None:
        if self._fd is None:
            self.whole.append(hashlib.sha256(self.model).digest())

    @staticmethod
    def _compare(found: bytes, expected: bytes, offset: int, where: str) -> None:
        if found == expected:
            return
        if len(found) != len(expected):
            raise Mismatch(f"{where} at {offset}: {len(found)} bytes, not {len(expected)}")
        wrong = [at for at in range(len(found)) if found[at] != expected[at]]
        raise Mismatch(
            f"{where}: {len(wrong)} bytes are wrong between {offset + wrong[0]} and "
            f"{offset + wrong[-1]}: {found[wrong[0]]:#x} instead of {expected[wrong[0]]:#x}"
        )


WEIGHTS = {
    "read": 10, "readv": 3, "read_elsewhere": 5, "map_read": 5, "stat": 8,
    "write": 12, "writev": 3, "append": 4, "map_write": 5, "map_write_closed": 2,
    "map_write_appending": 1, "map_private": 2, "truncate": 2, "ftruncate": 3, "rewrite": 1,
    "fsync": 1, "close": 5, "rename": 1, "replace": 1,
}  # fmt: skip


def fails(path: Path, start: bytes, ops: Sequence[Op]) -> str:
    """Return the error of `ops` on a new file at `path`; empty if they succeed."""
    path.write_bytes(start)
    exerciser = Exerciser(path, start)
    try:
        exerciser.run(ops)
    except (Mismatch, OSError, ValueError) as wrong:  # ValueError: mmap, of a size that is wrong
        return f"{type(wrong).__name__}: {wrong}"
    finally:
        exerciser.close_descriptors()
    return ""


def shrink(path: Path, start: bytes, ops: Sequence[Op], tries: int = 300) -> list[Op]:
    """Return a shorter list of `ops` that still fails; each try has its own file next to `path`."""
    left = list(ops)
    numbers = itertools.count()
    step = max(len(left) // 2, 1)
    while step and tries:
        position = 0
        while position < len(left) and tries:
            tries -= 1
            shorter = left[:position] + left[position + step :]
            if fails(path.with_name(f"{path.name}.{next(numbers)}"), start, shorter):
                left = shorter
            else:
                position += step
        step //= 2
    return left


def exercise(path: Path, ops: Sequence[Op], start: bytes = b"") -> Exerciser:
    """Run `ops` at `path`.  Raises Mismatch with the shortest list found that still fails."""
    exerciser = Exerciser(path, start)
    done: list[Op] = []
    try:
        exerciser.run(_noted(ops, done))
    except (Mismatch, OSError, ValueError) as wrong:
        exerciser.close_descriptors()
        short = shrink(path, start, done[-LONGEST_SHRUNK:])
        last, text = ("\n".join(map(repr, many)) for many in (done[-20:], short))
        raise Mismatch(
            f"after {len(done)} operations: {wrong}\nthe last:\n{last}\nshortest:\n{text}"
        ) from wrong
    return exerciser


def _noted(ops: Iterable[Op], done: list[Op]) -> Iterator[Op]:
    for op in ops:
        done.append(op)
        yield op


def main(words: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.posix.fsx", description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", action="append", default=[], choices=list(WEIGHTS))
    parser.add_argument("dir", type=Path)
    chosen = parser.parse_args(words)
    path = chosen.dir / f"fsx-{chosen.seed}-{os.getpid()}.bin"
    began = time.monotonic()
    try:
        exercise(path, list(operations(chosen.seed, chosen.operations, chosen.without)))
    except Mismatch as wrong:
        print(wrong)
        return 1
    print(f"{chosen.operations} operations in {time.monotonic() - began:.1f} s, all as they should")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
