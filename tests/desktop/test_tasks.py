"""Tasks of a person without a terminal, in the windows of a file manager and a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desktop.extensions import install
from tests.desktop.nautilus import Nautilus
from tests.desktop.session import Session
from tests.desktop.test_extensions import picture
from tests.desktop.thunar import Thunar
from tests.harness.chromium import Chromium
from tests.harness.deployment import COMMAND
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

FILE_MANAGERS: dict[str, type[Nautilus] | type[Thunar]] = {"nautilus": Nautilus, "thunar": Thunar}


class Person:
    """Person at a desktop: a file manager that shows a zone, and a browser."""

    def __init__(self, mounted: Mounted, session: Session, name: str, chromium: Chromium) -> None:
        """Install the extension and open the file manager; text files open in an editor."""
        self._name, self._session, self.chromium = name, session, chromium
        self._given = given = mounted.machine.folder / "given"
        hook = mounted.machine.folder / "hook"
        hook.write_text(f'#!/bin/sh\necho "$@" >{given}.new\nmv {given}.new {given}\n')
        hook.chmod(0o700)
        session.environment |= {"BROWSER": str(hook), "ZONEDRIVE_COMMAND": str(COMMAND)}
        session.opens_text_with('echo edited >"$1"')
        install(mounted.machine, name)
        self.files = FILE_MANAGERS[name](session, mounted.root)

    def choose(self, name: str, item: str) -> None:
        """Choose an item of the menu of zonedrive for an entry."""
        self._session.focus(self._name)
        self.files.choose_for(name, "Zones", item)

    def delete(self, name: str) -> None:
        """Press the key for that, for an entry."""
        self._session.focus(self._name)
        self.files.select(name)
        self.files.key("Delete")

    def reload(self) -> None:
        """Press the key for that: no kernel tells a file manager of names that others create."""
        self._session.focus(self._name)
        self.files.key("F5")

    def window(self) -> str:
        """Follow the file manager to the page that it opens in the browser; return its text."""
        address = eventually(self._address, what="a page is opened")
        self._given.unlink()
        self.chromium.go(address)
        eventually(lambda: "/a/default/" in self.chromium.address, what="the window is shown")
        return self.chromium.text

    def _address(self) -> str:
        return self._given.read_text().strip() if self._given.exists() else ""

    def go(self, page: str) -> None:
        """Choose another page of the window."""
        self.chromium.click(f'nav a[href="/a/default/{page}"]')

    def picture(self, task: str) -> None:
        """Save a picture of the screen, if pictures are wanted."""
        picture(self._session, f"{self._name}-{task}")


@pytest.fixture(params=FILE_MANAGERS)
def person(request: pytest.FixtureRequest, mounted: Mounted) -> Iterator[Person]:
    """Yield a person at a desktop with that file manager; the browser is below it."""
    with Session(mounted.machine.environment, height=1260) as session:
        chromium = Chromium(display=session.environment["DISPLAY"])
        try:
            yield Person(mounted, session, request.param, chromium)
        finally:
            chromium.close()


def test_versions_trash_and_report(mounted: Mounted, person: Person) -> None:
    """A person edits a document, brings back the former version, deletes and restores it, and
    saves a report for support."""
    path = mounted.root / "notes.txt"
    former = path.read_bytes()
    person.files.open("notes.txt")
    eventually(lambda: len(mounted.zone.versions("notes.txt")) == 2, what="the edit is uploaded")
    person.picture("saved")

    person.choose("notes.txt", "Versions…")
    assert "Versions of notes.txt" in person.window()
    person.picture("versions")
    person.chromium.click('form button[value="1"]')
    person.chromium.until("Version 1 is the newest version now.")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == former

    person.delete("notes.txt")
    eventually(lambda: not mounted.zone.find("notes.txt"), what="the file is deleted")
    person.go("trash")
    person.chromium.until("notes.txt")
    person.picture("trash")
    person.chromium.click("main form button")
    person.chromium.until("restored ")
    eventually(path.exists, what="the file is back")

    person.go("help")
    person.chromium.until("Save a report")
    said = person.chromium.run("return fetch('/a/default/report').then(page => page.text())")
    assert said.startswith("zonedrive: a report")


def test_a_conflict_is_decided_from_the_file(mounted: Mounted, person: Person) -> None:
    """The menu of the copy leads to both versions side by side, and one click decides."""
    mounted.allow("came in between")
    assert (mounted.root / "notes.txt").read_bytes()
    with (mounted.root / "notes.txt").open("r+b", buffering=0) as file:
        file.truncate()
        file.write(b"mine\n")
        mounted.zone.write("notes.txt", b"theirs\n")
    mounted.sync()
    (conflict,) = mounted.conflicts()
    person.reload()
    person.choose(Path(conflict["path"]).name, "Decide the conflict…")
    person.window()
    person.chromium.click("main a.button")
    shown = person.chromium.until("Keep mine")
    assert "mine" in shown and "theirs" in shown
    person.picture("conflict")
    person.chromium.click('button[value="mine"]')
    person.chromium.until("There are no conflicts.")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"mine\n"
    assert not mounted.conflicts()
