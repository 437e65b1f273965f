"""Copies of whole folder trees."""

import os
import subprocess
from pathlib import Path

from tests.harness.machine import Mounted


def test_a_tree_comes_back_identical(mounted: Mounted, tmp_path: Path) -> None:
    """Another machine reads the tree that `cp -r` stored byte for byte."""
    source = tmp_path / "papers"
    for number in range(40):
        path = source / f"year {number % 4}" / f"month {number % 3}" / f"paper {number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number * 7919))
    (source / "nothing in here").mkdir()
    subprocess.run(["cp", "-r", source, mounted.root], check=True, timeout=60)
    mounted.sync()
    mounted.unmount()
    mounted.forget_cache()
    mounted.mount()
    subprocess.run(["diff", "-r", source, mounted.root / "papers"], check=True, timeout=60)
