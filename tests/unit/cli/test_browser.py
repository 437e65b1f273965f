"""The terminal's side of a sign-on in a browser."""

import io
import os
import pty
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from zonedrive.cli import browser
from zonedrive.cli.browser import Seat, browser_commands
from zonedrive.logon.wire import Offer


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    """A program that writes down its arguments."""
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
    """$BROWSER decides alone; else the desktop's way, where there is a desktop."""
    for name in ("xdg-open", "gio", "mine"):
        program(tmp_path, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = [[word.format(here=tmp_path) for word in words] for words in commands]
    assert browser_commands(environment) == expected


async def test_the_first_browser_that_starts_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that fails at once is passed over; one that stays open is not waited for."""
    monkeypatch.setattr(browser, "LOOK_SECONDS", 0.2)
    fails, stays = program(tmp_path, "fails", "exit 3"), program(tmp_path, "stays", "exec sleep 5")
    monkeypatch.setenv("BROWSER", f"{fails} -a:{stays} --at=%s:{program(tmp_path, 'last')}")
    seat = Seat(None, here=True, seconds=1, username=str)
    assert seat.here
    await seat.show("corp\x1b[2J", "http://127.0.0.1:1/x")
    assert (tmp_path / "said").read_text() == "-a|http://127.0.0.1:1/x|--at=http://127.0.0.1:1/x|"
    shown = capsys.readouterr().err
    assert "Sign on with corp\\x1b[2J in the browser." in shown
    assert "If no window opens, go to http://127.0.0.1:1/x" in shown


async def test_no_browser_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is shown, to be opened by hand."""
    monkeypatch.setenv("BROWSER", str(program(tmp_path, "fails", "exit 3")))
    await Seat(None, here=True, seconds=1, username=str).show("corp", "http://127.0.0.1:1/x")
    assert "No browser could be started; open this address: http://127.0.0.1:1/x" in (
        capsys.readouterr().err
    )


async def test_a_machine_without_a_desktop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is as with --no-browser, and said."""
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    seat = Seat(None, here=True, seconds=1, username=str)
    assert not seat.here
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        await seat.guide("corp", "https://idp.example/y", "http://127.0.0.1:1/", str)
    shown = capsys.readouterr().err
    assert "There is no browser to open on this machine." in shown
    assert "https://idp.example/y" in shown
    assert "http://127.0.0.1:1/ ." in shown


def test_without_a_terminal_nobody_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must be chosen is an error with all ways, what may be is a password."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    seat = Seat(None, here=False, seconds=1, username=str)
    offers = [Offer("idp", "a b"), Offer("personal-id", "c")]
    with pytest.raises(Exception, match="--idp 'a b' or --personal-id c"):
        seat.choose(offers)
    assert seat.prefers(offers) is None


class Typist:
    """Somebody at a terminal that `guide` looks after; what was taken is in `taken`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ours, self._theirs = pty.openpty()
        self._before = termios.tcgetattr(self._theirs)
        self._stdin = os.fdopen(self._theirs, closefd=False)
        monkeypatch.setattr("sys.stdin", self._stdin)
        self.taken: list[str] = []

    async def guide(self) -> None:
        """Until what is taken begins with http."""
        seat = Seat(None, here=False, seconds=1, username=str)
        await seat.guide("corp", "https://idp.example/y", "http://127.0.0.1:1/", self._take)

    def _take(self, line: str) -> str:
        self.taken.append(line)
        return "" if line.startswith("http") else "no address"

    async def type(self, keys: bytes) -> None:
        """In pieces, as a terminal hands them on."""
        await trio.testing.wait_all_tasks_blocked()
        assert not termios.tcgetattr(self._theirs)[3] & (termios.ICANON | termios.ECHO)
        for start in range(0, len(keys), 1000):
            os.write(self._ours, keys[start : start + 1000])
            await trio.testing.wait_all_tasks_blocked()

    def leave(self) -> None:
        """Nothing was shown, and the terminal is as before."""
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
    """However long, unseen, and again until it is right; the terminal is given back."""
    typist = Typist(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(typist.guide)
        await typist.type(typed)
    assert typist.taken == taken
    typist.leave()


async def test_a_line_of_a_pipe_or_file(tmp_path: Path) -> None:
    """Lines of what is no terminal are read as they are; its end is no line."""
    (tmp_path / "file").write_text("http://x/#y\n")
    with (tmp_path / "file").open("rb") as file:
        lines = browser.Lines(file.fileno())
        assert [await lines.next(), await lines.next()] == ["http://x/#y", None]
    reading, writing = os.pipe()
    os.write(writing, b"http://x/#y")
    os.close(writing)
    assert await browser.Lines(reading).next() == "http://x/#y"
    os.close(reading)


async def test_giving_up_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops waiting leaves a terminal that shows what is typed."""
    typist = Typist(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(typist.guide)
        await typist.type(b"half of an addr")
        nursery.cancel_scope.cancel()
    typist.leave()
