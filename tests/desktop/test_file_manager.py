"""Real file manager on a real mount, used with keys, rows and dialogs."""

import hashlib
import re
from pathlib import Path

import pytest
from jeepney import DBusAddress, MessageType, new_method_call

from tests.desktop.looking import Item
from tests.desktop.session import Session
from tests.desktop.thunar import Thunar
from tests.harness import world
from tests.harness.bus import connected
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

SERVICES = [
    Path(folder, "notification-daemon", "notification-daemon")
    for folder in ("/usr/lib", "/usr/libexec")
]
"""Paths of the service that shows notifications as windows, in several distributions."""

TOP = ("docs", "big.bin", "empty", "notes.txt")  # folders first


def downloads(mounted: Mounted) -> int:
    """Return the number of requests for content."""
    requests: dict[str, int] = mounted.deployment.stats()["requests"]
    return requests.get("GET /api/zones/{zone_id}/files/{file_id}/content", 0)


@pytest.fixture
def bubble(session: Session) -> Item:
    """Return the notification of another program on the screen."""
    service = next(each for each in SERVICES if each.exists())
    session.run(service)
    words: list[object] = ["other", 0, "dialog-warning", "Somebody else's", "A dialog?", [], {}, 0]
    address = DBusAddress(
        "/org/freedesktop/Notifications",
        bus_name="org.freedesktop.Notifications",
        interface="org.freedesktop.Notifications",
    )
    with connected(session.environment["DBUS_SESSION_BUS_ADDRESS"]) as connection:
        call = new_method_call(address, "Notify", "susssasa{sv}i", tuple(words))

        def taken() -> bool:
            answer = connection.send_and_get_reply(call, timeout=60)
            return answer.header.message_type is MessageType.method_return

        eventually(taken, what="the service takes the notification")
    shown = session.screen.find("label", "Somebody else's")
    assert shown.is_showing
    return shown


def test_a_notification_is_no_dialog(mounted: Mounted, bubble: Item, thunar: Thunar) -> None:
    """A notification on the screen is not mistaken for a dialog of the file manager."""
    assert not thunar.dialogs()
    thunar.select("notes.txt")
    thunar.key("F2")
    dialog = thunar.screen.find("dialog")
    assert len(thunar.dialogs()) == 1
    dialog.find("text").write("minutes.txt")
    dialog.find("push button", "Rename").do()
    thunar.until("docs", "big.bin", "empty", "minutes.txt")
    eventually(lambda: not thunar.dialogs(), what="the dialog has closed")
    assert bubble.is_showing
    mounted.sync()
    assert mounted.zone.find("minutes.txt")


def test_browsing_opening_renaming(mounted: Mounted, session: Session, thunar: Thunar) -> None:
    """Zones and folders are shown with the free space; a rename keeps the id."""
    thunar.until(*TOP)
    eventually(lambda: re.search(r"Free space: .* GiB", thunar.status()), what="the room there is")
    assert "Zones" in thunar.side_bar()  # to be left with a click
    thunar.enter("docs")
    thunar.until("2026", "Grüße aus Köln.txt", "report.md")
    thunar.up()
    read = mounted.machine.folder / "read"
    session.opens_text_with(f'cp "$1" {read}.new && mv {read}.new {read}')
    thunar.open("notes.txt")
    eventually(read.exists, what="a program opens it")
    assert read.read_bytes() == world.SEED["notes.txt"]
    before = mounted.zone.entry_id("notes.txt")
    thunar.select("notes.txt")
    thunar.key("F2")
    dialog = thunar.screen.find("dialog")
    dialog.find("text").write("Protokoll März.txt")
    dialog.find("push button", "Rename").do()
    thunar.until("docs", "big.bin", "empty", "Protokoll März.txt")
    mounted.sync()
    assert mounted.zone.entry_id("Protokoll März.txt") == before
    thunar.go(mounted.path)
    eventually(lambda: {mounted.root.name, "Zone 01"} <= set(thunar.rows()), what="the zones")
    assert not any(each.startswith(".") or each == "lost+found" for each in thunar.rows())


def test_copying_in_and_out(mounted: Mounted, thunar: Thunar) -> None:
    """Files and folders are copied in both directions with copy and paste, unchanged."""
    home = mounted.machine.folder / "Papers"
    (home / "Offers" / "2026").mkdir(parents=True)
    (home / "Offers" / "2026" / "Angebot.txt").write_bytes(b"net 30\n")
    thunar.select("docs")
    thunar.key("ctrl+c")
    thunar.go(home)
    thunar.key("ctrl+v")
    thunar.until("docs", "Offers")
    eventually(lambda: (home / "docs/report.md").exists(), what="it is copied")
    thunar.select("Offers")
    thunar.key("ctrl+c")
    thunar.go(mounted.root)
    thunar.key("ctrl+v")
    thunar.until("docs", "Offers", "big.bin", "empty", "notes.txt")
    eventually(lambda: mounted.zone.find("Offers/2026/Angebot.txt"), what="it is on the service")
    mounted.sync()
    assert mounted.zone.read("Offers/2026/Angebot.txt") == b"net 30\n"
    out = {str(each.relative_to(home)) for each in (home / "docs").rglob("*") if each.is_file()}
    assert out == {name for name in world.SEED if name.startswith("docs/")}
    assert all((home / name).read_bytes() == world.SEED[name] for name in out)
    eventually(lambda: not thunar.dialogs(), what="no dialog is left")


def test_trashing_and_undoing(mounted: Mounted, thunar: Thunar) -> None:
    """The key Delete moves a file or folder to the service's trash; the window can undo it."""
    name = f"Drafts of {mounted.root.name}"  # the trash shows that of all mounts of this machine
    (mounted.root / "docs").rename(mounted.root / name)
    mounted.sync()
    thunar.select(name)
    thunar.key("Delete")
    thunar.until("big.bin", "empty", "notes.txt")
    eventually(lambda: mounted.zone.find(name) is None, what="it is deleted")
    thunar.go("trash:///", "Trash")
    eventually(lambda: name in thunar.rows(), what="the trash shows it")
    assert name in mounted.machine.done("trash", "--zone", mounted.root.name)
    thunar.go(mounted.root)
    thunar.key("ctrl+z")
    thunar.until(name, "big.bin", "empty", "notes.txt")
    eventually(lambda: not thunar.dialogs(), what="no dialog is left")
    assert mounted.zone.read(f"{name}/report.md") == world.SEED["docs/report.md"]


def known(dialog: Item) -> list[Item]:
    """Return the known buttons of a dialog, the one that continues first.

    The dialogs ask about permanent deletion (for root, after an attempt to trash), and report the
    refusal.
    """
    buttons = {each.name: each for each in dialog.inside("push button")}
    return [buttons[name] for name in ("Yes", "Delete", "Close", "Cancel") if name in buttons]


@pytest.mark.mount(profile="published")
def test_deleting_without_permission(mounted: Mounted, thunar: Thunar) -> None:
    """Without deletion in the profile a dialog says so at once, and the file is unchanged."""
    thunar.select("notes.txt")
    thunar.key("Delete")
    said = ""
    while "Operation not permitted" not in said:
        dialog = eventually(thunar.dialogs, what=f"a dialog after {said!r}")[0]
        buttons = eventually(lambda dialog=dialog: known(dialog), what="its buttons")  # type: ignore[misc]
        said = dialog.words()
        buttons[0].do()
        eventually(dialog.is_gone, what="the dialog closes")
    thunar.until(*TOP)
    assert (mounted.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]


def test_looking_at_pictures_downloads_none(mounted: Mounted, thunar: Thunar) -> None:
    """Thumbnails are created only for cached files; no others are downloaded."""
    picture = Path(__file__).with_name("picture.png").read_bytes()
    for number in range(12):
        mounted.zone.write(f"docs/2026/IMG {number:02}.png", picture + bytes(number))
    cached = mounted.root / "docs/2026/IMG 11.png"
    eventually(cached.exists, what="they are seen")
    assert cached.read_bytes() == picture + bytes(11)
    before = downloads(mounted)
    thunar.enter("docs")
    thunar.enter("2026")
    eventually(lambda: len(thunar.rows()) == 13, what="all are shown")
    thumbnails = mounted.machine.folders["CACHE_HOME"] / "thumbnails"
    made = hashlib.md5(cached.as_uri().encode(), usedforsecurity=False).hexdigest()
    eventually(lambda: list(thumbnails.rglob(f"{made}.png")), what="the last one is drawn")
    assert len([each for each in thumbnails.rglob("*.png") if "fail" not in each.parts]) == 1
    assert downloads(mounted) == before


def test_the_window_goes_on_while_the_service_is_away(mounted: Mounted, thunar: Thunar) -> None:
    """Listed folders are shown, and unreadable files give an error; the window does not freeze."""
    thunar.enter("docs")
    thunar.until("2026", "Grüße aus Köln.txt", "report.md")
    thunar.up()
    with mounted.deployment.faulty(down=True):
        home = mounted.machine.folder / "Papers"
        home.mkdir()
        thunar.enter("docs")
        thunar.until("2026", "Grüße aus Köln.txt", "report.md")
        thunar.select("report.md")
        thunar.key("ctrl+c")
        thunar.go(home)
        thunar.key("ctrl+v")
        dialog = thunar.screen.find("alert")
        assert "Network is unreachable" in dialog.words()
        dialog.find("push button", "Cancel").do()
        thunar.go(mounted.root)
        thunar.until(*TOP)
