"""CPU seconds and memory of a process tree."""

import os
import subprocess
import sys
from pathlib import Path

from tests.benchmark import usage

PARENT = """
import subprocess, sys, time
burn = "import time\\nwhile time.process_time() < 0.4: pass"
subprocess.run([sys.executable, "-c", burn])  # one that has ended
child = subprocess.Popen([sys.executable, "-c", burn + "\\nprint(1, flush=True)\\ninput()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()  # one that lives
print(child.pid, flush=True)
input()
"""


def test_ended_and_living_children_count() -> None:
    """An idle process has the CPU seconds of its children."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii",
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert usage.tree([parent.pid]) == [parent.pid, child]
        assert usage.tree([parent.pid, child]) == [parent.pid, child]
        alone = usage.cpu_s([child])
        assert 0.35 < alone < 5
        assert alone + 0.35 < usage.cpu_s([parent.pid]) < 10
        assert usage.cpu_s([parent.pid]) >= usage.cpu_s([parent.pid, child])
        assert 0.35 < usage.precise_cpu_s([child]) < 5
        assert usage.resident_mib([parent.pid]) > usage.resident_mib([child]) > 1
        # Both share the pages of the interpreter.
        assert 1 < usage.proportional_mib([child]) < usage.resident_mib([child])
        assert usage.proportional_mib([parent.pid]) > usage.proportional_mib([child])
        parent.communicate("\n")
    assert usage.tree([parent.pid]) == []
    assert usage.cpu_s([parent.pid]) == 0


def test_a_name_with_spaces_and_brackets(tmp_path: Path) -> None:
    """The fields are counted after the name, which a program can choose freely."""
    for pid, parent, name in ((7, 1, "a) R 99 (b"), (8, 7, "ssh"), (9, 1, "other")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        ticks = "10 20 30 40" if pid != 9 else "1000 0 0 0"
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 20 0")
    assert usage.tree([7], tmp_path) == [7, 8]
    assert usage.cpu_s([7], tmp_path) == 200 / usage.TICKS_PER_S


def test_time_between_two_moments() -> None:
    """The CPU seconds of commands that ended between two moments are counted."""
    began = usage.Moment.now()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    took = usage.Moment.now().since(began)
    assert took.commands_cpu_s >= 0.3
    assert took.time_s >= 0.3


def test_busy_cores() -> None:
    """Waiting for a disk, and time that the host takes away, do not count as busy."""
    ticks = os.sysconf("SC_CLK_TCK")
    before = "cpu  100 0 100 5000 300 0 0 0 0 0"
    after = f"cpu  {100 + ticks} 0 {100 + ticks} 9000 900 0 0 {2 * ticks} 0 0"
    assert usage.busy_cores(before, after, 2.0) == 2.0
