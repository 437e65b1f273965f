"""Files that are read on the mounts, and files that are copied into them.

Knows nothing about servers. Below a root are `Data`, which is only read, `Out`, which is
written, and `source` with a tree, its tar file and a git repository, which stay on this machine.
Content can be checked: every block of 4 KiB begins with its number.
"""

import random
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path

BLOCK = 4096
MIB = 1 << 20

TOPS, SUBS, EACH = 40, 24, 10  # 40 folders of 24 folders: 1,000 folders of 10 files
WALKED = TOPS * (SUBS + 1) * EACH
LISTED = 1_000
LARGE = 10_000
SMALL = 500
LOADS = 4
TREE_FOLDERS, TREE_FILES = 20, 50  # what tar and rsync copy: 1,000 files
REPOSITORY = 300


_REST = random.Random(4).randbytes(BLOCK - 8)


def block(number: int) -> bytes:
    """Return the block with that number in a big file."""
    return struct.pack("<Q", number) + _REST


def make(root: Path, big_mib: int) -> None:
    """Create everything below `root`; existing data of the same size are kept, `Out` is emptied."""
    stamp, wanted = root / "made", f"2 {big_mib}\n"
    shutil.rmtree(root / "Out", ignore_errors=True)
    (root / "Out").mkdir()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    data = root / "Data"
    _walk(data / "walk")
    for number in range(LISTED):
        _put(data / "list1k" / f"entry-{number:05}.dat", b"y" * (number % 97))
    for number in range(LARGE):
        _put(data / "ls10k" / f"entry-{number:05}.dat", b"y" * (number % 97))
    for number in range(SMALL):
        _put(data / "small" / f"f{number:03}.bin", block(number))
    _big(data / "big" / "big.bin", big_mib)
    for number in range(LOADS):
        _big(data / "load" / f"load{number}.bin", big_mib // LOADS)
    _sources(root / "source", big_mib)
    stamp.write_text(wanted)


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _walk(folder: Path) -> None:
    for top in range(TOPS):
        for sub in ["", *(f"s{number:02}" for number in range(SUBS))]:
            for number in range(EACH):
                _put(folder / f"d{top:02}" / sub / f"f{number}.txt", b"x" * (100 + number))


def _big(path: Path, mib: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for first in range(0, mib * MIB // BLOCK, MIB // BLOCK):
            file.write(b"".join(block(first + number) for number in range(MIB // BLOCK)))


def tree() -> dict[str, int]:
    """Return the sizes of the files in the tree that tar and rsync copy."""
    return {
        f"d{folder:02}/f{number:02}.bin": BLOCK
        for folder in range(TREE_FOLDERS)
        for number in range(TREE_FILES)
    }


def _sources(root: Path, big_mib: int) -> None:
    for number, name in enumerate(tree()):
        _put(root / "tree" / name, block(number))
    with tarfile.open(root / "tree.tar", "w") as tar:
        tar.add(root / "tree", "tree")
    _big(root / "load.bin", big_mib // LOADS)
    repository = root / "repository"
    for number in range(REPOSITORY):
        text = "".join(f"line {line} of {number}\n" for line in range(100))
        _put(repository / "src" / f"m{number // 20:02}" / f"file{number % 20:02}.py", text.encode())
    git = ["git", "-C", str(repository), "-c", "user.name=bench", "-c", "user.email=b@localhost"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
