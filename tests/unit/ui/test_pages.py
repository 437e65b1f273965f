"""Parts of the window that need no browser and no mount."""

import asyncio
import configparser
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from zonedrive import config, errors
from zonedrive.causes import cause_of, label, line_of
from zonedrive.cli import control_client, text_output
from zonedrive.daemon import last_run
from zonedrive.errors import ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.logon import LogonRequest
from zonedrive.logon.secrets import Secret
from zonedrive.logon.wire import Offer
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote.wire.error_mapping import refusal
from zonedrive.ui import accounts, commands, comparison, logons, pages, problems, session_start
from zonedrive.ui.accounts import AccountView
from zonedrive.ui.logons import Dialogue
from zonedrive.ui.serve import FIRST_SECONDS, Presence


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the account `work`, which is logged on but not mounted."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("STATE_HOME", "CACHE_HOME", "CONFIG_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name))
    account = Account(name="work", base_url="https://service.example", username="a")
    account.save(AccountPaths("work"))


async def answered(
    window: pages.Window, path: str, form: Mapping[str, str] | None = None
) -> httpx.Response:
    """Request a page, or post a form, and return the response."""
    transport = httpx.ASGITransport(app=window.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://window") as client:
        return await client.request("GET" if form is None else "POST", path, data=form)


@pytest.mark.usefixtures("work")
async def test_an_account_without_a_mount_unmounts_nothing() -> None:
    """A button on a page that is out of date does not unmount the current folder."""
    response = await answered(pages.Window(nullcontext), "/a/work/do/unmount", {})
    assert response.status_code == 409
    assert "This account is not mounted." in response.text


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("fails", [False, True])
async def test_a_form_that_is_posted_again_meanwhile_has_the_same_response(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The second of two clicks, whose response the browser shows, does nothing twice. Another form
    and a later click run as usual."""
    ran, go_on = list[str](), threading.Event()

    def run(*words: str) -> commands.Outcome:
        ran.append(words[0])
        assert go_on.wait(60)
        if fails and len(ran) == 2:
            raise ZonedriveError(f"{words[0]} failed")
        return commands.Outcome(0, "", "")

    monkeypatch.setattr(commands, "run", run)
    window, responses = pages.Window(nullcontext), list[httpx.Response]()

    async def post(what: str) -> None:
        responses.append(await answered(window, f"/a/work/do/{what}", {}))

    async with anyio.create_task_group() as group:
        for what in ("pause", "resume", "pause", "resume"):
            group.start_soon(post, what)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert sorted(ran) == ["pause", "resume"]
    assert sorted(each.status_code for each in responses) == [
        303,
        303,
        *[500 if fails else 303] * 2,
    ]
    await post("pause")
    assert sorted(ran) == ["pause", "pause", "resume"]


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("page", ["trash", "log"])
async def test_a_page_names_the_zones_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """A list without the zones whose trash or log the user may not see is not the whole list."""
    view = replace(accounts.view("work"), failure=None, profile="sandbox")
    view.status.update(mountpoint="/home/me/Zones")
    monkeypatch.setattr(accounts, "view", lambda name: view)
    line = f"you cannot see the {page} of zone <Board>; ask one of its managers"
    said = ""
    monkeypatch.setattr(commands, "run", lambda *_, **__: commands.Outcome(0, "[]", said))
    empty = {"trash": "The trash is empty.", "log": "There are no changes."}[page]
    shown = (await answered(pages.Window(nullcontext), f"/a/work/{page}")).text
    assert empty in shown
    said = line
    shown = (await answered(pages.Window(nullcontext), f"/a/work/{page}")).text
    assert line.replace("<", "&lt;").replace(">", "&gt;") in shown
    assert empty not in shown and "the other zones" in shown


@pytest.mark.usefixtures("work")
async def test_an_unknown_former_folder_is_not_the_top_of_the_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service does not name the folder of an entry if that folder is deleted, too."""
    one = {"id": "1", "name": "a", "folder": False, "zone": "Board", "deleted": None,
           "modified": "2026-11-21T14:03:07+00:00"}  # fmt: skip
    folders = {None: "?", "": "/", "docs/2026": "docs/2026"}
    found = json.dumps([one | {"parent": each} for each in folders])
    monkeypatch.setattr(commands, "run", lambda *_, **__: commands.Outcome(0, found, ""))
    shown = (await answered(pages.Window(nullcontext), "/a/work/trash")).text
    assert re.findall('data-label="Was in">(.*?)</td>', shown) == [*folders.values()]


@pytest.mark.usefixtures("work")
async def test_a_mount_that_died_has_its_reason() -> None:
    """The overview says when the daemon ended, and why."""
    paths = AccountPaths("work")
    last_run.Run(paths).begin(Path("/mnt"))
    shown = (await answered(pages.Window(nullcontext), "/")).text
    assert re.search(r"zonedrive ended unexpectedly after .*: it was killed \(SIGKILL\)\.", shown)
    run = last_run.Run(paths)
    run.begin(Path("/mnt"))
    run.died("it has no memory left.")
    shown = (await answered(pages.Window(nullcontext), "/")).text
    assert re.search(r"zonedrive ended unexpectedly at .*: it has no memory left\.<", shown)


@pytest.mark.usefixtures("work")
async def test_a_mount_point_that_is_not_utf_8_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview and its updates show the other bytes of the path."""
    view = replace(accounts.view("work"), failure=None)
    view.status.update(
        mountpoint=os.fsdecode(b"/home/me/caf\xe9"), state="online", pid=1,
        outbox={"conflicts": 0, "bytes": 0},
    )  # fmt: skip
    monkeypatch.setattr(accounts, "view", lambda name: view)
    window = pages.Window(nullcontext)
    assert "/home/me/caf?" in (await answered(window, "/")).text
    assert "/home/me/caf?" in window._live()


@pytest.mark.parametrize("what", ["upgrade", "removal"])
@pytest.mark.usefixtures("work")
async def test_an_open_window_outlives_its_package(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages that were never shown need values of this version, and files that may be gone."""
    here = tmp_path / "ui"
    for name in ("templates", "static"):
        shutil.copytree(pages.HERE / name, here / name)
    monkeypatch.setattr(pages, "HERE", here)
    window = pages.Window(nullcontext)
    if what == "upgrade":
        for page in (here / "templates").iterdir():
            page.write_text("{{ value_of_the_next_version }}")
    else:
        shutil.rmtree(here)
    for path in ("/logon", "/static/style.css", "/static/live.js", "/static/zonedrive.svg"):
        assert (await answered(window, path)).status_code == 200, path
    assert (await answered(window, "/static/nothing.css")).status_code == 404


@pytest.mark.usefixtures("work")
async def test_the_help_shows_a_problem_without_a_button(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page opens although the status cannot be read, and says so."""
    monkeypatch.setattr(commands, "listed", lambda *words, **_: {"checks": []})
    view = replace(accounts.view("work"), failure=errors.ConfigError("a setting is wrong"))
    monkeypatch.setattr(accounts, "view", lambda name: view)
    response = await answered(pages.Window(nullcontext), "/a/work/help")
    assert response.status_code == 200
    assert "What was entered or set cannot be used." in response.text


@pytest.mark.usefixtures("work")
async def test_the_help_waits_for_slow_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks take a minute if neither the daemon nor the service answers, when Help is needed."""

    def check(
        words: Sequence[str], *, timeout: float, **_: object
    ) -> subprocess.CompletedProcess[bytes]:
        if timeout < 60:
            raise subprocess.TimeoutExpired(words, timeout)
        found = [{"name": "daemon", "ok": False, "detail": "it is silent", "remedy": "wait"}]
        return subprocess.CompletedProcess(words, 1, json.dumps({"checks": found}).encode(), b"")

    monkeypatch.setattr(subprocess, "run", check)
    response = await answered(pages.Window(nullcontext), "/a/work/help")
    assert response.status_code == 200
    assert "it is silent" in response.text


@pytest.mark.usefixtures("work")
async def test_a_form_keeps_what_another_window_saved() -> None:
    """Only the settings that the user changes in the form are saved."""
    window = pages.Window(nullcontext)
    text = (await answered(window, "/a/work/settings")).text
    fields = r'name="(former-\w+|settle|refresh)"[^>]* value="([^"]*)"'
    form = dict(re.findall(fields, text))
    config.change(config_file(), "work", {"settle": "7"})
    for refresh, status in (("often", 400), ("20", 303)):
        response = await answered(window, "/a/work/settings", form | {"refresh": refresh})
        assert response.status_code == status
        form = dict(re.findall(fields, response.text)) or form
    found = config.load(config_file(), "work")
    assert (found.settle, found.refresh) == (7.0, 20.0)


@pytest.mark.usefixtures("work")
async def test_the_default_of_a_setting_is_that_of_the_organization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page names the value that an emptied field has, not that of zonedrive."""
    (tmp_path / "config.toml").write_text("refresh = 30.0\n")
    shared = config.organization("work", tmp_path)
    monkeypatch.setattr(config, "organization", lambda account: shared)
    config.change(config_file(), "work", {"refresh": "7"})
    text = (await answered(pages.Window(nullcontext), "/a/work/settings")).text
    assert re.search(r"<code>refresh</code> Default: 30\.", text)
    assert re.search(r"<code>settle</code> Default: 1\.", text)


def test_folders_whose_files_are_unknown_are_named() -> None:
    """The page of what is kept offline does not leave out folders that were never listed."""
    one = {"path": "Zone", "folder": True, "files": 2, "here": 2, "bytes": 2, "here_bytes": 2}
    pins = [one | {"missing": [], "unlisted": number} for number in (0, 3)]
    pins.append(one | {"missing": []})  # from a daemon of an earlier version
    status = {"cache": {"bytes": 2, "limit": 9}}
    view = AccountView("work", "Acme", "https://service.example", "a", "", status)
    template = pages.Window(nullcontext)._environment.get_template("pins.html")
    shown = template.render(account=view, pins=pins, room=9)
    assert shown.count("2 files available offline") == 3
    assert shown.count("3 folders are missing with their files") == 1


@pytest.mark.usefixtures("work")
def test_the_progress_of_a_silent_daemon_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The open page of what is kept offline replaces its former numbers with the error."""
    view = replace(accounts.view("work"), failure=None)
    view.status.update(mountpoint="/home/me/Zones", cache={"bytes": 2, "limit": 9})
    monkeypatch.setattr(accounts, "view", lambda name: view)
    monkeypatch.setattr(accounts, "pins", lambda account: [])
    window = pages.Window(nullcontext)
    assert "Nothing is kept offline." in window._live_offline("work")

    def silent(account: AccountView) -> None:
        raise control_client.NotResponding(AccountPaths("work"))

    monkeypatch.setattr(accounts, "pins", silent)
    shown = window._live_offline("work")
    assert "zonedrive does not answer for this account." in shown
    assert 'action="/a/work/do/restart"' in shown
    assert "Nothing is kept offline." not in shown


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (507, "",
         "The service is full: delete something there, or ask the administrator for room."),
        (413, "", "Make it smaller, or ask the administrator for a higher limit."),
        (409, "LOCKED", "Wait until the lock is released."),
        (403, "NOT_ALLOWED", "Ask a manager of the zone for the right."),
        (400, "INVALID_DATA", "Another name or folder may help."),
    ],
)  # fmt: skip
def test_a_refused_upload_has_the_remedy_of_its_error(status: int, code: str, advice: str) -> None:
    """The advice is that of the error, and a general one only if the error has none."""
    refused = refusal(status, json.dumps({"error": code}).encode(), "uploading")
    shown = problems.of_upload({"error": line_of(refused), "cause": label(cause_of(refused))})
    assert shown is not None
    assert shown.text == f"The service refuses it. {advice}"
    assert f"HTTP {status}" in shown.reason
    assert advice[1:-1] not in shown.reason or status == 400


@pytest.mark.parametrize("cause", ["unclear", None])
def test_an_upload_with_another_cause_keeps_the_remedy_of_its_error(cause: str | None) -> None:
    """The remedy stays with the reason if the page does not show it as advice."""
    locked = line_of(refusal(409, b'{"error": "LOCKED"}', "uploading"))
    shown = problems.of_upload({"error": locked, "cause": cause})
    assert shown is not None
    assert f"{shown.text} {shown.reason}".count("wait until the lock is released") == 1


def test_every_setting_has_a_meaning() -> None:
    """The settings page explains each setting and each of its values, and only existing ones."""
    assert set(pages.meanings()) == set(config.NAMES)
    labels = {name: {*found} for name, found in pages.labels().items()}
    assert labels == {name: {*values} for name, values in pages.CHOICES.items()}


def test_the_remedy_for_an_unknown_authority_needs_no_terminal() -> None:
    """The page asks for a file instead of a command-line option; other remedies stay."""
    unknown = errors.Untrusted("its issuer is unknown", remedy="log on with --ca-file PEM")
    found = logons.problem_of(unknown)
    assert found.remedy.startswith("Ask your IT department, or choose its certificate file")
    assert (found.reason, found.buttons) == ("its issuer is unknown", ())
    other = errors.OtherHost("it is for x", remedy="check the address")
    assert logons.problem_of(other).remedy.startswith("Check the address")


def test_a_page_answers_only_its_own_question() -> None:
    """A password that is sent again does not become the one-time code."""
    dialogue = Dialogue("work", LogonRequest(url="https://service.example", username="a"))
    given = list[Secret]()

    def ask() -> None:
        given.extend((dialogue.password(), dialogue.code("HOTP")))

    logon = threading.Thread(target=ask, daemon=True)
    logon.start()
    shown = list[str]()
    for kind in ("password", "code"):
        dialogue.wait(60)
        assert dialogue.question is not None and dialogue.at == kind
        shown.append(dialogue.question.id)
        for number, page in enumerate(shown):
            dialogue.answer({"question": page, "password": "secret", "code": f"{number}"})
    logon.join(60)
    assert [each.reveal() for each in given] == ["secret", "1"]


async def logon_begun(window: pages.Window) -> tuple[str, Dialogue]:
    """Begin the window's only logon; return the address of its page, and the logon."""
    response = await answered(window, "/logon", {"url": "https://service.example"})
    (dialogue,) = window._logons.values()
    return response.headers["location"], dialogue


async def test_a_cancelled_logon_takes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """After "Cancel", a page of the logon that is still open does not continue it."""
    given = list[Secret]()

    def log_on(dialogue: Dialogue) -> str:
        given.append(dialogue.password())
        return "logged on"

    monkeypatch.setattr(Dialogue, "_log_on", log_on)
    window = pages.Window(nullcontext)
    place, dialogue = await logon_begun(window)
    dialogue.wait(60)
    question = re.search(r'name="question" value="([^"]+)"', (await answered(window, place)).text)
    assert question is not None
    response = await answered(window, place, {"question": question[1], "cancel": "1"})
    assert response.headers["location"] == "/"
    await answered(window, place, {"question": question[1], "password": "secret"})
    dialogue.wait(60)
    assert dialogue.error is not None and not given
    response = await answered(window, place)
    assert "This logon is over" in (await answered(window, response.headers["location"])).text


async def test_a_logon_that_is_being_stored_is_not_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page of the logon shows its result then, instead of nothing."""
    stored, go_on = threading.Event(), threading.Event()

    def log_on(dialogue: Dialogue) -> str:
        dialogue.require_wanted(is_last=True)
        stored.set()
        go_on.wait(60)
        return "logged on"

    monkeypatch.setattr(Dialogue, "_log_on", log_on)
    window = pages.Window(nullcontext)
    place, dialogue = await logon_begun(window)
    assert stored.wait(60)
    response = await answered(window, place, {"cancel": "1"})
    assert response.headers["location"] == place
    go_on.set()
    dialogue.wait(60)
    assert dialogue.done == "logged on"


def test_an_error_has_its_remedy_once() -> None:
    """The page's own remedy comes first, else that of the error; the message is a detail."""
    found = problems.of(errors.Rejected("uploading: a bad name", remedy="rename it here"))
    assert (found.remedy, found.reason) == ("Rename it here", "uploading: a bad name")
    found = problems.of(errors.SignOnNotOffered("line 3", remedy="correct that line, or move it"))
    assert found.buttons == ("edit-settings",)
    for number, words, said in (
        (errno.ENETUNREACH, "Network is unreachable", "The service cannot be reached."),
        (errno.EXDEV, "odd", "odd"),
    ):
        with pytest.raises(OSError, match=words) as caught:
            raise OSError(number, words)
        found = problems.of(caught.value)
        assert found.text == said
        assert found.reason == ("" if said == words else words)


def test_a_comparison_shows_differences() -> None:
    """Changed, added and removed lines are side by side; runs of equal lines are shortened."""
    same = [f"line {number}\n" for number in range(20)]
    left = "".join(["mine\n", *same, "removed\n"])
    right = "".join(["theirs\n", *same, "added\n", "added too\n"])
    rows = comparison.rows(left, right) or []
    assert (rows[0].kind, rows[0].left, rows[0].right) == ("changed", "mine", "theirs")
    kinds = [row.kind for row in rows]
    assert kinds.count("gap") == 1 and kinds.count("same") == 2 * comparison.CONTEXT
    assert (rows[-1].kind, rows[-1].left, rows[-1].right) == ("added", "", "added too")
    assert comparison.rows(left, left) == []


def test_texts_that_repeat_their_lines_are_compared_up_to_a_limit() -> None:
    """The time depends on the pairs of equal lines."""
    assert comparison.rows("same\n" * 100, "same\n" * 101)
    assert comparison.rows("same\n" * 5000, "same\n" * 5001) is None


def test_a_pause_is_a_sentence_with_its_end() -> None:
    """The end is in the local time zone."""
    moment = "2026-11-23T16:30:00+00:00"

    def pause(**status: object) -> str:
        return AccountView("default", "", "", "", "", status).pause

    assert pause() == pause(paused=False) == ""
    assert pause(paused=True) == "Uploads are paused."
    end = pause(paused=True, paused_until=moment)
    assert end == f"Uploads are paused until {text_output.when(moment)}."


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\0b", b"x" * (comparison.LARGEST + 1)])
def test_files_that_are_not_text_are_not_compared(tmp_path: Path, data: bytes) -> None:
    """Bytes that are not UTF-8 text, and long files, are opened by other programs."""
    (tmp_path / "file").write_bytes(data)
    assert comparison.text_of(tmp_path / "file") is None


@pytest.mark.parametrize("path", ["..", "../other", "a/../../b", "/etc/passwd", "a\0b"])
def test_a_page_does_not_leave_the_mount(path: str) -> None:
    """A path in an address is below the mount point."""
    view = AccountView("default", "", "", "", "", {"mountpoint": "/home/me/Zones"})
    with pytest.raises(ZonedriveError):
        accounts.inside(view, path)
    assert accounts.inside(view, "a/./b") == Path("/home/me/Zones/a/b")


@pytest.fixture
def conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], Any]:
    """Return a function that makes a conflict between two names, and sends a decision about it."""
    view = AccountView("work", "", "", "", "", {"mountpoint": str(tmp_path)})
    monkeypatch.setattr(accounts, "names", lambda: ["work"])
    monkeypatch.setattr(accounts, "view", lambda name: view)

    async def decide(decision: str, copy: str, original: str) -> httpx.Response:
        paths = {"path": copy, "other": original}
        (tmp_path / copy).write_text("mine")
        (tmp_path / original).write_text("theirs")
        stamp = pages._stamp(tmp_path / copy, tmp_path / original)
        monkeypatch.setattr(
            commands, "listed", lambda *words: [{"path": copy, "original": original}]
        )
        form = {**paths, "stamp": stamp, "decision": decision}
        window = pages.Window(nullcontext)
        response = await answered(window, "/a/work/decide", form)
        assert response.status_code == 303
        return response

    return decide


@pytest.mark.parametrize("mode", [0o600, 0o700])
async def test_a_decided_conflict_keeps_the_mode_of_the_file(
    tmp_path: Path, conflict: Callable[..., Any], mode: int
) -> None:
    """With the option allow_other, a file of another mode could be read by other users."""
    (tmp_path / "a.txt").touch(mode)
    await conflict("mine", "a (conflict).txt", "a.txt")
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("saved", ["a (conflict).txt", "a.txt"])
async def test_a_file_that_changes_during_the_copying_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conflict: Callable[..., Any], saved: str
) -> None:
    """The copy of a large file takes long; what is saved meanwhile is not replaced or removed."""
    copy = shutil.copyfile

    def slowly(source: Path, target: Path) -> None:
        copy(source, target)
        (tmp_path / saved).write_text("saved meanwhile")

    monkeypatch.setattr(shutil, "copyfile", slowly)
    await conflict("mine", "a (conflict).txt", "a.txt")
    assert (tmp_path / saved).read_text() == "saved meanwhile"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a (conflict).txt", "a.txt"]


@pytest.mark.parametrize("original", ["ä" * 125 + ".txt", "." + "ä" * 127, "a." + "b" * 253])
async def test_both_versions_with_long_names_are_kept(
    tmp_path: Path, conflict: Callable[..., Any], original: str
) -> None:
    """A name that would be too long is shortened."""
    await conflict("both", "a (conflict).txt", original)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept.pop(original) == "theirs"
    assert [*kept.values()] == ["mine"] and "(mine)" in str(kept)


@pytest.mark.usefixtures("work")
async def test_going_back_to_a_logon_does_not_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a logon mounts once, although the browser may load it again later."""
    mounted = list[str]()

    def mount(name: str, folder: Path) -> commands.Outcome:
        mounted.append(name)
        return commands.Outcome(0, "", "")

    monkeypatch.setattr(pages, "_mounted", mount)
    monkeypatch.setattr(Dialogue, "_log_on", lambda dialogue: "logged on")
    window = pages.Window(nullcontext)
    given = {"again": "1", "account": "work"}
    place = (await answered(window, "/logon", given)).headers["location"]
    for _ in range(2):
        assert (await answered(window, place)).headers["location"].startswith("/")
    assert mounted == ["work"]


async def test_a_download_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file is gone even if the browser ends before it reads the first byte."""

    def fetch(*words: str, seconds: float | None) -> commands.Outcome:
        assert seconds is None  # a large version takes long
        Path(words[-1]).write_bytes(b"old")
        return commands.Outcome(0, "", "")

    view = AccountView("work", "", "", "", "", {"mountpoint": "/home/me/Zones"})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(accounts, "view", lambda name: view)
    monkeypatch.setattr(commands, "run", fetch)
    request = Request(
        {"type": "http", "query_string": b"path=notes.txt", "path_params": {"name": "work"}}
    )
    response = pages.Window(nullcontext)._version(request)
    assert not [*tmp_path.iterdir()]
    assert isinstance(response, StreamingResponse)
    assert [piece async for piece in response.body_iterator] == [b"old"]


def test_the_room_is_that_of_the_nearest_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may delete the cache while the account is mounted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "deleted"))
    assert accounts.room(AccountView("work", "", "", "", "", {})) > 0


@pytest.mark.parametrize("started", ["command", "module"])
def test_the_file_for_the_autostart_folder_starts_the_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: str
) -> None:
    """Without a service manager the desktop mounts, on a folder of any name."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no systemctl
    folder = tmp_path / 'My "zones" $HOME `id` 100% \\'
    program = tmp_path / 'pipx "$HOME" 5%' / "zonedrive"
    program.parent.mkdir()
    program.touch()
    monkeypatch.setattr("sys.argv", [str(program) if started == "command" else "__main__.py"])
    session_start.choose("work", str(folder), start=True)
    assert session_start.is_on("work") and not session_start.is_on("default")
    entry = configparser.RawConfigParser()
    entry.read(tmp_path / "autostart" / "zonedrive-work.desktop", "utf-8")
    command = entry["Desktop Entry"]["Exec"].replace("\\\\", "\\").replace("%%", "%")
    ours = [str(program)] if started == "command" else [sys.executable, "-P", "-m", "zonedrive"]
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', command)
    found = [re.sub(r"\\(.)", r"\1", quoted) or plain for quoted, plain in words]
    assert found == [*ours, "mount", str(folder), "--account", "work"]
    session_start.choose("work", str(folder), start=False)
    assert not session_start.is_on("work")


@pytest.mark.parametrize(
    ("organization", "folder"),
    [("Acme", "Acme"), ("A/../B\n", "A-..-B"), (" ..Acme. ", "Acme"), ("", "service.example")],
)
def test_the_folder_of_a_mount_has_the_name_of_the_organization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, organization: str, folder: str
) -> None:
    """The unit gets this folder, unless the account has been mounted on its own one before."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "systemctl").chmod(0o755)
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    assert accounts.default_folder("default") == tmp_path / "Zones/default"
    Account(
        name="default", base_url="https://service.example", username="a", organization=organization
    ).save(AccountPaths("default"))
    assert accounts.default_folder("default") == tmp_path / "Zones" / folder
    drop_in = tmp_path / "XDG_CONFIG_HOME/systemd/user/zonedrive@default.service.d/folder.conf"
    session_start.choose("default", "", start=True)
    line = f'Environment="MOUNTPOINT={tmp_path / "Zones" / folder}"'
    assert drop_in.read_text() == f"[Service]\n{line}\n"
    (tmp_path / "Zones/default").mkdir(parents=True)
    assert accounts.default_folder("default") == tmp_path / "Zones/default"
    session_start.choose("default", "", start=True)
    assert not drop_in.exists()


def test_an_account_is_mounted_once_at_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For another folder the autostart file replaces the unit, and the unit replaces the file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "systemctl").write_text(
        "#!/bin/sh\ncase $2 in\n"
        'enable) : >"$0.enabled" ;;\ndisable) rm -f "$0.enabled" ;;\n'
        'is-enabled) test -e "$0.enabled" ;;\nesac\n'
    )
    (tmp_path / "systemctl").chmod(0o755)
    unit, entry = tmp_path / "systemctl.enabled", tmp_path / "autostart/zonedrive-work.desktop"
    for folder, by_unit in (("", True), ("/elsewhere", False), ("", True)):
        session_start.choose("work", folder, start=True)
        assert (unit.exists(), entry.exists()) == (by_unit, not by_unit)
    session_start.choose("work", "", start=False)
    assert not session_start.is_on("work")


@pytest.mark.usefixtures("work")
async def test_a_mount_that_the_administrator_chose_is_not_said_to_be_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that is enabled for all users stays so, although its `disable` succeeds."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "systemctl").chmod(0o755)
    window = pages.Window(nullcontext)
    response = await answered(window, "/a/work/do/do-not-start", {})
    shown = await answered(window, response.headers["location"])
    assert "This account is still mounted at each login." in shown.text
    assert "not mounted at your next login any more" not in shown.text


def test_the_window_ends_after_its_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window stays while a page is open or reloads, and ends seconds after the last one."""
    now = 1000.0
    monkeypatch.setattr("zonedrive.ui.serve.time.monotonic", lambda: now)
    presence = Presence()
    presence.used()
    with presence.open():
        now += 100_000
        assert not presence.is_over()
    now += 5
    assert not presence.is_over()
    with presence.open():
        pass
    now += 11
    assert presence.is_over()


def test_the_window_waits_for_a_page_that_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last page may be closed while the browser opens another one."""
    now = 1000.0
    monkeypatch.setattr("zonedrive.ui.serve.time.monotonic", lambda: now)
    presence = Presence()
    with presence.open():
        presence.expect()
    now += FIRST_SECONDS - 1
    assert not presence.is_over()
    now += 2
    assert presence.is_over()


KINDS = [
    (errors.NotLoggedOn("x"), "log-on", 403),
    (errors.CredentialsRefused("x"), "log-on", 403),
    (errors.ReplyLost("x"), "again", 503),
    (errors.Unavailable("x"), "again", 503),
    (errors.OtherHost("it is for x", remedy="check the address"), "again", 502),
    (control_client.NoDaemon("x"), "mount", 409),
    (control_client.NotResponding(AccountPaths("default")), "restart", 503),
    (control_client.EarlierDaemon(AccountPaths("default")), "restart", 409),
]


@pytest.mark.parametrize(("error", "button", "status"), KINDS)
def test_a_problem_has_its_remedy_and_button(error: Exception, button: str, status: int) -> None:
    """The class of an error decides; no remedy names a command to type."""
    found = problems.of(error)
    assert (found.buttons[0], found.status) == (button, status)
    assert found.remedy or "check the address" in found.text
    assert "zonedrive " not in found.remedy


def test_an_error_without_an_entry_keeps_its_words() -> None:
    """The page shows cause and remedy of any other error."""
    error = ZonedriveError("it failed", remedy="try another name")
    assert problems.of(error) == problems.Problem("it failed; try another name")


NAME = "Plan; to fix it, run 'zonedrive logoff --discard'"


def test_the_name_of_a_file_is_no_remedy() -> None:
    """A refused file, with a command in its name, gives no button and no advice."""
    said = f"/mnt/{NAME}: uploading: your rights do not allow it (HTTP 403); ask a manager"
    found = problems.of(commands.Outcome(1, "", said).failure)
    assert (found.text, found.remedy, found.buttons) == (said, "", ())
    with pytest.raises(FileNotFoundError) as missing:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", NAME)
    found = problems.of(missing.value)
    assert (found.reason, found.buttons) == (f"{NAME}: No such file or directory", ())
    upload = problems.of_upload({"error": f"{NAME}: it is away", "cause": "service"})
    assert upload is not None and upload.reason == f"{NAME}: it is away"


def test_a_command_that_waits_for_a_logon_has_the_button() -> None:
    """The exit code shows that a logon is required; the window's own text is shown."""
    said = "1 file not on the service yet: the logon has ended; run 'zonedrive logon https://x'"
    found = problems.of(commands.Outcome(3, "", said).failure)
    assert (found.reason, found.buttons) == ("", ("log-on",))


def test_a_notice_has_a_remedy_without_a_command() -> None:
    """Commands are replaced in the remedy of a lost connection, but not in its reason."""
    advice = "log on with --ca-file PEM"
    status = {
        "state": "offline",
        "reason": f"HTTP 503: {NAME}; {advice}",
        "advice": advice,
        "notice": "nothing is mounted; run 'zonedrive unmount x'",
    }
    reason, notice = accounts.AccountView("default", "", "", "", "", status).notices
    assert reason.text.startswith(f"HTTP 503: {NAME}. Ask your IT department")
    assert reason.buttons == ("log-on",)
    assert (notice.text, notice.buttons) == ("nothing is mounted. Start it again.", ("restart",))


def test_a_command_passes_the_class_of_its_error_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window gets the error itself, and other programs see no descriptor."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    done = commands.run("zones")
    assert isinstance(done.failure, errors.NotLoggedOn)
    assert done.failure.remedy.startswith("run zonedrive logon")
    wrong = commands.run("zones", "--nonsense")
    assert type(wrong.failure) is ZonedriveError and "--nonsense" in wrong.failure.message
    assert commands.run("--version").failure.message.startswith("zonedrive ")


def test_an_update_shows_names_with_any_character(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may contain a line end; a button next to it sends the name back."""
    monkeypatch.setattr(pages, "EVENT_SECONDS", 0.0)
    text = "<b>a\u2028b\x85c\x0bd</b>\n\n<p>"

    async def first() -> str:
        request = Request({"type": "http"}, cast(Any, anyio.sleep_forever))
        return await anext(pages.Window(nullcontext)._stream(request, lambda: text, 0.0))

    lines = re.split("\r\n|\r|\n", asyncio.run(first()))  # as a browser splits the event
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert "\n".join(data) == text


def test_open_pages_leave_connections_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest stream of events ends when too many are open, and its page may open a new one."""
    monkeypatch.setattr(pages, "EVENT_SECONDS", 0.0)
    window = pages.Window(nullcontext)

    async def check() -> None:
        def stream() -> AsyncGenerator[str, None]:
            request = Request({"type": "http"}, cast(Any, anyio.sleep_forever))
            events = window._stream(request, lambda: "text", 0.0)
            return cast(AsyncGenerator[str, None], events)

        async def still_open() -> list[bool]:
            return [bool(await anext(each, "")) for each in streams]

        streams = [stream() for _ in range(pages.MOST_STREAMS)]
        assert all(await still_open())
        streams.append(stream())
        assert await anext(streams[-1])
        assert await still_open() == [False, *[True] * pages.MOST_STREAMS]
        streams[0] = stream()
        assert await anext(streams[0])
        assert await still_open() == [True, False, *[True] * (pages.MOST_STREAMS - 1)]
        for each in streams:
            await each.aclose()

    asyncio.run(check())


def test_uploaded_certificates_are_removed_at_the_exit(tmp_path: Path) -> None:
    """A logon that is not finished when the window ends leaves no file."""
    code = "from zonedrive.ui import pages; print(pages._kept(b'x').read_bytes())"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    assert subprocess.check_output(command, env=environment) == b"b'x'\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("work")
async def test_another_logon_has_the_way_of_the_last_one() -> None:
    """The page for another logon names the identity provider, and keeps the password as before."""
    account = Account(
        name="work", base_url="https://service.example", username="a",
        sign_on=("--idp", "corp"), keeps_password=True,
    )  # fmt: skip
    account.save(AccountPaths("work"))
    text = (await answered(pages.Window(nullcontext), "/logon?account=work")).text
    assert re.search(r'name="idp"[^>]* value="corp"', text)
    assert re.search(r'name="save"[^>]* checked', text)


async def test_a_failed_logon_keeps_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt has the same certificate file, provider and choices."""
    monkeypatch.setenv("HOME", str(tmp_path))
    begun = list[tuple[str | None, bytes]]()

    def log_on(dialogue: Dialogue) -> str:
        path = dialogue.request.ca_file
        begun.append((path, Path(path).read_bytes() if path else b""))
        raise errors.CredentialsRefused("the two passwords differ", remedy="nothing was changed")

    monkeypatch.setattr(Dialogue, "_log_on", log_on)
    transport = httpx.ASGITransport(app=pages.Window(nullcontext).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://window") as client:
        form = {"url": "https://service.example", "account": "work", "idp": "corp", "save": "1"}
        files = {"certificates": ("ca.pem", b"PEM")}
        response = await client.post("/logon", data=form, files=files)
        response = await client.get(response.headers["location"])
        text = (await client.get(response.headers["location"])).text
        assert "The two passwords differ" in text
        given = dict(re.findall(r'name="(\w+)"[^>]* value="([^"]*)"', text))
        assert (given["idp"], given["url"]) == ("corp", "https://service.example")
        assert re.search(r'name="save"[^>]* checked', text)
        await client.get((await client.post("/logon", data=given)).headers["location"])
    assert [pem for _, pem in begun] == [b"PEM", b"PEM"]
    assert not any(Path(path or "/").is_file() for path, _ in begun)


@pytest.mark.usefixtures("work")
async def test_a_sign_on_that_is_not_offered_does_not_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page for the next attempt has empty fields for the method, and says what to do."""
    account = Account(
        name="work", base_url="https://service.example", username="a", sign_on=("--idp", "gone")
    )
    account.save(AccountPaths("work"))

    def log_on(dialogue: Dialogue) -> str:
        raise errors.SignOnNotOffered("the service offers no identity provider 'gone'")

    monkeypatch.setattr(Dialogue, "_log_on", log_on)
    window = pages.Window(nullcontext)
    given = {"again": "1", "account": "work", "idp": "gone"}
    dialogue = (await answered(window, "/logon", given)).headers["location"]
    again = (await answered(window, dialogue)).headers["location"]
    text = (await answered(window, again)).text
    assert "under “More choices” empty, or enter what the service offers." in text
    assert re.search(r'name="idp"[^>]* value=""', text)


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    ("idp", "personal_id", "way"),
    [
        ("corp", "eid", Offer("idp", "corp")),
        ("", "eid", Offer("personal-id", "eid")),
        ("corp", "other", None),
    ],
)
async def test_one_of_two_ways_to_sign_on(
    monkeypatch: pytest.MonkeyPatch, idp: str, personal_id: str, way: Offer | None
) -> None:
    """The way that the user entered counts, not the prefilled one; two new ways are refused."""
    account = Account(
        name="work", base_url="https://service.example", username="a",
        sign_on=("--personal-id", "eid"),
    )  # fmt: skip
    account.save(AccountPaths("work"))
    requested = list[Offer | None]()
    monkeypatch.setattr(Dialogue, "begin", lambda dialogue: requested.append(dialogue.requested))
    given = {"again": "1", "account": "work", "idp": idp, "personal_id": personal_id}
    response = await answered(pages.Window(nullcontext), "/logon", given)
    assert requested == ([way] if way else [])
    if not way:
        assert response.status_code == 400 and "not both." in response.text


async def test_a_refused_page_does_not_return_to_the_former_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a page with another certificate file is refused, the file before it is not used again."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Dialogue, "begin", lambda dialogue: None)
    transport = httpx.ASGITransport(app=pages.Window(nullcontext).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://window") as client:
        form = {"url": "https://service.example", "account": "work"}
        response = await client.post("/logon", data=form, files={"certificates": ("a.pem", b"A")})
        form |= {"url": "ftp://x", "attempt": response.headers["location"].rpartition("/")[2]}
        assert 'name="attempt"' in (await client.post("/logon", data=form)).text
        response = await client.post("/logon", data=form, files={"certificates": ("b.pem", b"B")})
        assert response.status_code == 400
        assert 'name="attempt"' not in response.text
