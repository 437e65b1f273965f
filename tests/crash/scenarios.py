"""Operations that lead a daemon to each place where it may die."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.crash import damage
from tests.crash.desk import Desk
from tests.crash.ledger import File
from zonedrive.failpoint import Place

SEED: Mapping[str, bytes] = {"a.txt": b"what was in a before\n", "b.txt": b"b, too\n"}
NEW = b"new bytes\n" * 20_000  # 200 kB
BIG = bytes(range(256)) * 12_000  # 3 MB


@dataclass(frozen=True)
class Scenario:
    """Operations before the death, and around it."""

    work: Callable[[Desk], None]
    first: Place | None = None  # a death before that one, with the same work
    then: Callable[[Desk], None] | None = None  # what happens to the machine after that one
    refusing: bool = False  # the service takes no content until the death
    allowed: tuple[str, ...] = field(default=())  # what the log may say


# ---- work ----


def new_file(desk: Desk) -> None:
    """Save a new file."""
    desk.save("new.txt", NEW)


def rewrite(desk: Desk) -> None:
    """Truncate a file and write it again."""
    desk.save("a.txt", NEW)


def big_rewrite(desk: Desk) -> None:
    """Truncate a file and write a large content in several pieces."""
    desk.save("a.txt", BIG)


def append(desk: Desk) -> None:
    """Edit in place, which begins with a copy of the service's version."""
    desk.save("a.txt", b"one line more\n", mode="ab")


def append_twice(desk: Desk) -> None:
    """Edit a file that is still pending."""
    desk.save("a.txt", NEW)
    desk.save("a.txt", b"one line more\n", mode="ab", again=True)


def synced(desk: Desk) -> None:
    """Save a file with fsync, which survives a power cut."""
    desk.save("a.txt", NEW, sync=True)


def cut(desk: Desk) -> None:
    """Make a file shorter."""
    desk.cut("a.txt", 6)


def folder(desk: Desk) -> None:
    """Create a folder with a file in it."""
    desk.mkdir("folder")
    desk.save("folder/inside.txt", NEW)


def rename_over(desk: Desk) -> None:
    """Rename a temporary file over its target."""
    desk.save("a.tmp", NEW)
    desk.rename("a.tmp", "a.txt")


def rename_over_waiting(desk: Desk) -> None:
    """Rename over a target with a pending save, whose bytes are not sent any more."""
    desk.save("a.txt", b"what nobody sees\n")
    before = desk.ledger.now["a.txt"]
    desk.save("a.tmp", NEW)
    end = {**desk.ledger.without("a.tmp"), "a.txt": File(NEW, before.id, before.versions)}
    with desk.ledger.change(end):
        (desk.path / "a.tmp").rename(desk.path / "a.txt")


def move(desk: Desk) -> None:
    """Rename a file of the service."""
    desk.rename("a.txt", "c.txt")


def exchange(desk: Desk) -> None:
    """Exchange the names of two files of the service."""
    desk.exchange("a.txt", "b.txt")


def delete(desk: Desk) -> None:
    """Delete a file of the service and edit another one."""
    desk.unlink("b.txt")
    desk.save("a.txt", NEW)


def trash(desk: Desk) -> None:
    """Move a folder of the service into the desktop's trash, with its content."""
    desk.mkdir("folder")
    desk.save("folder/inside.txt", NEW)
    desk.trash("folder")


def unlink_waiting(desk: Desk) -> None:
    """Delete a new file that was not sent yet."""
    desk.save("new.txt", NEW)
    desk.unlink("new.txt")


def replace(desk: Desk) -> None:
    """Delete a file and write it again, as some programs save."""
    before = desk.ledger.now["a.txt"]
    # Not between the two, however long they take.
    desk.mount.deployment.fault(status=503, method="DELETE")
    desk.unlink("a.txt")
    with desk.ledger.change({**desk.ledger.now, "a.txt": File(NEW, before.id, 2)}):
        (desk.path / "a.txt").write_bytes(NEW)


def collision(desk: Desk) -> None:
    """Let a coworker save between our listing and our save."""
    desk.look()
    before = desk.ledger.now
    theirs = before["a.txt"].id
    desk.theirs("a.txt", b"theirs")
    end = {**before, "a.txt": File(b"theirs", theirs, 2), "a (conflict).txt": File(NEW)}
    desk.collide("a.txt", NEW, end)


def name_collision(desk: Desk) -> None:
    """Let a coworker create a file with the name of our new one."""
    desk.look()
    before = desk.ledger.now
    theirs = desk.theirs("new.txt", b"theirs")
    end = {**before, "new.txt": File(b"theirs", theirs), "new (conflict).txt": File(NEW)}
    desk.collide("new.txt", NEW, end)


def edit_of_deleted(desk: Desk) -> None:
    """Edit a file that a coworker deletes."""
    desk.look()
    desk.zone.delete(f"{desk.name}/a.txt")
    desk.collide("a.txt", NEW, {**desk.ledger.now, "a.txt": File(NEW)})


def end_of_the_mount(desk: Desk) -> None:
    """Save a file and unmount without waiting for the upload."""
    desk.save("a.txt", NEW)
    desk.mount.command("unmount", timeout=0, now=True)


def lose_inodes(desk: Desk) -> None:
    """Lose the table that assigns stored bytes to files."""
    damage.lose_table(desk.mount.database, "inodes")
    desk.lost = [desk.ledger.now["a.txt"].content or b""]
    a = desk.ledger.now["a.txt"]
    desk.ledger.possible = [{**desk.ledger.now, "a.txt": File(SEED["a.txt"], a.id)}]


# ---- all of them ----

CONFLICT = ("deleted on the service while", "conflict")

SCENARIOS: Mapping[Place, Scenario] = {
    Place.FILE_NAMED: Scenario(new_file),
    Place.FOLDER_NAMED: Scenario(folder),
    Place.NAME_REMOVED: Scenario(unlink_waiting, refusing=True),
    Place.TRASHED: Scenario(trash),
    Place.RENAME_INSIDE: Scenario(rename_over_waiting, refusing=True),
    Place.RENAMED: Scenario(rename_over, refusing=True),
    Place.EXCHANGED: Scenario(exchange),
    Place.SPOOL_MADE: Scenario(new_file),
    Place.SPOOL_EMPTIED: Scenario(rewrite),
    Place.SPOOL_COPIED: Scenario(append_twice, refusing=True),
    Place.VERSION_COPIED: Scenario(append),
    Place.BYTES_CUT: Scenario(cut),
    Place.BYTES_WRITTEN: Scenario(append),
    Place.BYTES_FLUSHED: Scenario(rewrite),
    Place.RECORD_INSIDE: Scenario(append),
    Place.RECORDED: Scenario(new_file),
    Place.FORMER_DELETED: Scenario(append_twice, refusing=True),
    Place.BYTES_SYNCED: Scenario(synced),
    Place.RECORD_SYNCED: Scenario(synced),
    Place.FILE_CLOSED: Scenario(rewrite),
    Place.INTENT_FREED: Scenario(rewrite),
    Place.UPLOAD_TAKEN: Scenario(rewrite),
    Place.UPLOAD_JUDGED: Scenario(new_file),
    Place.REQUEST_NOTED: Scenario(new_file),
    Place.BODY_BEGUN: Scenario(big_rewrite),
    Place.REPLY_CAME: Scenario(new_file),
    Place.REQUEST_FOUND: Scenario(rewrite, first=Place.REPLY_CAME),
    Place.ARRIVAL_INSIDE: Scenario(rewrite),
    Place.ARRIVED: Scenario(rewrite),
    Place.CACHED: Scenario(new_file),
    Place.IDENTITY_INSIDE: Scenario(replace),
    Place.IDENTITY_ADOPTED: Scenario(replace),
    Place.FOLDER_ASKED: Scenario(folder),
    Place.FOLDER_MADE: Scenario(folder),
    Place.MOVE_ASKED: Scenario(move),
    Place.MOVE_DONE: Scenario(move),
    Place.MOVE_NOTED: Scenario(move),
    Place.ASIDE_ASKED: Scenario(exchange),
    Place.ASIDE_DONE: Scenario(exchange),
    Place.ASIDE_NOTED: Scenario(exchange),
    Place.DELETE_ASKED: Scenario(delete),
    Place.DELETE_DONE: Scenario(delete),
    Place.FOLDER_EMPTIED: Scenario(trash),
    Place.DELETE_NOTED: Scenario(delete),
    Place.COPY_RECORDED: Scenario(collision, allowed=CONFLICT),
    Place.WAY_GIVEN: Scenario(name_collision, allowed=CONFLICT),
    Place.RECREATED: Scenario(edit_of_deleted, allowed=CONFLICT),
    Place.RECOVERY_NOTED: Scenario(append_twice, first=Place.FORMER_DELETED, refusing=True),
    Place.RECOVERY_SWEPT: Scenario(append_twice, first=Place.SPOOL_COPIED, refusing=True),
    Place.RECOVERED: Scenario(new_file, first=Place.SPOOL_MADE),
    Place.CLOSING: Scenario(end_of_the_mount, refusing=True),
    Place.CLOSED: Scenario(end_of_the_mount, refusing=True),
    **dict.fromkeys(
        (
            Place.SALVAGE_FILLED,
            Place.SALVAGE_ASIDE,
            Place.SALVAGE_PLACED,
            Place.LOST_LINKED,
            Place.LOST_FOUND,
        ),
        Scenario(
            rewrite,
            first=Place.RECORDED,
            then=lose_inodes,
            refusing=True,
            allowed=("damaged", "lost their names"),
        ),
    ),
}
