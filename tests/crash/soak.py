"""Kills at random moments: a program works in the mount, the daemon dies, and what is left is
compared with what `close` and the other calls had confirmed.

`python -m tests.crash.soak --rounds 200` runs it for long, on a deployment of its own.
"""

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.crash.desk import Desk
from tests.crash.mounts import Mortal, mortal
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.waiting import eventually

LONGEST_LIFE_S = 0.4
NAMES = ("one.txt", "two.txt", "three.txt", "sub/four.txt", "sub/five.txt")
ALLOWED = ("refused", "reach", "offline", "answer", "reply")


class Program:
    """Random operations in a desk until the daemon dies; every content has a size of its own."""

    def __init__(self, desk: Desk, numbers: random.Random) -> None:
        self.desk = desk
        self.done: Counter[str] = Counter()
        self._numbers = numbers
        self.exchanged: set[int] = set()  # sizes of contents that have been at two names
        self._size = 0

    def run(self) -> None:
        """Run until the first error, which means the daemon's death."""
        try:
            if "sub" not in self.desk.ledger.now:
                self.desk.mkdir("sub")
            while True:
                self.done[self._step()] += 1
        except OSError:
            return

    def _step(self) -> str:
        desk, numbers = self.desk, self._numbers
        files = sorted(name for name, file in desk.ledger.now.items() if file.content is not None)
        name = numbers.choice(NAMES)
        kind = numbers.choice(("save", "save", "append", "over", "move", "unlink", "exchange"))
        if kind == "save" or len(files) < 2:
            desk.save(name, self._bytes(), sync=numbers.random() < 0.1)
            return "save"
        old, other = numbers.sample(files, 2)
        if kind == "append":
            desk.save(old, self._bytes(), mode="ab")
        elif kind == "over":
            desk.save("draft.txt", self._bytes())
            desk.rename("draft.txt", old)
        elif kind == "move" and name not in files:
            desk.rename(old, name)
        elif kind == "exchange":
            now = desk.ledger.now
            self.exchanged |= {len(now[each].content or b"") for each in (old, other)}
            desk.exchange(old, other)
        else:
            desk.unlink(old)
        return kind

    def _bytes(self) -> bytes:
        self._size += self._numbers.randrange(1, 3000)
        return self._numbers.randbytes(self._size % 300_000 + 1)


def play(mount: Mortal, name: str, seed: int, rounds: int) -> Counter[str]:
    """Kill `rounds` times; compare after each, and with the service after the last.

    Returns the number of confirmations of each operation.  Raises AssertionError with the seed.
    """
    numbers = random.Random(seed)
    mount.allow(*ALLOWED)
    desk = Desk(mount, name, {"one.txt": b"first"})
    program = Program(desk, numbers)
    try:
        for number in range(rounds):
            mount.mount()
            if number:
                _settle(desk)
            _one_life(mount, program, numbers.uniform(0.0, LONGEST_LIFE_S))
        mount.mount()
        _settle(desk)
        mount.sync()
        _compare(desk, program.exchanged)
        eventually(lambda: not mount.outgoing(), what="no bytes are left")
        assert mount.complaints() == []
    except AssertionError as wrong:
        raise AssertionError(f"seed {seed}: {wrong}\n{mount.log()[-4000:]}") from wrong
    return program.done


def _one_life(mount: Mortal, program: Program, seconds: float) -> None:
    worker = threading.Thread(target=program.run, name="program")
    worker.start()
    worker.join(seconds)
    mount.kill()
    worker.join(60)
    assert not worker.is_alive(), "a call outlived the daemon"


def _settle(desk: Desk) -> None:
    """Find out if the interrupted operation has happened, and make the result certain."""
    desk.check_here()
    desk.ledger.possible = desk.ledger.allows(desk.here())[:1]


def _compare(desk: Desk, exchanged: set[int]) -> None:
    """Check that the service has the same files, and no duplicates.

    Exchanged files are an exception: their bytes are sent to their new places.
    """
    prefix = f"{desk.name}/"
    there = {path.removeprefix(prefix): data for path, data in desk.zone.tree(desk.name).items()}
    assert there == desk.here(), "the service holds something else"
    assert desk.ledger.allows(there)
    for path, content in there.items():
        if content is not None:
            sizes = [version["size"] for version in desk.zone.versions(f"{prefix}{path}")]
            twice = {size for size in sizes if sizes.count(size) > 1} - exchanged
            assert not twice, f"{path} was sent twice: {sizes}"


def main() -> None:
    """Run the long test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--lives", type=int, default=10, help="kills between two comparisons")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zdso"))
    deployment, account = Deployment(folder), Machine(folder / "account")
    started, done = time.monotonic(), Counter[str]()
    try:
        account.log_on(deployment, profile="sandbox")
        zone = deployment.fresh_zone()
        for number in range(-(-given.rounds // given.lives)):
            seed = given.seed + number
            with mortal(account, deployment, zone) as mount:
                done += play(mount, f"soak {seed}", seed, given.lives)
            print(f"seed {seed}: {given.lives} kills survived", flush=True)
    finally:
        deployment.close()
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - started
    print(
        f"{given.rounds} kills, {done.total()} confirmed operations {dict(done)}, {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
