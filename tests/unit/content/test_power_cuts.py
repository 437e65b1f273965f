"""Power cuts during writes to an encrypted file that was synced before, in pieces of 64 bytes."""

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from zonedrive.content.encrypted_file import EncryptedFile
from zonedrive.content.slots import CHUNK

KEY = bytes(32)
HEAD = 4096
PIECE = 64


class PowerCut(Exception):
    """End of the machine, before a sync."""


class Disk:
    """Disk that has what was synced last, and any pieces of what was written since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note all syncs from now on."""
        self.durable = b""
        self.syncs_left = 1_000_000
        self._write = os.pwritev
        monkeypatch.setattr(os, "fsync", self._synced)
        monkeypatch.setattr(os, "pwritev", self._written)

    def _written(self, descriptor: int, parts: Sequence[bytes], offset: int, flags: int = 0) -> int:
        done = self._write(descriptor, parts, offset)
        if flags == os.RWF_DSYNC:
            self._count()
            there = os.pread(descriptor, done, offset)
            before, after = self.durable[:offset], self.durable[offset + done :]
            self.durable = before.ljust(offset, b"\0") + there + after
        return done

    def _count(self) -> None:
        self.syncs_left -= 1
        if not self.syncs_left:
            raise PowerCut

    def _synced(self, descriptor: int) -> None:
        self._count()
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file():
            self.durable = path.read_bytes()

    def read_after_a_cut(
        self, file: EncryptedFile, manifest: bytes, size: int, numbers: random.Random
    ) -> bytes:
        """Return the first `size` bytes after a power cut, given the manifest of the last sync."""
        self.syncs_left = 1_000_000
        copy = file.path.with_name("cut")
        copy.write_bytes(self._after_a_cut(file.path.read_bytes(), numbers))
        file.close()
        cut = EncryptedFile.open(copy, KEY, manifest)
        try:
            return cut.pread(0, size)
        finally:
            cut.close()

    def _after_a_cut(self, now: bytes, numbers: random.Random) -> bytes:
        """Return the content of the file after a power cut, of what it is `now`."""
        ends = [HEAD, *range(HEAD + PIECE, max(len(now), len(self.durable)), PIECE), len(now)]
        pieces = zip([0, *ends], ends, strict=False)
        return b"".join(
            numbers.choice((now, self.durable))[start:end].ljust(end - start, b"\0")
            for start, end in pieces
        )


@pytest.mark.parametrize("seed", range(30))
def test_a_truncation_that_is_not_synced_may_be_undone(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk has synced bytes, or bytes that were written later, or zeros behind them."""
    numbers, disk = random.Random(seed), Disk(monkeypatch)
    size = numbers.randrange(1, 6 * CHUNK)
    file = EncryptedFile.create(tmp_path / "file", KEY)
    file.pwrite(0, b"s" * size)
    file.sync()
    manifest = file.manifest()
    disk.syncs_left = numbers.randrange(1, 20)
    with suppress(PowerCut):
        for _ in range(numbers.randrange(1, 6)):
            file.truncate(numbers.choice((0, 0, numbers.randrange(2 * size))))
            for _ in range(numbers.randrange(3)):
                place = numbers.choice((0, file.size, numbers.randrange(size)))
                file.pwrite(place, b"l" * numbers.choice((10, 5_000, 3 * CHUNK)))
        assert not file.pread(0, file.size).strip(b"sl\0")
    found = disk.read_after_a_cut(file, manifest, size, numbers)
    assert len(found) == size
    assert not found.strip(b"sl\0")


@pytest.mark.parametrize("seed", range(30))
def test_synced_bytes_survive_later_writes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is the synced one, or one that was written to its place later."""
    numbers, disk = random.Random(seed), Disk(monkeypatch)
    size = numbers.randrange(1, 6 * CHUNK)
    synced = numbers.randbytes(size)
    file = EncryptedFile.create(tmp_path / "file", KEY)
    file.pwrite(0, synced)
    file.sync()
    manifest = file.manifest()
    may_be = [{byte} for byte in synced]
    disk.syncs_left = numbers.randrange(1, 20)
    with suppress(PowerCut):
        for _ in range(numbers.randrange(1, 20)):
            start = numbers.randrange(size)
            data = numbers.randbytes(numbers.choice((10, 5_000, 2 * CHUNK)))[: size - start]
            for place, byte in enumerate(data, start):
                may_be[place].add(byte)
            file.pwrite(start, data)
            if numbers.random() < 0.3:
                file.flush()
    found = disk.read_after_a_cut(file, manifest, size, numbers)
    assert len(found) == size
    assert all(byte in possible for byte, possible in zip(found, may_be, strict=True))
