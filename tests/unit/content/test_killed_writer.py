"""A process that is killed at any instant loses no flushed bytes."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zonedrive.content.encrypted_file import create_file, open_file
from zonedrive.content.manifest import Manifest
from zonedrive.content.slots import CHUNK

KEY = bytes(range(32))
Step = tuple[str, int, bytes]


def group(seed: int, number: int) -> list[Step]:
    """Return the writer's steps between one flush and the next."""
    choice = random.Random(seed * 1000 + number)
    steps: list[Step] = []
    for _ in range(choice.randrange(1, 4)):
        place = choice.choice([0, CHUNK, 3 * CHUNK, choice.randrange(4 * CHUNK)])
        if choice.random() < 0.2:
            steps.append(("truncate", place, b""))
        else:
            length = choice.choice([10, 5000, CHUNK, 2 * CHUNK + 100])
            steps.append(("write", place, choice.randbytes(length)))
    return steps


def states(seed: int, done: int) -> list[bytes]:
    """Yield the content after flush number `done`, and after each step that may have followed."""
    content = bytearray()
    found: list[bytes] = []
    for number in range(1, done + 2):
        if number == done + 1:
            found.append(bytes(content))
        for verb, place, data in group(seed, number):
            if verb == "truncate":
                content = content[:place].ljust(place, b"\0")
            else:
                content.extend(bytes(max(0, place - len(content))))
                content[place : place + len(data)] = data
            if number == done + 1:
                found.append(bytes(content))
    return found


def check(content: bytes, possible: list[bytes], *, between: bool = False) -> None:
    """Require that every byte is as flushed, or as a later step left it.

    `between`: the kernel may have stopped in the middle of the last write.
    """
    sizes = sorted(len(state) for state in possible)
    assert len(content) in sizes or (between and sizes[0] < len(content) < sizes[-1])
    for start in range(0, len(content), 512):
        piece = content[start : start + 512]
        if any(state[start : start + 512] == piece for state in possible):
            continue
        for at, byte in enumerate(piece, start):
            # A file that was cut and extended again may still be at any of these lengths.
            assert byte in {state[at] for state in possible if at < len(state)}, at


WRITER = """
import os, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from tests.unit.content.test_killed_writer import KEY, group
from zonedrive.content.encrypted_file import create_file
file = create_file(Path(sys.argv[1]), KEY if sys.argv[2] == "sealed" else None)
os.write(1, b"ready\\n")
number = 0
while True:
    number += 1
    for verb, place, data in group(int(sys.argv[3]), number):
        file.truncate(place) if verb == "truncate" else file.pwrite(place, data)
    file.flush()
    os.write(1, b"%d\\n" % number)
"""


@pytest.mark.parametrize("codec", ["sealed", "plain"])
@pytest.mark.parametrize("seed", range(4))
def test_flushed_bytes_survive_sigkill(tmp_path: Path, codec: str, seed: int) -> None:
    """After SIGKILL during a write, the file opens and has all confirmed bytes."""
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", WRITER, str(tmp_path / "file"), codec, str(seed), root]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        lines = [writer.stdout.readline() for _ in range(random.randrange(1, 60))]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
        writer.wait()
    done = int(lines[-1])
    file = open_file(tmp_path / "file", KEY if codec == "sealed" else None)
    content = file.pread(0, 1 << 24)
    file.close()
    check(content, states(seed, done), between=codec == "plain")


class Killed(BaseException):
    """Exception in place of SIGKILL."""


@pytest.mark.parametrize("seed", range(12))
def test_a_write_cut_at_any_byte(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flushed bytes are complete, whichever byte is the last one that was written."""
    real = os.pwrite
    chance = random.Random(seed)
    for attempt in range(25):
        path = tmp_path / f"{attempt}"
        left = chance.randrange(3_000_000)

        def cut(descriptor: int, data: bytes, offset: int) -> int:
            nonlocal left
            part = memoryview(data)[: max(left, 0)]
            left -= len(data)
            real(descriptor, part, offset)
            if left < 0:
                raise Killed
            return len(data)

        def cut_vector(descriptor: int, buffers: tuple[bytes, ...], offset: int, flags: int) -> int:
            return cut(descriptor, b"".join(buffers), offset)

        file = create_file(path, KEY)
        done, recorded = 0, file.manifest()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", cut)
            patch.setattr(os, "pwritev", cut_vector)
            try:
                while True:
                    for verb, place, data in group(seed, done + 1):
                        if verb == "truncate":
                            if place < Manifest.decode(recorded)[0].size:
                                recorded = file.manifest(size=place)  # first, as sessions do
                            file.truncate(place)
                        else:
                            file.pwrite(place, data)
                    file.flush()
                    done += 1
                    recorded = file.manifest()
            except Killed:
                os.close(file._descriptor)
        for manifest in (recorded, b""):
            again = open_file(path, KEY, manifest)
            check(again.pread(0, 1 << 24), states(seed, done))
            again.close()
        path.unlink()
