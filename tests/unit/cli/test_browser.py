"""Terminal part of a sign-on in a browser."""

import errno
import io
import os
import pty
import re
import subprocess
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.harness.waiting import eventually
from zonedrive.cli import browser
from zonedrive.cli.browser import BrowserPrompt, browser_commands
from zonedrive.logon.wire import Offer


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    """Return a program that records its arguments."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >>{folder}/said\n{script}\n')
    path.chmod(0o700)
    return path


@pytest.mark.parametrize(
    ("environment", "commands"),
    [
        ({}, []),
        ({"DISPLAY": ":0"}, [["{here}/xdg-open"], ["{here}/gio"]]),
        ({"WAYLAND_DISPLAY": "w"}, [["{here}/xdg-open"], ["{here}/gio"]]),
        ({"BROWSER": "mine --new '%s x'"}, [["mine", "--new", "%s x"]]),
        ({"BROWSER": "absent:mine"}, [["mine"]]),
        ({"BROWSER": "absent", "DISPLAY": ":0"}, []),
        ({"BROWSER": "mine 'unclosed:mine"}, [["mine"]]),
        ({"BROWSER": ""}, []),
    ],
)
def test_which_browser(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: Mapping[str, str],
    commands: list[list[str]],
) -> None:
    """$BROWSER takes precedence; otherwise the desktop's command is used, if there is a desktop."""
    for name in ("xdg-open", "gio", "mine"):
        program(tmp_path, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = [[word.format(here=tmp_path) for word in words] for words in commands]
    assert browser_commands(environment) == expected


async def test_the_first_browser_that_starts_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A browser that fails is skipped, one that runs is not waited for; the page is deleted."""
    home = tmp_path / "my-home"
    home.mkdir(0o700)
    monkeypatch.setenv("HOME", str(home))
    said = tmp_path / "said"

    class Looked(subprocess.Popen[bytes]):
        """Clock on which the time limit ends when a program that stays has certainly started."""

        def wait(self, timeout: float | None = None) -> int:
            if timeout is None or "fails" in str(self.args):
                return super().wait()
            eventually(lambda: "--at=" in said.read_text())
            return super().wait(0.01)

    monkeypatch.setattr(subprocess, "Popen", Looked)
    fails, stays = program(tmp_path, "fails", "exit 3"), program(tmp_path, "stays", "exec sleep 30")
    monkeypatch.setenv("BROWSER", f"{fails} -a:{stays} --at=%s:{program(tmp_path, 'last')}")
    prompt = BrowserPrompt(None, here=True, seconds=1, username=str)
    assert prompt.here
    pages: list[str] = []

    async def led() -> None:
        pages.extend(page.read_text() for page in home.glob("zonedrive-sign-on-*/sign-on.html"))

    await prompt.show("corp\x1b[2J", "http://127.0.0.1:1/x?a&b", led)
    address = rf"file://{home}/zonedrive-sign-on-\w+/sign-on\.html"
    assert re.fullmatch(rf"-a\|{address}\|--at={address}\|", said.read_text())
    assert len(pages) == 1
    assert 'content="0;url=http://127.0.0.1:1/x?a&amp;b"' in pages[0]
    assert list(home.iterdir()) == []
    shown = capsys.readouterr().err
    assert "Sign on with corp\\x1b[2J in the browser." in shown
    assert "If no window opens, go to http://127.0.0.1:1/x?a&b" in shown


async def test_no_browser_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is shown, so that the user can open it."""
    monkeypatch.setenv("BROWSER", str(program(tmp_path, "fails", "exit 3")))
    prompt = BrowserPrompt(None, here=True, seconds=1, username=str)
    await prompt.show("corp", "http://127.0.0.1:1/x", trio.lowlevel.checkpoint)
    assert "No browser could be started; open this address: http://127.0.0.1:1/x" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("is_runtime_full", [False, True])
def test_a_full_home_folder_prevents_no_sign_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_runtime_full: bool
) -> None:
    """The page is then in the runtime folder; if that is full, too, the address is shown."""
    home, runtime, write = tmp_path / "my-home", tmp_path / "my-run", Path.write_bytes
    home.mkdir(0o700)
    runtime.mkdir(0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))

    def full(path: Path, data: bytes) -> int:
        if is_runtime_full or not path.is_relative_to(runtime):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with browser.leading_to("http://127.0.0.1:1/x") as page:
        assert (page is None) == is_runtime_full
        assert page is None or page.is_relative_to(runtime)
    assert not [*tmp_path.rglob(f"{browser.PREFIX}*")]


async def test_the_page_is_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If other users can write to the home folder, the page is in the runtime folder, if any."""
    home, runtime = tmp_path / "my-home", tmp_path / "my-run"
    home.mkdir()
    home.chmod(0o777)
    runtime.mkdir(0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with browser.leading_to("http://127.0.0.1:1/x") as page:
        assert page is not None
        assert page.is_relative_to(runtime / "zonedrive")
        assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with browser.leading_to("http://127.0.0.1:1/x") as page:
        assert page is None


@pytest.mark.parametrize(
    ("typed", "confirmed"),
    [
        ("y\n", True),
        ("YES\n", True),
        ("\n", False),
        ("n\n", False),
        ("yess\n", False),
        ("\x04", False),
    ],
)
async def test_only_a_yes_confirms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, confirmed: bool
) -> None:
    """An answer counts if it follows the question; keys pressed before are discarded."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(ours, b"y\n")
        prompt = BrowserPrompt(None, here=True, seconds=1, username=str)
        assert prompt.can_confirm
        answers = []

        async def ask() -> None:
            answers.append(await prompt.confirm("mallory\x1b[2J", "alice"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            os.write(ours, typed.encode())
    os.close(ours)
    assert answers == [confirmed]
    said = "The browser signed on as mallory\\x1b[2J, not as alice. Keep this logon? [y/N]: "
    assert capsys.readouterr().err == said


async def test_a_machine_without_a_desktop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is shown as with --no-browser, with a message."""
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    prompt = BrowserPrompt(None, here=True, seconds=1, username=str)
    assert not prompt.here
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        await prompt.guide("corp", "https://idp.example/y", "http://127.0.0.1:1/", str)
    shown = capsys.readouterr().err
    assert "There is no browser to open on this machine." in shown
    assert "https://idp.example/y" in shown
    assert "http://127.0.0.1:1/ ." in shown


def test_the_choice_of_a_method_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A required choice gives an error with all methods; an optional one selects the password."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    prompt = BrowserPrompt(None, here=False, seconds=1, username=str)
    offers = [Offer("idp", "a b"), Offer("personal-id", "c")]
    with pytest.raises(Exception, match="--idp 'a b' or --personal-id c"):
        prompt.choose(offers)
    assert prompt.prefers(offers) is None


class Typist:
    """User at the terminal that `guide` reads; the accepted lines are in `taken`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ours, self._theirs = pty.openpty()
        self._before = termios.tcgetattr(self._theirs)
        self._stdin = os.fdopen(self._theirs, closefd=False)
        monkeypatch.setattr("sys.stdin", self._stdin)
        self.taken: list[str] = []

    async def guide(self) -> None:
        """Read lines until one begins with http."""
        prompt = BrowserPrompt(None, here=False, seconds=1, username=str)
        await prompt.guide("corp", "https://idp.example/y", "http://127.0.0.1:1/", self._take)

    def _take(self, line: str) -> str:
        self.taken.append(line)
        return "" if line.startswith("http") else "no address"

    async def type(self, keys: bytes) -> None:
        """Type in pieces, as a terminal delivers them."""
        await trio.testing.wait_all_tasks_blocked()
        assert not termios.tcgetattr(self._theirs)[3] & (termios.ICANON | termios.ECHO)
        for start in range(0, len(keys), 1000):
            os.write(self._ours, keys[start : start + 1000])
            await trio.testing.wait_all_tasks_blocked()

    def leave(self) -> None:
        """Check that nothing was shown, and that the terminal is restored."""
        assert termios.tcgetattr(self._theirs) == self._before
        os.set_blocking(self._ours, False)
        with pytest.raises(BlockingIOError):
            os.read(self._ours, 100)
        self._stdin.close()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        (b"http://x/#" + b"y" * 9000 + b"\n", ["http://x/#" + "y" * 9000]),
        (b"  http://abd\x7fc \n", ["http://abc"]),
        (b"wrong\x15http://\n", ["http://"]),
        (b"http\xff\xc3\xa9\n", ["http\ufffdé"]),
        (b"\x04", []),
        (b"what?\nhttp://b\n", ["what?", "http://b"]),
    ],
)
async def test_a_pasted_line(
    monkeypatch: pytest.MonkeyPatch, typed: bytes, taken: list[str]
) -> None:
    """A line of any length is read without echo, and repeated until it is right."""
    typist = Typist(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(typist.guide)
        await typist.type(typed)
    assert typist.taken == taken
    typist.leave()


async def test_a_line_of_a_pipe_or_file(tmp_path: Path) -> None:
    """Lines of a pipe or file are read unchanged; the end of the file does not count as a line."""
    (tmp_path / "file").write_text("http://x/#y\n")
    with (tmp_path / "file").open("rb") as file:
        lines = browser.RawLineReader(file.fileno())
        assert [await lines.next(), await lines.next()] == ["http://x/#y", None]
    reading, writing = os.pipe()
    os.write(writing, b"http://x/#y")
    os.close(writing)
    assert await browser.RawLineReader(reading).next() == "http://x/#y"
    os.close(reading)


async def test_an_interruption_restores_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interruption the terminal echoes again."""
    typist = Typist(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(typist.guide)
        await typist.type(b"half of an addr")
        nursery.cancel_scope.cancel()
    typist.leave()
