"""Tasks of a user in the window, in a real browser, and requests that it refuses."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.harness import intruder, world
from tests.harness.chromium import Chromium
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted, has_ended
from tests.harness.waiting import eventually
from tests.harness.window import Window

ALICE = f"alice@{world.DOMAIN}"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]  # the rules that a dark scheme can break
# The parts of the style for some widths may set these only for pseudo-elements, which the rules of
# colours ignore.  The colours of the page are then the same in each width.
COLOURS_BY_WIDTH = """return [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
    .filter(part => part.media && part.conditionText.includes("width"))
    .flatMap(part => [...part.cssRules])
    .filter(rule => !rule.selectorText.includes("::") && [...rule.style].some(name =>
        /^--|^color$|^background|opacity|filter/.test(name))).map(rule => rule.cssText)"""
PAGES = ("files", "log", "conflicts", "trash", "offline", "zones", "settings", "help", "logoff")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """Yield a browser."""
    browser = Chromium()
    yield browser
    browser.close()


class Shared:
    """Mount with a browser that shows its window, for tests that change only their own zones."""

    def __init__(self, deployment: Deployment, zone: str) -> None:
        self.deployment = deployment
        self.machine = Machine(Path(tempfile.mkdtemp(prefix="zd")))
        self.machine.log_on(deployment, profile="sandbox")
        self._mount = self.part(zone)
        self._mount.mount()
        self._mount.leave()
        self.window = Window(self.machine, Chromium())
        self.window.chromium.go(self.window.start)
        self.window.chromium.until("Connected")

    def part(self, zone: str) -> Mounted:
        """Return the mount with the zone of one test."""
        return Mounted(self.machine, self.deployment, zone, ["settle=0.2"])

    def close(self) -> None:
        """End everything."""
        self.window.close()
        self.window.chromium.close()
        self._mount.tear_down()
        shutil.rmtree(self.machine.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def _shared() -> Iterator[list[Shared]]:
    found: list[Shared] = []
    yield found
    for each in found:
        each.close()


@pytest.fixture
def mounted(
    request: pytest.FixtureRequest, _shared: list[Shared], deployment: Deployment, zone: str
) -> Iterator[Mounted]:
    """Yield Alice's mounted zones; tests with the mark `shared_mount` share one mount."""
    if not request.node.get_closest_marker("shared_mount"):
        yield request.getfixturevalue("mounted")
        return
    if _shared and _shared[-1].deployment is not deployment:
        _shared.pop().close()
    if not _shared:
        _shared.append(Shared(deployment, zone))
    failed, is_usable = request.session.testsfailed, False
    try:
        with _shared[-1].part(zone).joined() as mounted:
            yield mounted
        is_usable = request.session.testsfailed == failed
    finally:
        if not is_usable:  # what the test has left is unknown
            _shared.pop().close()


@pytest.fixture
def window(
    request: pytest.FixtureRequest, mounted: Mounted, _shared: list[Shared], chromium: Chromium
) -> Iterator[Window]:
    """Yield the open window of a person whose zones are mounted."""
    if request.node.get_closest_marker("shared_mount"):
        yield _shared[-1].window
        return
    found = Window(mounted.machine, chromium)
    chromium.go(found.start)
    chromium.until("Connected")
    yield found
    found.close()


def violations(
    chromium: Chromium, rules: Sequence[str] = RULES, without: Sequence[str] = ()
) -> list[str]:
    """Return what the rules for accessible pages, or some of them, find on the page."""
    package = importlib.util.find_spec("axe_playwright_python")
    assert package is not None, "axe is missing: run packaging/setup --tests"
    script = Path(next(iter(package.submodule_search_locations or []))) / "axe.min.js"

    # Only short scripts: one that waits for a promise may never end when the page changes.  The
    # page keeps its state while the rules are checked.
    chromium.run("if (live) live.replaceWith(live.cloneNode(true))")
    options = {
        "runOnly": rules, "rules": {rule: {"enabled": False} for rule in without},
        "resultTypes": ["violations"], "selectors": False,
    }  # fmt: skip
    check = (
        f"axe.run(document, {json.dumps(options)}).then(found => {{ axe.said ="
        " found.violations.map(one => one.id + ': ' + one.nodes.map(n => n.html).join(' ')) },"
        " error => { axe.said = ['not checked: ' + error] })"
    )
    if chromium.run("return typeof axe") == "undefined":
        chromium.run(script.read_text("utf-8"))
    chromium.run(f"delete axe.said; void {check}")

    def found() -> tuple[list[str]]:
        look = "return 'said' in axe ? [axe.said] : document.readyState + document.visibilityState"
        said = chromium.run(look)
        assert isinstance(said, list), said
        return (said[0],)

    return eventually(found, 180.0, what="the rules are checked")[0]


def clash(mounted: Mounted, name: str) -> None:
    """Make a conflict: Bob saves the file while Alice edits it."""
    mounted.allow("a conflict copy")
    assert (mounted.root / name).read_bytes()
    with (mounted.root / name).open("r+b", buffering=0) as file:
        file.truncate()
        file.write(b"mine\n")
        mounted.zone.write(name, b"theirs\n")
    mounted.sync()
    assert mounted.conflicts()


@pytest.mark.parametrize("part", range(2))
def test_all_pages_are_accessible(mounted: Mounted, window: Window, part: int) -> None:
    """The rules of WCAG 2.2 AA find nothing, and no page is wider than the window.

    Each page is loaded once, and shown in two widths. No colour depends on the width, so colours
    are checked in one of them, light and dark.
    """
    clash(mounted, "notes.txt")
    (copy,) = mounted.conflicts()
    inside = f"{mounted.root.name}/notes.txt"
    compare = f"compare?path={quote(copy['path'])}&other={quote(copy['original'])}"
    of = "/a/default/"
    paths = ["/", "/logon", "/nothing", *(of + page for page in PAGES),
             *(f"{of}{page}?path={quote(inside)}" for page in ("versions", "log", "share")),
             f"{of}members?zone={quote(mounted.root.name)}", of + compare]  # fmt: skip
    found = {}
    for path in paths[part::2]:
        window.go(path)
        assert not window.chromium.run(COLOURS_BY_WIDTH)
        for width, dark, rules, without in (
            (320, False, RULES, OF_COLOURS),
            (1280, False, RULES, []),
            (1280, True, OF_COLOURS, []),
        ):
            window.chromium.show_as(width, dark=dark)
            found[path, width, dark] = violations(window.chromium, rules, without)
            shown = window.chromium.run("return document.documentElement.scrollWidth")
            assert shown <= width, (path, dark)
    assert not {place: said for place, said in found.items() if said}


@pytest.mark.shared_mount
def test_a_file_is_found_in_a_large_folder(mounted: Mounted, window: Window) -> None:
    """The first entries by name are shown, and the number of others; a part of a name finds one."""
    names = "return [...document.querySelectorAll('td:first-child')].map(each => each.innerText)"
    for number in range(1200):
        (mounted.root / f"Draft {number:04}~").touch()  # a name of files that are not uploaded
    window.go(f"/a/default/files?path={quote(mounted.root.name)}")
    every = sorted(mounted.root.iterdir(), key=lambda path: (path.is_file(), path.name.casefold()))
    expected = [path.name + ("/" if path.is_dir() else "") for path in every[:1000]]
    assert window.chromium.run(names) == expected
    assert f"{len(every) - 1000} more entries are not shown." in window.chromium.text
    window.chromium.fill("name", "draft 119")
    window.chromium.submit("form[role=search] button")
    found = [f"Draft {number}~" for number in range(1190, 1200)]
    assert window.chromium.run(names) == found
    assert "not shown" not in window.chromium.text
    window.chromium.fill("name", "none")
    assert "No name contains “none”." in window.chromium.submit("form[role=search] button")


@pytest.mark.shared_mount
def test_a_version_is_restored(mounted: Mounted, window: Window) -> None:
    """One click makes an earlier version the newest one."""
    path = mounted.root / "notes.txt"
    former = path.read_bytes()
    path.write_bytes(b"changed\n")
    mounted.sync()
    window.go(f"/a/default/versions?path={quote(f'{mounted.root.name}/notes.txt')}")
    window.chromium.click('form button[value="1"]')
    window.chromium.until("The file has the content of version 1 now")
    window.chromium.click("main nav a:last-of-type")
    window.chromium.until("big.bin")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == former
    assert len(mounted.zone.versions("notes.txt")) == 3


@pytest.mark.shared_mount
def test_the_log_of_a_file(mounted: Mounted, window: Window) -> None:
    """The log of a file names user and change; it can be limited to a user."""
    mounted.zone.write("notes.txt", b"theirs\n")
    place = quote(f"{mounted.root.name}/notes.txt")
    window.go(f"/a/default/log?path={place}")
    shown = window.chromium.text
    assert "Who changed notes.txt" in shown and "notes.txt has the version 2" in shown
    assert f"bob@{world.DOMAIN}" in shown and ALICE in shown
    window.chromium.fill("user", "bob")
    shown = window.chromium.submit("main form button")
    assert "has the version 2" in shown and "was added" not in shown
    window.go(f"/a/default/files?path={quote(mounted.root.name)}")
    window.chromium.click(f'a[href$="/log?path={place}"]')
    window.chromium.until("Who changed notes.txt")


@pytest.mark.shared_mount
def test_older_changes_on_request(window: Window) -> None:
    """A log shows its hundred newest changes first."""
    rows = "return document.querySelectorAll('tbody tr').length"
    window.go("/a/default/log")
    assert window.chromium.run(rows) == 100
    window.chromium.click('a[href*="most="]')
    eventually(lambda: window.chromium.run(rows) > 100, what="older changes are shown")


@pytest.mark.shared_mount
def test_a_file_is_shared_and_the_sharing_ended(mounted: Mounted, window: Window) -> None:
    """One click shows a link that works without an account, another one ends it."""
    place = quote(f"{mounted.root.name}/notes.txt")
    window.go(f"/a/default/share?path={place}")
    window.chromium.click("main form button.main")
    window.chromium.until("Copy it now")
    link = window.chromium.run("return document.getElementById('link').value")
    assert link.startswith(mounted.deployment.base_url)
    assert window.chromium.run("return document.querySelector('main a.button').href") == link
    assert "is not shared any more" in window.chromium.submit("main button.danger")
    again = window.chromium.submit("main button.danger")
    assert "is not shared" in again and "is not shared any more" not in again
    assert mounted.machine.run("unshare", mounted.root / "notes.txt").returncode == 1


@pytest.mark.shared_mount
def test_a_double_click_sends_a_form_once(mounted: Mounted, window: Window) -> None:
    """Two clicks make one link; the user would not see the other one."""
    path = mounted.root / "notes.txt"
    window.go(f"/a/default/share?path={quote(f'{mounted.root.name}/notes.txt')}")
    window.chromium.run(
        "const button = document.querySelector('main form button.main')\n"
        "for (const click of [1, 2]) setTimeout(() => button.click(), 100 * click)"
    )
    window.chromium.until("Copy it now")
    events = [one["event"] for one in json.loads(mounted.machine.done("log", "--json", path))]
    assert events.count("Shared") == 1
    mounted.machine.done("unshare", path)


@pytest.mark.shared_mount
def test_the_members_of_a_zone(mounted: Mounted, window: Window) -> None:
    """Each zone links to its members, except for a zone that the API does not open."""
    window.go("/a/default/zones")
    links = """return [...document.querySelectorAll('tbody tr')]
        .filter(row => row.querySelector('a[href*="/members?"]') === null)
        .map(row => row.cells[0].innerText)"""
    assert window.chromium.run(links) == ["Closed"]
    assert "Users with access" in window.chromium.text
    name = mounted.root.name
    window.chromium.click(f'a[href$="name={quote(name)}"]')
    shown = window.chromium.until(f"Members of {name}")
    assert all(word in shown for word in (ALICE, "Manage", "Modify", "Add"))


@pytest.mark.shared_mount
def test_members_are_changed(mounted: Mounted, window: Window) -> None:
    """A member is removed after a confirmation, added again, and gets another level; a refusal is
    shown."""
    carol, name = f"carol@{world.DOMAIN}", mounted.root.name

    def levels() -> dict[str, str]:
        found = json.loads(mounted.machine.done("members", "--json", name))
        return {one["id"]: one["level"] for one in found}

    window.go(f"/a/default/members?zone={quote(name)}")
    row = f'tr:has(input[value="{carol}"])'
    window.chromium.click(f"{row} summary")
    assert not violations(window.chromium)
    window.chromium.click(f"{row} button.danger")
    window.chromium.until(f"{carol} is no longer a member.")
    assert carol not in levels()
    window.chromium.run("document.querySelector('#level').value = 'Modify'")
    for said in ("has the level Modify now.", "is a member of"):
        window.chromium.run(f"document.querySelector('#who').value = {json.dumps(carol)}")
        window.chromium.run("document.querySelector('#level').value = 'Modify'")
        window.chromium.click('button[value="add"]')
        window.chromium.until(f"{carol} {said}")
        assert levels()[carol] == "Modify"
    assert not violations(window.chromium)
    window.chromium.run(f"document.querySelector('{row} select').value = 'Add'")
    window.chromium.click(f'{row} button[value="set"]')
    window.chromium.until(f"{carol} has the level Add now.")
    assert levels()[carol] == "Add"


def test_members_that_the_profile_cannot_change(mounted: Mounted, window: Window) -> None:
    """Without the operations, the page only lists."""
    profile = mounted.machine.folder / "lists.toml"
    profile.write_text('[members]\nmethod = "GET"\npath = "/api/sandbox/zones/{zone}/members"\n')
    file = mounted.machine.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'profile = "{profile}"\n')
    window.go(f"/a/default/members?zone={quote(mounted.root.name)}")
    window.chromium.until(ALICE)
    assert window.chromium.run("return document.querySelectorAll('main form').length") == 0


@pytest.mark.mount(profile="published")
def test_pages_that_the_profile_cannot_fill(mounted: Mounted, window: Window) -> None:
    """Pages of operations that the profile lacks have one sentence, and no page links to them."""
    place = quote(f"{mounted.root.name}/notes.txt")
    for page in ("log", "share"):
        window.go(f"/a/default/{page}?path={place}")
        if page == "share":
            window.chromium.click("main form button.main")
        window.chromium.until("has no endpoint for")
    window.go(f"/a/default/files?path={quote(mounted.root.name)}")
    assert window.chromium.run("return document.querySelectorAll('a[href*=\"/log\"]').length") == 0
    assert "Share" not in window.chromium.text


def test_a_daemon_that_does_not_answer_is_started_again(mounted: Mounted, window: Window) -> None:
    """The page says that the daemon does not answer; a click ends it and mounts again, and saved
    changes are uploaded."""
    with mounted.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        mounted.allow("503")
        (mounted.root / "new.txt").write_bytes(b"x")
        os.kill(mounted.pid, signal.SIGSTOP)
        window.go("/a/default/trash")
        window.chromium.until("zonedrive does not answer for this account.")
        assert not violations(window.chromium)
        window.chromium.click('main form[action$="/restart"] button')
        window.chromium.until("Started again.")
    assert mounted.is_mounted()
    mounted.sync()
    assert mounted.zone.read("new.txt") == b"x"


def test_the_help_page_has_the_remedies(mounted: Mounted, window: Window) -> None:
    """A failed check has its remedy without a command, and a button: here, for a daemon that died,
    whose mount comes back at the same place."""
    os.kill(mounted.pid, signal.SIGKILL)
    eventually(lambda: has_ended(mounted.pid), what="the daemon is dead")
    window.go("/a/default/help")
    shown = window.chromium.until("What to do: Mount it.")
    assert "run 'zonedrive" not in shown and "findmnt" not in shown
    assert not violations(window.chromium)
    window.chromium.click('section form[action$="/mount"] button')
    window.chromium.until("Mounted.")
    assert mounted.is_mounted()


def test_an_unreachable_service_has_a_remedy(mounted: Mounted, window: Window) -> None:
    """The page says what to do, and a click loads it again."""
    (mounted.root / "notes.txt").unlink()
    mounted.sync()
    mounted.allow("cannot be reached", "offline")
    with mounted.deployment.faulty(down=True):
        window.go("/a/default/trash")
        window.chromium.until("Check the network connection, then try again.")
        assert not violations(window.chromium)
    eventually(lambda: mounted.status()["state"] == "online", what="the service is back")
    assert "notes.txt" in window.chromium.submit("main a.button.main")


def test_an_account_that_is_not_mounted_can_be_mounted(mounted: Mounted, window: Window) -> None:
    """Pages that need the files have a button that mounts."""
    mounted.unmount()
    folder = mounted.path / "Acme"
    try:
        window.go("/a/default/files")
        window.chromium.until("This account is not mounted.")
        window.chromium.click('main form[action$="/mount"] button')
        window.chromium.until("Mounted.")
        assert folder.is_mount()
    finally:
        mounted.machine.run("unmount", folder, "--now")


@pytest.mark.shared_mount
def test_a_deleted_file_is_restored(mounted: Mounted, window: Window) -> None:
    """The trash restores with one click."""
    (mounted.root / "notes.txt").unlink()
    mounted.sync()
    (deleted,) = mounted.zone.trash()
    window.go("/a/default/trash")
    window.chromium.click(f'button[value="{deleted["id"]}"]')
    window.chromium.until("restored ")
    eventually((mounted.root / "notes.txt").exists, what="it is back")


@pytest.mark.parametrize(
    ("decision", "content"), [("mine", b"mine\n"), ("theirs", b"theirs\n"), ("both", b"theirs\n")]
)
@pytest.mark.shared_mount
def test_a_conflict_is_decided(
    mounted: Mounted, window: Window, decision: str, content: bytes
) -> None:
    """Both versions stand side by side, and one click decides."""
    clash(mounted, "notes.txt")
    before = len(mounted.zone.versions("notes.txt"))
    window.go("/a/default/conflicts")
    window.chromium.click("main a.button")
    shown = window.chromium.until("Keep mine")
    assert "mine" in shown and "theirs" in shown
    window.chromium.click(f'button[value="{decision}"]')
    window.chromium.until("There are no conflicts.")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == content
    assert len(mounted.zone.versions("notes.txt")) == before + (decision == "mine")
    kept = [name for name in mounted.zone.listing() if name.startswith("notes")]
    assert len(kept) == (2 if decision == "both" else 1)
    assert not mounted.conflicts()


@pytest.mark.shared_mount
def test_the_conflict_of_a_copy_is_shown_at_once(mounted: Mounted, window: Window) -> None:
    """The menu of a file manager opens both versions of the selected copy."""
    clash(mounted, "notes.txt")
    (copy,) = mounted.conflicts()
    path = mounted.path / copy["path"]
    said = mounted.machine.done("ui", "--no-browser", "--page", "conflicts", path)
    found = re.search(r"http://\S+", said)
    assert found is not None
    window.chromium.go(found[0])
    assert "theirs" in window.chromium.until("Keep mine")
    window.chromium.click('button[value="both"]')
    window.chromium.until("There are no conflicts.")


@pytest.mark.shared_mount
def test_a_conflict_whose_other_version_was_removed(mounted: Mounted, window: Window) -> None:
    """There is nothing to compare; another name ends the conflict."""
    clash(mounted, "notes.txt")
    (mounted.root / "notes.txt").unlink()
    mounted.sync()
    window.go("/a/default/conflicts")
    window.chromium.until("next to another one that was removed later")
    window.chromium.click('button[value="both"]')
    window.chromium.until("There are no conflicts.")
    (kept,) = [path for path in mounted.root.iterdir() if path.name.startswith("notes")]
    assert kept.read_bytes() == b"mine\n"


def test_a_copy_that_is_not_uploaded_is_kept(mounted: Mounted, window: Window) -> None:
    """A copy that only this computer has cannot be given up for the other version."""
    mounted.allow("a conflict copy", "503")
    path = mounted.root / "notes.txt"
    assert path.read_bytes()
    file = path.open("r+b", buffering=0)
    file.truncate()
    file.write(b"mine\n")
    mounted.zone.write("notes.txt", b"theirs\n")
    with mounted.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        file.close()
        (copy,) = eventually(mounted.conflicts, what="there is a conflict copy")
        window.go("/a/default/conflicts")
        window.chromium.click("main a.button")
        window.chromium.until("Keep mine")
        window.chromium.click('button[value="theirs"]')
        window.chromium.until("Your copy is not uploaded yet, and would be lost.")
        assert (mounted.path / copy["path"]).read_bytes() == b"mine\n"
    mounted.sync()
    assert mounted.zone.read(Path(copy["path"]).name) == b"mine\n"


@pytest.mark.shared_mount
def test_an_unsent_edit_is_not_replaced(mounted: Mounted, window: Window) -> None:
    """Neither an earlier version nor the copy of a conflict replaces content that only is here."""
    clash(mounted, "notes.txt")
    path, place = mounted.root / "notes.txt", f"{mounted.root.name}/notes.txt"
    mounted.machine.done("pause")
    path.write_bytes(b"unsent\n")
    (copy,) = mounted.conflicts()
    for page, button in (
        (f"versions?path={quote(place)}", '[value="1"]'),
        (f"compare?path={quote(copy['path'])}&other={quote(place)}", '[value="mine"]'),
    ):
        window.go(f"/a/default/{page}")
        window.chromium.click(f"form button{button}")
        window.chromium.until("has content that is only on this computer and would be lost")
        window.chromium.until("save a copy of the version, or keep both.")
        assert path.read_bytes() == b"unsent\n"
    assert (mounted.path / copy["path"]).read_bytes() == b"mine\n"
    mounted.machine.done("resume")
    mounted.sync()
    window.chromium.click('a[href="/"]')


@pytest.mark.mount(profile="published")
def test_a_conflict_that_the_profile_cannot_end(mounted: Mounted, window: Window) -> None:
    """If files cannot be deleted or renamed, no decision is offered."""
    clash(mounted, "notes.txt")
    window.go("/a/default/conflicts")
    window.chromium.click("main a.button")
    window.chromium.until("Remove one of the two in the web application.")
    assert window.chromium.run("return document.querySelectorAll('[name=decision]').length") == 0


@pytest.mark.shared_mount
def test_a_decision_about_no_conflict_is_refused(mounted: Mounted, window: Window) -> None:
    """A form that names other files than a conflict's deletes nothing."""
    window.go("/a/default/conflicts")
    place = f"{mounted.root.name}/notes.txt"
    send = f"""
        const form = document.createElement("form")
        form.method = "post"
        form.action = "/a/default/decide"
        for (const [name, value] of Object.entries(
            {{path: {json.dumps(place)}, other: "none.txt", decision: "theirs"}})) {{
            const field = document.createElement("input")
            field.name = name
            field.value = value
            form.append(field)
        }}
        document.body.append(form)
        form.submit()"""
    window.chromium.run(send)
    window.chromium.until("This conflict is over.")
    assert (mounted.root / "notes.txt").exists()


def test_an_account_is_mounted_beside_the_mount_of_another(
    mounted: Mounted, window: Window
) -> None:
    """If the folder of the mounts is a mount itself, a second account gets a folder next to it."""
    machine = mounted.machine
    assert mounted.path == machine.folder / "Zones"
    machine.log_on(mounted.deployment, name="bob", profile="sandbox", options=("--account", "bob"))
    folder = machine.folder / "Zones-bob"
    try:
        window.go("/")
        window.chromium.click("#m-bob")
        window.chromium.until("Mounted.")
        assert folder.is_mount()
    finally:
        machine.run("unmount", folder, "--now")


@pytest.mark.shared_mount
def test_a_file_is_kept_offline(mounted: Mounted, window: Window) -> None:
    """A click keeps a file on this computer, and another one stops it; the page follows a change
    without a reload."""
    window.go(f"/a/default/files?path={quote(mounted.root.name)}")
    inside = f"{mounted.root.name}/notes.txt"
    window.chromium.click(f'button[value="{inside}"]')
    window.chromium.until("1 file available offline")
    pinned = json.loads(mounted.machine.done("pin", "--json"))
    assert [one["path"] for one in pinned] == [inside]
    window.chromium.click(f'button[value="{inside}"]')
    window.chromium.until("Nothing is kept offline.")
    assert json.loads(mounted.machine.done("pin", "--json")) == []
    mounted.machine.done("pin", mounted.root / "docs")
    window.chromium.until("3 files available offline")
    mounted.machine.done("unpin", mounted.root / "docs")


@pytest.mark.shared_mount
def test_an_update_moves_the_focus_to_no_other_entry(mounted: Mounted, window: Window) -> None:
    """The next key must not press the button of another entry than the one that had the focus."""
    paths = mounted.root / "docs", mounted.root / "notes.txt"
    mounted.machine.done("pin", *paths)
    window.go("/a/default/offline")
    focused = "return document.activeElement.getAttribute('aria-label')"
    for path in paths:
        window.chromium.until(path.name)
    window.chromium.run("document.querySelector('#live button[aria-label$=\"notes.txt\"]').focus()")
    before = window.chromium.run(focused)
    assert "notes.txt" in before
    mounted.machine.done("unpin", paths[0])
    buttons = "return document.querySelectorAll('#live button').length"
    eventually(lambda: window.chromium.run(buttons) == 1, what="the other entry is gone")
    assert window.chromium.run(focused) == before
    mounted.machine.done("unpin", paths[1])


@pytest.mark.mount("cache_size=2M")
def test_files_that_cannot_be_kept_are_named(mounted: Mounted, window: Window) -> None:
    """A zone is chosen on the page of what is kept offline, which follows the download, and names
    the files that are missing and why; its entries link to their folders."""
    name = mounted.root.name
    window.go("/a/default/offline")
    window.chromium.run(f"document.querySelector('#path').value = {json.dumps(name)}")
    window.chromium.click("main form button.main")
    window.chromium.until("5 of 6 files")
    window.chromium.click("details summary")
    shown = window.chromium.until("There is no room for it. Allow more in the settings")
    assert f"{name}/big.bin" in shown and "1 file is missing" in shown
    assert not violations(window.chromium)
    window.go("/a/default/offline")
    window.chromium.click(f'main td a[href$="{quote(name)}"]')
    window.chromium.until("notes.txt")


def test_settings_are_changed(mounted: Mounted, window: Window) -> None:
    """A saved value is in the file, whose comments stay; a wrong value is refused and still
    shown."""
    file = mounted.machine.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("# mine\nrefresh = 12.5 # often\n")
    window.go("/a/default/settings")
    window.chromium.fill("cache_size", "lots")
    window.chromium.fill("settle", "2")
    window.chromium.click("form button")
    window.chromium.until("cache_size cannot be 'lots'")
    assert file.read_text() == "# mine\nrefresh = 12.5 # often\n"
    window.chromium.fill("cache_size", "2G")
    window.chromium.click("form button")
    window.chromium.until("Saved.")
    assert file.read_text() == (
        '# mine\nrefresh = 12.5 # often\n\n[account.default]\nsettle = 2.0\ncache_size = "2G"\n'
    )
    shown = window.chromium.run("return document.querySelector('[name=refresh]').value")
    assert shown == "12.5"


@pytest.mark.shared_mount
def test_uploads_show_without_a_reload(mounted: Mounted, window: Window) -> None:
    """Waiting and completed uploads are shown without a reload of the page."""
    window.go("/")
    with mounted.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        (mounted.root / "waits.txt").write_bytes(b"x")
        window.chromium.until("waits.txt")
    mounted.sync()
    window.chromium.until("Everything is on the service.")


@pytest.mark.shared_mount
@pytest.mark.parametrize(("press", "release"), [("pointerdown", "pointerup"), ("keydown", "keyup")])
def test_an_update_waits_while_a_button_is_pressed(
    window: Window, press: str, release: str
) -> None:
    """The button stays until it is released, so that the click is not lost; then the update is
    shown."""
    window.go("/")
    stays = f"""
        const button = document.getElementById("h-default")
        events.close()  // only this test sends updates
        const send = name => button.dispatchEvent(new Event(name, {{bubbles: true}}))
        send("{press}")
        events.dispatchEvent(new MessageEvent("live", {{data: "<p>the update</p>"}}))
        const stays = button.isConnected
        send("{release}")
        return stays && button.isConnected"""
    assert window.chromium.run(stays)
    window.chromium.until("the update")
    window.go("/")


@pytest.mark.shared_mount
def test_uploads_are_paused_and_resumed(mounted: Mounted, window: Window) -> None:
    """The overview says that uploads are paused, sends a file nevertheless, and resumes."""
    window.go("/")
    window.chromium.click("#p-default")
    window.chromium.until("Uploads are paused.")
    for name in ("a.txt", "b.txt"):
        (mounted.root / name).write_bytes(b"x")
    window.go("/")
    shown = window.chromium.until("b.txt")
    assert "Uploads are paused." in shown
    assert not violations(window.chromium)
    window.chromium.click(f'button[value="{mounted.root.name}/b.txt"]')
    window.chromium.until("Sent.")
    assert mounted.zone.find("b.txt") is not None
    assert mounted.zone.find("a.txt") is None
    window.chromium.click("#p-default")
    window.chromium.until("Uploads continue.")
    eventually(lambda: mounted.zone.find("a.txt") is not None, what="the other is sent")
    window.chromium.until("Everything is on the service.")
    assert not mounted.status()["paused"]


def test_sending_without_the_service_is_answered_at_once(mounted: Mounted, window: Window) -> None:
    """If the service is known to be unreachable, "Send now" says so, and does not wait for it."""
    mounted.allow("cannot be reached", "offline")
    assert list(mounted.root.iterdir())
    with mounted.deployment.faulty(down=True):
        (mounted.root / "waits.txt").write_bytes(b"x")
        eventually(lambda: mounted.status()["state"] == "offline", what="it is offline")
        window.go("/")
        window.chromium.until("waits.txt")
        window.chromium.click(f'button[value="{mounted.root.name}/waits.txt"]')
        window.chromium.until("The service cannot be reached.")
    mounted.sync()


def test_an_account_that_logs_off_elsewhere_disappears(mounted: Mounted, window: Window) -> None:
    """An open overview does not go on to show the last account as connected."""
    window.go("/")
    window.chromium.until("Connected")
    mounted.machine.done("logoff")
    sections = "return document.querySelectorAll('section').length"
    eventually(lambda: window.chromium.run(sections) == 0, what="the overview is empty")
    assert "Add an account" in window.chromium.text


@pytest.mark.shared_mount
def test_a_refused_logoff_has_its_remedies(mounted: Mounted, window: Window) -> None:
    """If changes are only on this computer, the page says why, has a button that continues the
    uploads, and a box that allows their loss."""
    mounted.machine.done("pause")
    (mounted.root / "new.txt").write_bytes(b"x")
    window.go("/a/default/logoff")
    window.chromium.click("form button.danger")
    shown = window.chromium.until("uploads are paused. Let the uploads continue.")
    assert "Delete what is only on this computer" in shown and "--discard" not in shown
    assert not violations(window.chromium)
    window.chromium.click('main form[action$="/resume"] button')
    window.chromium.until("Uploads continue.")
    mounted.sync()
    assert mounted.zone.read("new.txt") == b"x"


def test_errors_are_in_the_language_of_the_session(mounted: Mounted, chromium: Chromium) -> None:
    """A German session explains a refused upload, a refused change and an unreachable service
    in German."""
    mounted.allow("NOT_ALLOWED", "your rights", "cannot be reached", "offline")
    mounted.machine.environment["LANGUAGE"] = "de"
    window = Window(mounted.machine, chromium)
    try:
        chromium.go(window.start)
        assert chromium.run("return document.documentElement.lang") == "de"
        refused = {"status": 403, "error": "NOT_ALLOWED"}
        with mounted.deployment.faulty(method="POST", path="^/api/zones/", **refused):
            (mounted.root / "new.txt").write_bytes(b"x")
            chromium.until("Der Dienst lehnt es ab. Bitten Sie jemanden, der die Zone verwaltet")
            assert not violations(chromium)
            window.go("/a/default/help")
            chromium.until("Was zu tun ist: Die Übersicht zeigt, was es ist und warum.")
            assert not violations(chromium)
        with mounted.deployment.faulty(down=True):
            window.go("/a/default/help")
            chromium.until("ist nicht erreichbar\nWas zu tun ist: prüfen Sie Netzwerk")
        eventually(lambda: mounted.status()["state"] == "online", what="the service is back")
        with mounted.deployment.faulty(method="PUT", path="^/api/sandbox/", **refused):
            window.go(f"/a/default/members?zone={quote(mounted.root.name)}")
            chromium.click('tbody tr:last-child button[value="set"]')
            assert "Bitten Sie" in chromium.until("Sie haben dazu nicht das Recht.")
            assert not violations(chromium)
    finally:
        window.close()


@pytest.mark.shared_mount
def test_a_name_from_the_service_is_text(mounted: Mounted, window: Window) -> None:
    """A file's name cannot become a part of the page."""
    name = "<img src=x onerror=alert(1)>.txt"
    mounted.zone.write(name, b"x")
    eventually(lambda: name in mounted.names(mounted.root), what="the file shows")
    window.go(f"/a/default/files?path={quote(mounted.root.name)}")
    assert name in window.chromium.text
    assert window.chromium.run("return document.querySelectorAll('img').length") == 0


def test_logging_on_mounting_and_logging_off(
    deployment: Deployment, machine: Machine, chromium: Chromium
) -> None:
    """A user logs on, with the certificate authority of the organization, sees the mount, mounts
    again after the daemon was killed, and logs off. A wrong password is reported, and no field must
    be typed twice."""
    window = Window(machine, chromium)
    chromium.show_as(1280, dark=False)
    folder = machine.folder / "Zones" / "Acme"
    try:
        chromium.go(window.start)
        chromium.until("Address of the service")
        chromium.fill("url", deployment.base_url)
        chromium.fill("username", ALICE)
        chromium.click("form button")
        chromium.until("Ask your IT department, or choose its certificate file")
        assert not violations(chromium)
        chromium.choose_file("certificates", deployment.ca_file)
        chromium.fill("profile", "sandbox")
        chromium.submit("form button")
        chromium.fill("password", "wrong")
        assert "wrong password" in chromium.submit("form button")
        chromium.choose_file("certificates", deployment.ca_file)
        chromium.submit("form button")
        chromium.fill("password", world.PASSWORDS["alice"])
        chromium.click("form button")
        shown = chromium.until("Mounted.")
        assert f"logged on to {deployment.base_url} as {ALICE}" in shown
        assert "This account is mounted at your next login." in shown
        assert "Do not mount at login" in shown
        assert folder.is_mount()
        daemon = json.loads((machine.state / "daemon.lock").read_bytes())["pid"]
        os.kill(daemon, signal.SIGKILL)
        eventually(lambda: has_ended(daemon), what="the daemon is dead")
        window.go("/")
        chromium.click("#m-default")
        chromium.until("Mounted.")
        assert folder.is_mount()
        window.go("/a/default/logoff")
        chromium.click("form button")
        chromium.until("logged off")
        assert not folder.is_mount()
    finally:
        machine.run("unmount", folder, "--now")
        window.close()


def test_a_logon_with_a_one_time_code(tmp_path: Path, machine: Machine, chromium: Chromium) -> None:
    """The page asks for the code of the mail; a wrong one is reported, and the right one logs
    on."""
    file = world.write(tmp_path, zones=1, organization='otp = "ServiceMail"')
    file.write_text(file.read_text().replace(
        'name = "Alice"\n', 'name = "Alice"\notp_secret = "GEZDGNBVGY3TQOJQ"\n'))  # fmt: skip
    deployment = Deployment(tmp_path, world_file=file)
    window = Window(machine, chromium)
    folder = machine.folder / "Zones" / "Acme"
    try:
        chromium.go(window.start)
        chromium.until("Address of the service")
        chromium.fill("url", deployment.base_url)
        chromium.fill("username", ALICE)
        chromium.click("summary")
        for is_right in (False, True):
            chromium.fill("profile", "sandbox")
            chromium.choose_file("certificates", deployment.ca_file)
            chromium.submit("form button")
            chromium.fill("password", world.PASSWORDS["alice"])
            assert "One-time code" in chromium.submit("form button")
            assert not violations(chromium)
            right = str(deployment.tell({"mail": ALICE})["code"])
            chromium.fill("code", right if is_right else f"{(int(right) + 1) % 10**6:06}")
            shown = chromium.submit("form button")
            assert ("Mounted." if is_right else "Address of the service") in shown
        assert folder.is_mount()
    finally:
        machine.run("unmount", folder, "--now")
        window.close()
        deployment.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_page_that_leads_to_the_window_is_removed(machine: Machine, number: int) -> None:
    """However the window ends, the page with its start address does not stay."""
    asked, browser = machine.folder / "asked", machine.folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {asked}.new\nmv {asked}.new {asked}\n')
    browser.chmod(0o755)
    process = subprocess.Popen(
        [COMMAND, "ui"], env=machine.environment | {"BROWSER": str(browser)}, cwd=machine.folder,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(asked.exists, what="the browser is started")
    page = Path(urlsplit(asked.read_text().strip()).path)
    assert page.exists()
    process.send_signal(number)
    process.wait(60)
    assert not page.parent.exists()


@pytest.mark.shared_mount
def test_another_user_of_the_machine_gets_nothing(mounted: Mounted, window: Window) -> None:
    """A connection of another user is closed, whatever it sends."""
    for path in ("/", urlsplit(window.start).path, "/static/style.css"):
        said = intruder.request("127.0.0.1", window.port, intruder.get(path, window.port))
        assert said == b""


@pytest.mark.shared_mount
def test_a_second_start_opens_the_same_window(mounted: Mounted, window: Window) -> None:
    """The command ends at once, and its address leads to a page of the first one."""
    said = mounted.machine.done("ui", "--no-browser", "--page", "trash")
    assert "open already" in said
    found = re.search(r"http://\S+", said)
    assert found is not None and urlsplit(found[0]).port == window.port
    window.chromium.go(found[0])
    window.chromium.until("Trash")
    assert window.chromium.address == f"{window.base}/a/default/trash"


@pytest.mark.shared_mount
def test_a_second_start_takes_a_long_path(mounted: Mounted, window: Window) -> None:
    """A path of any length that the system accepts is opened in the same window."""
    path = mounted.root.joinpath(*["文" * 80] * 6, "a.txt")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    said = mounted.machine.done("ui", "--no-browser", "--page", "share", path)
    found = re.search(r"http://\S+", said)
    assert found is not None and urlsplit(found[0]).port == window.port
    window.chromium.go(found[0])
    window.chromium.until("a.txt")


def test_the_window_ends_with_its_page(mounted: Mounted, window: Window) -> None:
    """Some seconds after the last page is closed, the process ends; the mount stays."""
    window.chromium.go("about:blank")
    assert window.process.wait(60) == 0
    assert mounted.is_mounted()
