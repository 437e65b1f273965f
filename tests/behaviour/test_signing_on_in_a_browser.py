"""`zonedrive logon` by a sign-on in a real browser."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.harness import world
from tests.harness.chromium import Chromium
from tests.harness.deployment import Deployment
from tests.harness.desk import Desk, command, sign_on
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually
from tests.harness.window import Window
from zonedrive.remote.profiles.load import packaged

ALICE, CAROL = f"alice@{world.DOMAIN}", f"carol@{world.DOMAIN}"
SECONDS = 60.0  # that an answer may take on a busy machine
PROVIDERS = """
identity_providers = [
    { name = "corp", description = "Corporate sign-on" }, { name = "branch office" },
]
personal_id = [{ name = "eid", description = "Electronic id" }]
"""
FRAGMENT = """
[sign_on]
body = { token = "{answer.token}", organizationName = "{organization}" }
error = "error"
response = "fragment"
"""


@pytest.fixture(scope="module")
def _free() -> Iterator[Deployment]:
    yield from served(f'{PROVIDERS}idp_users = ["{CAROL}"]')


@pytest.fixture(scope="module")
def strict() -> Iterator[Deployment]:
    """Yield a service where all users sign on at one of two providers."""
    yield from served(f"{PROVIDERS}idp_required = true")


def served(organization: str) -> Iterator[Deployment]:
    """Yield a service with that organization."""
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    deployment = Deployment(folder, zones=1, organization=organization)
    yield deployment
    deployment.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def free(_free: Deployment) -> Iterator[Deployment]:
    """Yield a service where users may sign on in a browser, and Carol must."""
    yield _free
    _free.heal()


@pytest.fixture(scope="module")
def chromium(_free: Deployment, strict: Deployment) -> Iterator[Chromium]:
    """Yield a browser that trusts both services."""
    browser = Chromium(_free.base_url, strict.base_url)
    yield browser
    browser.close()


def is_logged_on(machine: Machine) -> bool:
    """Return True if the account works."""
    return "Zone 01" in machine.done("zones")


@pytest.mark.parametrize("way", [("--idp", "corp"), ("--personal-id", "eid")])
def test_a_sign_on_in_a_browser(
    machine: Machine, free: Deployment, chromium: Chromium, way: tuple[str, str]
) -> None:
    """The provider checks the password, the page names the user, and the account works. The token
    is not in the browser's address, history or command line, nor on the terminal."""
    desk = Desk(machine, free, *way)
    given = desk.address()
    assert re.fullmatch(rf"file://{machine.folder}/zonedrive-sign-on-\w+/sign-on\.html", given)
    page = Path(urlsplit(given).path).read_text()
    start = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{32}", page)
    assert start is not None
    desk.go(chromium)
    provider = chromium.address
    assert provider.startswith(free.base_url)
    sign_on(chromium)
    chromium.until(f"Signed on as {ALICE}")
    assert "#" not in chromium.address
    assert "state" not in chromium.address
    assert chromium.run("return document.documentElement.outerHTML").count("token") == 0
    assert chromium.run("return [document.referrer, document.cookie, location.search]") == [
        "",
        "",
        "",
    ]
    shown = desk.end(0)
    assert f"logged on to {free.base_url} as {ALICE} (by session" in shown
    assert "it takes a password, and none was used" in shown
    assert is_logged_on(machine)
    assert "token=" not in shown
    assert urlsplit(provider).query not in shown
    chromium.back()
    assert "token" not in chromium.address
    assert not Path(urlsplit(given).path).parent.exists()
    for late in (provider, start[0]):
        try:
            chromium.go(late)
        except AssertionError:
            continue  # nobody listens any more
        assert "This sign-on is over" in chromium.text


def test_a_form_post_is_not_kept_by_the_browser(machine: Machine, free: Deployment) -> None:
    """A closed browser leaves a form post nowhere on the disk, unlike a fragment."""
    browser = Chromium(free.base_url)
    try:
        desk = Desk(machine, free, "--idp", "corp")
        desk.go(browser)
        sign_on(browser)
        browser.until("Signed on")
        left = browser.leave()
    finally:
        browser.close()
    desk.end(0)
    assert b"/api/sandbox/signon?id=" in left  # an existing one is kept
    for name in (b"token=", b"token%3D", "token=".encode("utf-16-le")):
        assert not re.search(re.escape(name) + rb"[\w\0-]{20}", left)


def test_a_provider_may_answer_in_the_fragment(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """If the profile says so, the answer is in the fragment, from which a page reads it."""
    profile = machine.folder / "deployment.toml"
    profile.write_text(FRAGMENT)
    desk = Desk(machine, free, "--idp", "branch office", "--profile", str(profile))
    desk.go(chromium)
    sign_on(chromium)
    chromium.until(f"Signed on as {ALICE}")
    assert chromium.address.endswith("/outcome")
    desk.end(0)
    assert is_logged_on(machine)


def test_giving_up_at_the_provider(machine: Machine, free: Deployment, chromium: Chromium) -> None:
    """Cancel ends the logon with a message on page and terminal, and without an account."""
    desk = Desk(machine, free, "--idp", "corp")
    desk.go(chromium)
    chromium.until("Password")
    chromium.click('button[value="cancel"]')
    assert "CANCELLED" in chromium.until("Not signed on")
    assert "zonedrive: the sign-on in the browser ended without success (CANCELLED)" in desk.end(3)
    assert not machine.state.exists()


def test_a_service_that_refuses_the_result(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """Page and terminal report the same error; nothing is tried a second time."""
    desk = Desk(machine, free, "--idp", "corp")
    desk.go(chromium)
    chromium.until("Password")
    free.fault(status=403, error="NOT_ALLOWED", path="^/api/access/logon$")
    sign_on(chromium)
    assert "The user may not log on this way" in chromium.until("Not signed on")
    assert "the user may not log on this way" in desk.end(3)


@pytest.mark.parametrize(
    ("way", "answer"), [(("--idp", "corp"), ""), (("--personal-id", "eid"), "n")]
)
def test_a_browser_of_another_user(
    machine: Machine, free: Deployment, chromium: Chromium, way: tuple[str, str], answer: str
) -> None:
    """The terminal shows the user of the browser and asks; unless the answer is yes, nothing is
    stored, and the session is ended."""
    desk = Desk(machine, free, *way, "--username", CAROL)
    desk.go(chromium)
    ended = free.stats()["requests"].get("GET /api/access/logoff", 0)
    sign_on(chromium)
    chromium.until("Signed on")
    asked = desk.agree(ALICE, answer)
    assert f"as {ALICE}, not as {CAROL}. Keep" in asked
    assert f"signed on as {ALICE}" in desk.end(3)
    assert "was not confirmed" in desk.terminal.shown
    assert free.stats()["requests"]["GET /api/access/logoff"] == ended + 1
    assert not machine.state.exists()


def test_an_expected_user_is_not_confirmed(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """A user who is named or was logged on before is not confirmed; any other user is."""

    def signed_on(user: str, *options: str) -> Desk:
        desk = Desk(machine, free, "--idp", "corp", *options)
        desk.go(chromium)
        sign_on(chromium, user)
        chromium.until("Signed on")
        desk.forget()
        return desk

    assert "[y/N]" not in signed_on(ALICE, "--username", ALICE.upper()).end(0)
    assert "[y/N]" not in signed_on(ALICE).end(0)
    desk = signed_on(CAROL)
    assert f"as {CAROL}, not as {ALICE}. Keep" in desk.agree(CAROL, "n")
    desk.end(3)
    assert ALICE in (machine.state / "account.json").read_text()
    desk = signed_on(CAROL)
    desk.agree(CAROL)
    desk.end(0)
    assert CAROL in (machine.state / "account.json").read_text()


def test_without_a_terminal_another_user_than_named_is_refused(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """Without a terminal, a script or desktop entry gets an error for an unexpected user.

    If no user was named, the last line of the logon names the user.
    """
    for options, code, words in (
        (("--username", CAROL), 3, f"signed on as {ALICE}, not as {CAROL}"),
        ((), 0, f"logged on to {free.base_url} as {ALICE}"),
        (("--username", ALICE), 0, "no keyring is in use"),
    ):
        desk = Desk(machine, free, "--idp", "corp", *options, terminal=False)
        desk.go(chromium)
        sign_on(chromium)
        chromium.until("Signed on" if code == 0 else "Not signed on")
        assert words in desk.end(code)
        assert (machine.state / "account.json").exists() is (code == 0)
        desk.forget()


def test_a_mount_continues_after_another_sign_on(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """After the session ends, `status` recommends the same sign-on; afterwards the mount
    continues."""

    def signed_on() -> None:
        desk = Desk(machine, free, "--idp", "branch office")
        desk.go(chromium)
        sign_on(chromium)
        chromium.until("Signed on")
        desk.end(0)
        desk.forget()

    signed_on()
    with Mounted(machine, free, "Zone 01", ["settle=0.2", "refresh=0.3"]).mounting() as mount:
        assert (mount.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
        free.tell({"expire_sessions": True})
        (mount.root / "new.txt").write_text("waits for a sign-on\n")
        command = f"run: zonedrive logon {free.base_url} --idp 'branch office'"
        eventually(lambda: command in machine.done("status"), what="status says what to run")
        signed_on()
        mount.sync()
        free.forget_people()
        zone = free.person("alice").zone("Zone 01")
        assert zone.read("new.txt") == b"waits for a sign-on\n"


def test_a_user_with_a_required_provider(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """The service answers the user's name with an address; the browser goes there, and returns."""
    desk = Desk(machine, free, "--username", CAROL)
    desk.go(chromium)
    assert CAROL in chromium.run("return document.forms[0].username.value")
    sign_on(chromium, CAROL)
    chromium.until(f"Signed on as {CAROL}")
    desk.end(0)
    assert is_logged_on(machine)


def test_choosing_a_provider(machine: Machine, strict: Deployment, chromium: Chromium) -> None:
    """If a provider is required and there are several, the user chooses one by its number."""
    desk = Desk(machine, strict)
    desk.terminal.until("Number [1]:")
    assert "1  corp (Corporate sign-on)\r\n  2  branch office" in desk.terminal.shown
    assert "eid" not in desk.terminal.shown
    desk.terminal.type("2")
    desk.go(chromium)
    assert "branch office" in chromium.text
    sign_on(chromium)
    chromium.until("Signed on")
    desk.end(0)
    assert is_logged_on(machine)


def test_choosing_between_a_password_and_a_browser(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """If passwords are not for all users and no name is given, the user chooses the method."""
    desk = Desk(machine, free)
    desk.terminal.until("Number [1]:")
    assert "1  user name and password\r\n  2  corp" in desk.terminal.shown
    desk.terminal.type("4")
    desk.go(chromium)
    assert "Electronic id" in chromium.text
    sign_on(chromium)
    chromium.until("Signed on")
    desk.end(0)


def test_choosing_the_password(machine: Machine, free: Deployment) -> None:
    """The first method is the one without a browser."""
    desk = Desk(machine, free)
    desk.terminal.until("Number [1]:")
    desk.terminal.type("")
    desk.terminal.until("User name")
    desk.terminal.type(ALICE)
    desk.terminal.until("Password")
    desk.terminal.type(world.PASSWORDS["alice"])
    assert "by token" in desk.end(0)
    assert not desk.is_opened()


def test_without_a_terminal_the_ways_are_listed(machine: Machine, strict: Deployment) -> None:
    """One line lists the methods, without a question or a browser."""
    ended = machine.run(*command(strict))
    assert ended.returncode == 2
    assert "choose with --idp corp or --idp 'branch office'" in ended.stderr
    given = machine.run(
        *command(strict, "--username", ALICE, "--password-stdin"), text="correct horse\n"
    )
    assert given.returncode == 3
    assert "use --idp corp or --idp 'branch office' or --personal-id eid" in given.stderr
    assert (ended.stderr.count("\n"), given.stderr.count("\n")) == (1, 1)


def test_an_unknown_provider(machine: Machine, free: Deployment) -> None:
    """The line names the existing providers."""
    for options, words in (
        (("--idp", "corpp"), "there is corp, branch office"),
        (("--personal-id", "corp"), "there is eid"),
    ):
        ended = machine.run(*command(free, *options))
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
        assert words in ended.stderr


def test_a_profile_that_does_not_know_the_answer(machine: Machine, free: Deployment) -> None:
    """With `published` the error comes before a browser is opened."""
    assert "published" in packaged()
    desk = Desk(machine, free, "--idp", "corp", "--profile", "published")
    assert "'published' does not define the answer of a sign-on in a browser" in desk.end(1)
    assert not desk.is_opened()


def test_a_sign_on_that_is_not_completed(machine: Machine, free: Deployment) -> None:
    """After --timeout the logon ends with one line."""
    desk = Desk(machine, free, "--idp", "corp", "--timeout", "0.3")
    assert "nobody signed on in the browser within 0.3 seconds" in desk.end(3)
    assert not machine.state.exists()


def test_giving_up_at_the_terminal(machine: Machine, free: Deployment) -> None:
    """Ctrl-C ends the wait with one line, and closes the listening socket."""
    desk = Desk(machine, free, "--idp", "corp")
    given = desk.start()
    desk.terminal.press("\x03")
    assert "zonedrive: the sign-on in the browser was cancelled" in desk.end(130)
    with pytest.raises(httpx.ConnectError):
        httpx.get(given, trust_env=False, timeout=SECONDS)


def test_other_pages_and_programs_cannot_end_or_take_the_wait(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """A page of another origin and a program that guesses are rejected; the sign-on continues."""
    desk = Desk(machine, free, "--idp", "corp")
    here = urlsplit(desk.start())
    chromium.go("data:text/html,<title>evil</title>")
    tried = f"""return Promise.all(["", "answer", "outcome"].map(path =>
        fetch("http://{here.netloc}/" + path, {{method: "POST", mode: "no-cors",
            headers: {{"Content-Type": "application/x-www-form-urlencoded"}}, body: "token=1"}})
        .then(said => said.type, () => "failed")))"""
    assert set(chromium.run(tried)) <= {"opaque", "failed"}
    for path in ("/", "/answer", "/outcome?state=1"):
        address = f"http://{here.netloc}{path}"
        said = httpx.post(address, data={"token": "1"}, trust_env=False, timeout=SECONDS)
        assert said.status_code == 404
    desk.go(chromium)
    sign_on(chromium)
    chromium.until(f"Signed on as {ALICE}")
    desk.end(0)


def test_the_browser_of_another_device(machine: Machine, free: Deployment) -> None:
    """--no-browser shows the address; the user pastes the final address, without echo."""
    desk = Desk(machine, free, "--idp", "corp", "--no-browser")
    desk.terminal.until("then press Enter.")
    found = re.search(rf"{re.escape(free.base_url)}/\S+", desk.terminal.shown)
    assert found is not None
    phone = httpx.Client(verify=False, timeout=SECONDS)  # a person's other device
    fields = {"username": ALICE, "password": world.PASSWORDS["alice"], "do": "sign-on"}
    ended_at = phone.post(found[0], data=fields).headers["location"]
    phone.close()
    assert urlsplit(ended_at).netloc in desk.terminal.shown
    desk.terminal.type(found[0])
    desk.terminal.until("paste it once more")
    # Some providers' answers are longer than a line that a terminal takes.
    desk.terminal.type(f"{ended_at}&padding={'x' * 9000}")
    shown = desk.end(0)
    assert "token=" not in shown
    assert "xxxx" not in shown
    assert not desk.is_opened()
    assert is_logged_on(machine)


def test_an_address_may_be_opened_on_this_machine_by_hand(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """If no browser can be started, the shown address works on this machine, too."""
    desk = Desk(machine, free, "--idp", "corp", "--no-browser")
    desk.terminal.until("then press Enter.")
    found = re.search(rf"{re.escape(free.base_url)}/\S+", desk.terminal.shown)
    assert found is not None
    chromium.go(found[0])
    sign_on(chromium)
    chromium.until("Signed on")
    desk.end(0)


def begin(window: Window, free: Deployment, field: str, name: str) -> None:
    """Begin a logon in the window, and open the provider's page in another tab."""
    chromium = window.chromium
    chromium.go(window.start)
    chromium.until("Address of the service")
    chromium.fill("url", free.base_url)
    chromium.click("summary")
    chromium.fill(field, name)
    chromium.fill("profile", "sandbox")
    chromium.choose_file("certificates", free.ca_file)
    chromium.click("form button")
    chromium.until(f"Sign on with {name}")
    chromium.click("#sign-on")
    chromium.tab(1)
    eventually(lambda: chromium.address.startswith(free.base_url), what="the provider's page")


@pytest.mark.parametrize(("field", "name"), [("idp", "corp"), ("personal_id", "eid")])
def test_a_sign_on_from_the_window(
    machine: Machine, free: Deployment, chromium: Chromium, field: str, name: str
) -> None:
    """The window opens the provider in another tab, and continues by itself afterwards."""
    window = Window(machine, chromium)
    folder = machine.folder / "Zones" / "Acme"
    try:
        begin(window, free, field, name)
        sign_on(chromium)
        assert "You can close this page." in chromium.until(f"Signed on as {ALICE}")
        chromium.close_tab()
        shown = chromium.until("Mounted.")
        assert f"logged on to {free.base_url} as {ALICE} (by session" in shown
        assert folder.is_mount()
        assert is_logged_on(machine)
    finally:
        machine.run("unmount", folder, "--now")
        window.close()


def test_a_sign_on_that_was_cancelled_in_the_window(
    machine: Machine, free: Deployment, chromium: Chromium
) -> None:
    """After "Cancel" in the window, the sign-on that is still open in the other tab logs nobody
    on."""
    window = Window(machine, chromium)
    try:
        begin(window, free, "idp", "corp")
        chromium.tab(0)
        assert "Address of the service" in chromium.submit("button[name=cancel]")
        chromium.tab(1)
        sign_on(chromium)
        assert "cancelled" in chromium.until("Not signed on")
        chromium.close_tab()
        assert not machine.state.exists()
    finally:
        window.close()
