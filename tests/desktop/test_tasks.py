"""Tasks of a person without a terminal, in the windows of a file manager and a browser.

Each test runs with Nautilus and with Thunar:

| task | test |
|---|---|
| log on by password, by identity provider | `test_the_first_logon_starts_in_the_menu` |
| open and save a document, see that it is uploaded | `test_versions_trash_and_report` |
| bring back a version, delete and restore, report a problem | `test_versions_trash_and_report` |
| decide a conflict | `test_a_conflict_is_decided_from_the_file` |
| keep offline, see who changed it, copy a link, share | `test_keeping_history_link_and_share` |
| be told of an ended logon and renew it | `test_an_ended_logon_is_renewed_from_its_notification` |

Dolphin has a menu only: `test_the_menu_in_dolphin`. `packaging/rollout-tour` installs the packages.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jeepney import new_method_return

from tests.desktop.dolphin import Dolphin
from tests.desktop.extensions import SOURCES, install, install_service_menu
from tests.desktop.nautilus import Nautilus
from tests.desktop.session import Session
from tests.desktop.test_extensions import PICTURES, picture, pins
from tests.desktop.test_file_manager import SERVICES
from tests.desktop.thunar import Thunar, configure
from tests.harness import world
from tests.harness.bus import Owner
from tests.harness.chromium import Chromium
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

HEIGHT = 1260  # of the screen, in pixels: the file manager is above the browser
FILE_MANAGERS: dict[str, type[Nautilus] | type[Thunar]] = {"nautilus": Nautilus, "thunar": Thunar}


class Browser:
    """Browser that shows the pages which programs of the session open.

    It is on the screen if pictures are wanted; otherwise several tests use one without a screen.
    """

    def __init__(
        self, folder: Path, session: Session, deployment: Deployment, kept: dict[str, Chromium]
    ) -> None:
        """Use the browser in `kept` that trusts the service; `folder` is for what programs give."""
        self._given = given = folder / "given"
        hook = folder / "hook"
        hook.write_text(f'#!/bin/sh\necho "$@" >{given}.new\nmv {given}.new {given}\n')
        hook.chmod(0o700)
        session.environment["BROWSER"] = str(hook)
        trusted = deployment.base_url
        if PICTURES:
            self.page = Chromium(trusted, display=session.environment["DISPLAY"])
        else:
            self.page = kept[trusted] = kept.get(trusted) or Chromium(trusted)
        self.page.save_files_in(folder / "Downloads")

    def close(self) -> None:
        """Leave the page, or close a browser on the screen."""
        if PICTURES:
            self.page.close()
        else:
            self.page.go("about:blank")

    def follow(self) -> None:
        """Go to the page that a program opens."""
        address = eventually(self._address, what="a page is opened")
        self._given.unlink()
        self.page.go(address)
        eventually(lambda: self.page.address.startswith("http:"), what="the window is shown")

    def _address(self) -> str:
        return self._given.read_text().strip() if self._given.exists() else ""


@pytest.fixture(scope="module")
def _browsers() -> Iterator[dict[str, Chromium]]:
    found: dict[str, Chromium] = {}
    yield found
    for each in found.values():
        each.close()


@pytest.fixture
def browsers(
    request: pytest.FixtureRequest, _browsers: dict[str, Chromium]
) -> Iterator[dict[str, Chromium]]:
    """Yield the open browsers by the service that they trust."""
    failed = request.session.testsfailed
    yield _browsers
    while request.session.testsfailed > failed and _browsers:  # what the test has left is unknown
        _browsers.popitem()[1].close()


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
        """Select an entry and press Delete."""
        self._session.focus(self._name)
        self.files.select(name)
        self.files.key("Delete")

    def reload(self) -> None:
        """Press F5, because the kernel does not report names that other users create."""
        self._session.focus(self._name)
        self.files.key("F5")

    def window(self) -> str:
        """Follow the file manager to the page that it opens in the browser; return its text."""
        self._browser.follow()
        return eventually(lambda: self.page.text, what="the page is shown")

    def open_window(self) -> None:
        """Open the window, as the entry in the menu of the desktop does."""
        self._session.run(COMMAND, "ui")
        self._browser.follow()

    def paste(self) -> str:
        """Return the text that Ctrl+V enters into a page on the same screen."""
        browser = Chromium(display=self._session.environment["DISPLAY"])
        try:
            return eventually(browser.paste, what="there is a text on the clipboard")
        finally:
            browser.close()

    def go(self, page: str) -> None:
        """Choose another page of the window."""
        self.page.click(f'nav a[href="/a/default/{page}"]')

    def picture(self, task: str) -> None:
        """Save a picture of the screen, if pictures are wanted."""
        picture(self._session, f"{self._name}-{task}")


@pytest.fixture(params=FILE_MANAGERS)
def person(
    request: pytest.FixtureRequest, mounted: Mounted, browsers: dict[str, Chromium]
) -> Iterator[Person]:
    """Yield a person at a desktop with that file manager; the browser is below it."""
    with Session(mounted.machine.environment, height=HEIGHT) as session:
        browser = Browser(mounted.machine.folder, session, mounted.deployment, browsers)
        try:
            yield Person(mounted, session, request.param, browser)
        finally:
            browser.close()


def test_versions_trash_and_report(mounted: Mounted, person: Person) -> None:
    """A person edits a document, sees that it is uploaded, brings back the former version, deletes
    and restores the document, and saves a report for support."""
    path = mounted.root / "notes.txt"
    former = path.read_bytes()
    mounted.allow("503")
    with mounted.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        person.files.open("notes.txt")
        person.open_window()
        assert "only on this computer" in person.page.until("notes.txt")
        person.picture("waiting")
    mounted.sync()
    person.page.until("Everything is on the service.")
    assert len(mounted.zone.versions("notes.txt")) == 2
    person.picture("saved")

    person.choose("notes.txt", "Versions…")
    assert "Versions of notes.txt" in person.window()
    person.picture("versions")
    person.page.click('form button[value="1"]')
    person.page.until("The file has the content of version 1 now")
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
    person.page.click('main a[href$="/report"]')
    report = mounted.machine.folder / "Downloads" / "zonedrive-report-default.txt"
    assert eventually(report.read_text, what="the report").startswith("zonedrive: a report")
    person.picture("report")


def test_keeping_history_link_and_share(mounted: Mounted, person: Person) -> None:
    """A person keeps a document on this computer, sees who changed it, copies the link for
    coworkers, and shares it with somebody outside."""
    path = mounted.root / "notes.txt"
    person.choose("notes.txt", "Keep on this computer")
    inside = f"{mounted.root.name}/notes.txt"
    eventually(lambda: pins(mounted.machine) == [inside], what="the file is kept")
    eventually(lambda: os.getxattr(path, "user.zonedrive.state") == b"cached", what="it is here")
    with mounted.deployment.faulty(down=True):
        assert path.read_bytes() == world.SEED["notes.txt"]
        person.picture("kept")

    mounted.zone.write("notes.txt", b"theirs\n")
    person.choose("notes.txt", "Who changed this…")
    assert "Who changed notes.txt" in person.window()
    person.page.until(f"bob@{world.DOMAIN}")
    person.picture("who-changed-it")

    person.choose("notes.txt", "Copy link for members")
    link = person.paste()
    assert link == mounted.command("link", path=str(path))["link"]
    assert link.startswith(mounted.deployment.base_url)
    bob = f"{quote(f'bob@{world.DOMAIN}', safe='')}:{quote(world.PASSWORDS['bob'])}"
    person.page.go(link.replace("https://", f"https://{bob}@"))
    assert "notes.txt" in person.page.text
    person.picture("link")

    person.choose("notes.txt", "Share…")
    assert "Share notes.txt" in person.window()
    person.page.click("main form button.main")
    person.page.until("Copy it now")
    person.picture("share")
    shared = person.page.run("return document.getElementById('link').value")
    person.page.go(shared)
    assert "notes.txt" in person.page.text


class Clipboard(Owner):
    """Clipboard of KDE, which Dolphin's menu copies to."""

    NAME = "org.kde.klipper"
    text = ""

    def _answer(self, message: Any, method: str) -> Any:
        assert method == "setClipboardContents"
        (self.text,) = message.body
        return new_method_return(message)


def test_the_menu_in_dolphin(mounted: Mounted, browsers: dict[str, Chromium]) -> None:
    """Each item of Dolphin's menu leads to its task: send now, versions, who changed it, share,
    the link for coworkers, and the decision of a conflict."""
    entries = install_service_menu(mounted.machine)
    path = mounted.root / "notes.txt"
    with Session(mounted.machine.environment, height=HEIGHT) as session:
        session.environment["ZONEDRIVE_COMMAND"] = str(COMMAND)
        browser = Browser(mounted.machine.folder, session, mounted.deployment, browsers)
        clipboard = Clipboard(session.environment["DBUS_SESSION_BUS_ADDRESS"])
        try:
            dolphin = Dolphin(session, path)
            mounted.machine.done("pause")
            path.write_bytes(b"sent\n")
            dolphin.open_menu()
            picture(session, "dolphin-tasks")
            dolphin.choose(entries.index("send"))
            eventually(lambda: mounted.zone.read("notes.txt") == b"sent\n", what="it is sent")
            mounted.machine.done("resume")
            for name, title in (
                ("versions", "Versions of"),
                ("log", "Who changed"),
                ("share", "Share"),
            ):
                session.focus("dolphin")
                dolphin.open_menu()
                dolphin.choose(entries.index(name))
                browser.follow()
                browser.page.until(f"{title} notes.txt")
                picture(session, f"dolphin-{title.split()[0].lower()}")
            session.focus("dolphin")
            dolphin.open_menu()
            dolphin.choose(entries.index("link"))
            link = mounted.command("link", path=str(path))["link"]
            eventually(lambda: clipboard.text == link, what="the link is copied")
            session.focus("dolphin")
            dolphin.open_menu()
            dolphin.choose(entries.index("conflict"))
            browser.follow()
            browser.page.until("There are no conflicts.")
        finally:
            clipboard.close()
            browser.close()


def test_a_conflict_is_decided_from_the_file(mounted: Mounted, person: Person) -> None:
    """The menu of the copy leads to both versions side by side, and one click decides."""
    mounted.allow("a conflict copy")
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
    shown = person.page.until("Keep mine")
    assert "mine" in shown and "theirs" in shown
    person.picture("conflict")
    person.page.click('button[value="mine"]')
    person.page.until("There are no conflicts.")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"mine\n"
    assert not mounted.conflicts()


@pytest.mark.parametrize("name", FILE_MANAGERS)
def test_an_ended_logon_is_renewed_from_its_notification(
    machine: Machine, deployment: Deployment, zone: str, browsers: dict[str, Chromium], name: str
) -> None:
    """The notification has a button, which leads to the window; the person types the password, and
    what was saved meanwhile is uploaded."""
    machine.log_on(deployment, profile="sandbox", options=("--session-only",))
    with Session(machine.environment, height=HEIGHT) as session:
        browser = Browser(machine.folder, session, deployment, browsers)
        session.run(next(each for each in SERVICES if each.exists()))
        machine.environment |= session.environment
        mount = Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.3"])
        mount.allow("logon", "log on")
        try:
            mount.mount()
            person = Person(mount, session, name, browser)
            assert (mount.root / "notes.txt").read_bytes()
            deployment.tell({"expire_sessions": True})
            deployment.forget_people()  # their sessions have ended, too
            person.files.open("notes.txt")
            button = session.screen.find("push button", "Log on")
            person.picture("ended-logon")
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
            assert coworker.read("notes.txt") == b"edited\n"
        finally:
            browser.close()
            mount.tear_down()


@pytest.fixture(scope="module")
def organization() -> Iterator[Deployment]:
    """Yield a service whose users may also sign on at an identity provider."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    provider = 'identity_providers = [{ name = "corp", description = "Corporate sign-on" }]'
    deployment = Deployment(folder, zones=1, organization=provider)
    yield deployment
    deployment.close()
    shutil.rmtree(folder, ignore_errors=True)


def log_on(page: Chromium, organization: Deployment, **fields: str) -> None:
    """Fill the form of a logon in the window, with the certificates of the organization."""
    page.until("Address of the service")
    page.click("summary")
    page.fill("url", organization.base_url)
    page.choose_file("certificates", organization.ca_file)
    for field, text in {"profile": "sandbox", **fields}.items():
        page.fill(field, text)
    page.click("form button.main")


@pytest.mark.parametrize("name", ["org.gnome.Nautilus", "thunar"])
def test_the_first_logon_starts_in_the_menu(
    machine: Machine, organization: Deployment, browsers: dict[str, Chromium], name: str
) -> None:
    """The menu entry opens the window; a person logs on by password, sees the zones in the file
    manager, logs off, and logs on again by an identity provider."""
    applications = machine.folders["DATA_HOME"] / "applications"
    applications.mkdir()
    launcher = (SOURCES / "packaging/desktop/zonedrive.desktop").read_text()
    assert "Exec=/usr/bin/zonedrive ui\n" in launcher
    (applications / "zonedrive.desktop").write_text(
        launcher.replace("/usr/bin/zonedrive", str(COMMAND))
    )
    folder = machine.folder / "Zones" / "Acme"
    alice = f"alice@{world.DOMAIN}"
    with Session(machine.environment, height=HEIGHT) as session:
        session.unlock_keyring()
        session.opens_folders_with(name)
        configure(session)
        browser = Browser(machine.folder, session, organization, browsers)
        page = browser.page
        try:
            session.run("gio", "launch", applications / "zonedrive.desktop")
            browser.follow()
            log_on(page, organization, username=alice)
            page.until("Password")
            picture(session, f"{name}-logon-password")
            page.fill("password", world.PASSWORDS["alice"])
            page.click("form button.main")
            page.until("Mounted.")
            page.click("#o-default")
            shown = session.screen.program(name)
            eventually(
                lambda: "Zone 01" in [each.name for each in shown.inside()], what="the zones"
            )
            picture(session, f"{name}-logon-done")
            page.click("#q-default")
            page.until("Log off")
            page.click("main form button")
            page.until("logged off")
            log_on(page, organization, idp="corp")
            page.until("Sign on with")
            page.click("#sign-on")
            page.tab(1)
            page.until("Corporate sign-on")
            picture(session, f"{name}-logon-provider")
            page.fill("username", alice)
            page.fill("password", world.PASSWORDS["alice"])
            page.click("button.go")
            page.until("close")
            page.close_tab()
            page.until("Mounted.")
            eventually(lambda: (folder / "Zone 01").is_dir(), what="the zones are back")
        finally:
            browser.close()
            machine.run("unmount", folder, "--now")
