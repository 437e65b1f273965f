"""Tasks of a person without a terminal, in the windows of a file manager and a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desktop.extensions import install
from tests.desktop.nautilus import Nautilus
from tests.desktop.session import Session
from tests.desktop.test_extensions import picture
from tests.desktop.test_file_manager import SERVICES
from tests.desktop.thunar import Thunar
from tests.harness import world
from tests.harness.chromium import Chromium
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

HEIGHT = 1260  # of the screen, in pixels: the file manager is above the browser
FILE_MANAGERS: dict[str, type[Nautilus] | type[Thunar]] = {"nautilus": Nautilus, "thunar": Thunar}


class Browser:
    """Browser with a window, which programs of the session open pages in."""

    def __init__(self, folder: Path, session: Session) -> None:
        """Open the browser; `folder` is for the address that a program gives it."""
        self._given = given = folder / "given"
        hook = folder / "hook"
        hook.write_text(f'#!/bin/sh\necho "$@" >{given}.new\nmv {given}.new {given}\n')
        hook.chmod(0o700)
        session.environment["BROWSER"] = str(hook)
        self.page = Chromium(display=session.environment["DISPLAY"])

    def follow(self) -> None:
        """Go to the page that a program opens."""
        address = eventually(self._address, what="a page is opened")
        self._given.unlink()
        self.page.go(address)
        eventually(lambda: self.page.address.startswith("http:"), what="the window is shown")

    def _address(self) -> str:
        return self._given.read_text().strip() if self._given.exists() else ""


class Person:
    """Person at a desktop: a file manager that shows a zone, and a browser."""

    def __init__(self, mounted: Mounted, session: Session, name: str, browser: Browser) -> None:
        """Install the extension and open the file manager; text files open in an editor."""
        self._name, self._session, self._browser = name, session, browser
        self.page = browser.page
        session.environment["ZONEDRIVE_COMMAND"] = str(COMMAND)
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
        self._browser.follow()
        return eventually(lambda: self.page.text, what="the page is shown")

    def go(self, page: str) -> None:
        """Choose another page of the window."""
        self.page.click(f'nav a[href="/a/default/{page}"]')

    def picture(self, task: str) -> None:
        """Save a picture of the screen, if pictures are wanted."""
        picture(self._session, f"{self._name}-{task}")


@pytest.fixture(params=FILE_MANAGERS)
def person(request: pytest.FixtureRequest, mounted: Mounted) -> Iterator[Person]:
    """Yield a person at a desktop with that file manager; the browser is below it."""
    with Session(mounted.machine.environment, height=HEIGHT) as session:
        browser = Browser(mounted.machine.folder, session)
        try:
            yield Person(mounted, session, request.param, browser)
        finally:
            browser.page.close()


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
    person.page.click('form button[value="1"]')
    person.page.until("Version 1 is the newest version now.")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == former

    person.delete("notes.txt")
    eventually(lambda: not mounted.zone.find("notes.txt"), what="the file is deleted")
    person.go("trash")
    person.page.until("notes.txt")
    person.picture("trash")
    person.page.click("main form button")
    person.page.until("restored ")
    eventually(path.exists, what="the file is back")

    person.go("help")
    person.page.until("Save a report")
    said = person.page.run("return fetch('/a/default/report').then(page => page.text())")
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
    person.page.click("main a.button")
    shown = person.page.until("Keep mine")
    assert "mine" in shown and "theirs" in shown
    person.picture("conflict")
    person.page.click('button[value="mine"]')
    person.page.until("There are no conflicts.")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"mine\n"
    assert not mounted.conflicts()


def test_an_ended_logon_is_renewed_from_its_notification(
    machine: Machine, deployment: Deployment, zone: str
) -> None:
    """The notification has a button, which leads to the window; the person types the password, and
    what was saved meanwhile is uploaded."""
    machine.log_on(deployment, profile="sandbox", options=("--session-only",))
    with Session(machine.environment, height=HEIGHT) as session:
        browser = Browser(machine.folder, session)
        session.run(next(each for each in SERVICES if each.exists()))
        machine.environment |= session.environment
        mount = Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.3"])
        mount.allow("logon", "log on")
        try:
            mount.mount()
            assert (mount.root / "notes.txt").read_bytes()
            deployment.tell({"expire_sessions": True})
            deployment.forget_people()  # their sessions have ended, too
            (mount.root / "notes.txt").write_bytes(b"saved without a logon\n")
            button = session.screen.find("push button", "Log on")
            picture(session, "notification-logon")
            session.click(button)
            browser.follow()
            assert "Log on again to" in browser.page.until("User name")
            browser.page.click("form button")
            browser.page.until("Password")
            browser.page.fill("password", world.PASSWORDS["alice"])
            browser.page.click("form button")
            browser.page.until("Connected")
            mount.sync()
            coworker = deployment.person("bob").zone(zone)
            assert coworker.read("notes.txt") == b"saved without a logon\n"
        finally:
            browser.page.close()
            mount.tear_down()
