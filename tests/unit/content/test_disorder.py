"""Many readers at once, on a service and a disk with random faults: no read returns wrong bytes."""

import random
import shutil
from pathlib import Path

import pytest
import trio

from tests.unit.content.scripted import KIB, MIB, Script, content, limit, until
from zonedrive.content.cache import Cache
from zonedrive.content.reader import Reader
from zonedrive.errors import Changed, Interrupted, RemoteError, Unavailable

KEY = bytes(range(32))
FILES = 6
LIMIT = 6 * MIB


class Version:
    """One revision of a file, and the present behaviour of its service."""

    def __init__(self, ino: int, number: int, chance: random.Random) -> None:
        self.revision = f"r{number}"
        size = chance.choice([0, 1, 5000, 64 * KIB, MIB + 1, 3 * MIB])
        self.source = Script(
            content(size, ino * 100 + number), piece=chance.choice([9000, 256 * KIB])
        )
        self.source.validator = chance.choice([None, self.revision])
        self.source.ranges = chance.random() < 0.7
        change_answer = chance.random()
        if change_answer < 0.2:
            self.source.cut, self.source.error = 400_000, Interrupted("broken")
        elif change_answer < 0.3:
            self.source.error = Unavailable("busy")
        elif change_answer < 0.4:
            self.source.cut = 100_000


class Disorder:
    """Programs that open, read, give up and close files, while versions change on the service."""

    def __init__(self, cache: Cache, folder: Path, seed: int) -> None:
        self.cache = cache
        self.folder = folder
        self.chance = random.Random(seed)
        self.versions = {ino: Version(ino, 0, self.chance) for ino in range(FILES)}
        self.read = 0

    async def program(self) -> None:
        """Use a few files, one after the other."""
        for _ in range(12):
            ino = self.chance.randrange(FILES)
            version = self.versions[ino]
            source = version.source
            size = len(source.data)
            if size < 8 * KIB and self.chance.random() < 0.5:
                self.cache.put(ino, version.revision, source.data)
            reader = self.cache.open(ino, version.revision, size, source)
            try:
                with trio.move_on_after(self.chance.choice([0.001, 0.02, 5])):
                    await self.reads(reader.size, source.data, reader)
            except (RemoteError, Changed):
                pass
            finally:
                reader.close()

    async def reads(self, size: int, data: bytes, reader: Reader) -> None:
        """Read one file sequentially and at random places."""
        offset = 0
        for _ in range(20):
            if self.chance.random() < 0.3:
                offset = self.chance.randrange(size + 10)
            length = self.chance.choice([100, 4096, 128 * KIB])
            found = reader.available(offset, length)
            if found is None:
                found = await reader.read(offset, length)
            assert found == data[offset : offset + length]
            self.read += len(found)
            offset += length

    async def fate(self) -> None:
        """Inject faults of the service and the disk."""
        for number in range(1, 25):
            await trio.sleep(0.01)
            ino = self.chance.randrange(FILES)
            what = self.chance.random()
            if what < 0.4:
                self.versions[ino] = Version(ino, number, self.chance)
            elif what < 0.5:
                self.cache.drop(ino)
            elif what < 0.7:
                self.flip()
            elif what < 0.75:
                shutil.rmtree(self.folder, ignore_errors=True)
            else:
                limit(self.cache, self.chance.choice([LIMIT, LIMIT // 4, 0]))

    def flip(self) -> None:
        """Damage a cached file."""
        files = [path for path in self.folder.glob("[0-9]*-*") if path.is_file()]
        if not files:
            return
        path = self.chance.choice(files)
        try:
            with path.open("r+b") as raw:
                raw.seek(self.chance.randrange(max(1, path.stat().st_size - 2)))
                raw.write(b"\xff\xee\xdd")
        except OSError:
            return


@pytest.mark.parametrize("eager", [0, 200 * KIB], indirect=True)
@pytest.mark.parametrize("seed", range(6))
async def test_wrong_bytes_are_never_read(tmp_path: Path, seed: int, eager: int) -> None:
    """Despite all faults, a read returns the bytes of its version, or an error."""
    folder = tmp_path / "cache"
    cache = Cache(folder, KEY, LIMIT, stall=0.5, connections=4).start()
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        disorder = Disorder(cache, folder, seed + 6 * bool(eager))
        with trio.fail_after(240):
            async with trio.open_nursery() as programs:
                programs.start_soon(disorder.fate)
                for _ in range(5):
                    programs.start_soon(disorder.program)
        assert disorder.read > 0
        await cache.aclose()
    await until(lambda: not any(each.source.open_now for each in disorder.versions.values()))
    assert cache.quota.entries == set()
