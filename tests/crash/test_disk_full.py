"""The outbox's disk becomes full at every write of the protocol, one page later each time."""

import contextlib
import errno
import os
from collections import Counter

from tests.behaviour.test_full_disk import PAGE, Filler, small_disk
from tests.crash.desk import Desk
from tests.crash.ledger import File
from tests.crash.mounts import Mortal
from tests.harness.waiting import eventually
from zonedrive.content.spool import RESERVE_PART

DISK = 6 << 20
KEPT = DISK // RESERVE_PART // PAGE  # pages that are kept for records: content is refused sooner
# Pages that are left free: from none to enough for all records, and for all content beside them.
ROOM = (*range(0, 72, 2), *range(KEPT - 2, KEPT + 40))


class Careful:
    """Desk that checks that a change refused with ENOSPC has no partial effect."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.refused = 0
        self.done: Counter[str] = Counter()

    def __call__(self, change: str, *arguments: object, **more: object) -> None:
        """Make one change of the desk."""
        before = list(self.desk.ledger.possible)
        try:
            getattr(self.desk, change)(*arguments, **more)
            self.done[change] += 1
        except OSError as full:
            log = self.desk.mount.log()[-1500:]
            assert full.errno == errno.ENOSPC, f"{change} {arguments}: {full}\n{log}"
            self.refused += 1
            self.desk.ledger.possible = before

    def new(self, name: str, data: bytes) -> None:
        """Save a new file, which may stay empty if there is no space for its content."""
        self("save", name, data)
        if name not in self.desk.ledger.now:
            with contextlib.suppress(FileNotFoundError, OSError):
                (self.desk.path / name).unlink()


def test_a_full_disk_at_any_write_refuses_or_keeps(dying: Mortal) -> None:
    """Each call succeeds or fails with ENOSPC without a partial effect; later all works again."""
    dying.allow(
        "No space",
        "full",
        "could not",
        "refused",
        "Logging error",
        "cached",
        "database cannot",
    )
    desk = Desk(dying, "full", {"a.txt": b"a", "b.txt": b"b"})
    careful = Careful(desk)
    with small_disk(dying.machine.folders["STATE_HOME"], DISK) as disk:
        filler = Filler(disk)
        dying.mount()
        desk.look()
        for pages in ROOM:
            filler.leave(pages)
            careful("save", "a.txt", b"%d" % pages * 20_000)
            careful.new("new.txt", b"%d" % pages * 9_000)
            careful.new(f"note {pages}.txt", b"%d" % pages)
            careful("mkdir", f"folder {pages}")
            careful("exchange", "a.txt", "b.txt")
            if "new.txt" in desk.ledger.now:
                careful("rename", "new.txt", "b.txt")
            filler.go()
            for name in set(os.listdir(desk.path)) - set(desk.ledger.now):
                (desk.path / name).unlink()
            if "new.txt" in desk.ledger.now:
                desk.unlink("new.txt")
            desk.check_here()
        assert careful.refused > len(ROOM) // 4
        assert all(careful.done[change] > 9 for change in ("save", "mkdir", "exchange", "rename"))
        dying.sync()
        dying.kill()
        dying.mount()
        desk.check_here()
        desk.save("after.txt", b"there is room again")
        dying.sync()
        there = {path.removeprefix("full/"): data for path, data in dying.zone.tree("full").items()}
        assert there == desk.here()
        assert there["after.txt"] == File(b"there is room again").content
        eventually(lambda: not dying.outgoing(), what="no bytes are left")
        dying.tear_down()
