"""Several processes work in one folder at the same time, at random.

    python -m tests.posix.stress --processes 4 --operations 2000 --seed 1 DIR

Works on any file system. Only errnos that POSIX allows in the situation may occur.
"""

import argparse
import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

EXPECTED = {
    errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EINVAL,
    errno.EPERM, errno.EBUSY,
}  # fmt: skip
LARGEST = 150_000


class Worker:
    """Steps of one process; the content of its own file is compared with what it wrote."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._mine = folder / f"mine-{seed}"
        self._model = bytearray()
        self._mine.write_bytes(b"")

    def run(self, count: int) -> None:
        """Run the steps; raise AssertionError, or an unexpected OSError."""
        steps: list[Callable[[], object]] = [
            self.make, self.make, self.write, self.write, self.append, self.cut, self.rename,
            self.rename, self.save, self.remove, self.make_folder, self.remove_folder, self.list,
            self.read, self.mine, self.mine,
        ]  # fmt: skip
        for _ in range(count):
            try:
                self._chance.choice(steps)()
            except OSError as refused:
                if refused.errno not in EXPECTED:
                    raise
        assert self._mine.read_bytes() == bytes(self._model), "my own file was changed"

    def _path(self) -> Path:
        names = "abcdefgh"
        depth = self._chance.choice((1, 1, 2, 3))
        return self._folder.joinpath(*(self._chance.choice(names) for _ in range(depth)))

    def _data(self) -> bytes:
        return self._chance.randbytes(min(int(self._chance.expovariate(1 / 5000)), LARGEST))

    def make(self) -> None:
        with self._path().open("xb") as file:
            file.write(self._data())

    def write(self) -> None:
        with self._path().open("r+b") as file:
            file.seek(self._chance.randrange(LARGEST))
            file.write(self._data())

    def append(self) -> None:
        with self._path().open("ab") as file:
            file.write(self._data())

    def cut(self) -> None:
        os.truncate(self._path(), self._chance.randrange(LARGEST))

    def rename(self) -> None:
        self._path().rename(self._path())

    def save(self) -> None:
        """Save as programs do: rename a new file over the old one."""
        target = self._path()
        new = target.with_name(f"{target.name}.{os.getpid()}.new")
        new.write_bytes(self._data())
        try:
            new.rename(target)
        except OSError:
            new.unlink()
            raise

    def remove(self) -> None:
        self._path().unlink()

    def make_folder(self) -> None:
        self._path().mkdir()

    def remove_folder(self) -> None:
        self._path().rmdir()

    def list(self) -> None:
        for entry in os.scandir(self._path().parent):
            entry.stat()

    def read(self) -> None:
        path = self._path()
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read()
            assert len(data) <= LARGEST * 20 or size, "more than anybody wrote"

    def mine(self) -> None:
        """Check this process's own file, which no other process changes."""
        offset, data = self._chance.randrange(LARGEST), self._data()
        with self._mine.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        if data:
            self._model.extend(bytes(max(0, offset - len(self._model))))
            self._model[offset : offset + len(data)] = data
        found = self._mine.read_bytes()
        assert found == bytes(self._model), "my own file was changed"


def stress(folder: Path, processes: int, operations: int, seed: int) -> list[str]:
    """Run the processes; return the errors by process."""
    command = [sys.executable, "-m", "tests.posix.stress", "--operations", str(operations)]
    running = [
        subprocess.Popen(
            [*command, "--worker", "--seed", str(seed * 1000 + number), str(folder)],
            stderr=subprocess.PIPE, text=True,
        )
        for number in range(processes)
    ]  # fmt: skip
    said = [each.communicate()[1] for each in running]
    return [text for each, text in zip(running, said, strict=True) if each.returncode]


def main(words: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.posix.stress", description=__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", action="store_true", help="be one of the processes")
    parser.add_argument("dir", type=Path)
    chosen = parser.parse_args(words)
    if chosen.worker:
        Worker(chosen.dir, chosen.seed).run(chosen.operations)
        return 0
    wrong = stress(chosen.dir, chosen.processes, chosen.operations, chosen.seed)
    print("\n".join(wrong) or f"{chosen.processes} x {chosen.operations} operations, all well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
