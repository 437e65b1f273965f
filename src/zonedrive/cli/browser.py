"""Terminal dialog that guides the user through a sign-on in the browser.

This module does not parse URLs.

INVARIANT: the browser's command line, which all users of the machine can read, contains the path of
a private file, never the sign-on URL.
INVARIANT: pasted text is not echoed, because it may contain credentials.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import click
import trio

from zonedrive.cli.options import WholeNumber
from zonedrive.cli.text_output import asking, clean, complain, say, word
from zonedrive.errors import NoHomeDirectory
from zonedrive.logon.browser.signon import Person
from zonedrive.logon.session_bus import own_environment
from zonedrive.logon.wire import Offer
from zonedrive.paths import home, is_private, private_dir, runtime_dir

PREFIX: Final = "zonedrive-sign-on-"
PIECE: Final = 4096  # bytes
LONGEST: Final = 256 * 1024  # maximum bytes of a pasted line
YES: Final = ("y", "yes")
LOOK_SECONDS: Final = 1.0  # a browser command that fails ends within this time


class BrowserPrompt(Person):
    """Terminal dialog for a sign-on in a browser."""

    def __init__(
        self, requested: Offer | None, *, here: bool, seconds: float, username: Callable[[], str]
    ) -> None:
        """Prepare the dialog.

        `requested` is the sign-on method that the user requested, or None. If `here` is true, a
        browser may be opened on this machine. `seconds` is the time limit for the sign-on.
        `username` asks the user for the user name and returns it.
        """
        self.requested, self.seconds, self._username = requested, seconds, username
        self._commands = browser_commands(os.environ) if here else []
        self.here = bool(self._commands)
        self._wanted_here = here
        self.asked = False  # True after the user was asked to use a browser

    def username(self) -> str:
        return self._username()

    def choose(self, offers: Sequence[Offer]) -> Offer:
        ways = [shlex.join(offer.option) for offer in offers]
        if not sys.stdin.isatty():
            raise click.UsageError(
                "The service has several ways to sign on in a browser: choose with"
                f" {', '.join(ways[:-1])} or {ways[-1]}."
            )
        return offers[_number([offer.title for offer in offers])]

    def prefers(self, offers: Sequence[Offer]) -> Offer | None:
        if not sys.stdin.isatty():
            return None
        chosen = _number(["user name and password", *(offer.title for offer in offers)])
        return offers[chosen - 1] if chosen else None

    @property
    def can_confirm(self) -> bool:
        return sys.stdin.isatty()

    async def confirm(self, user: str, expected: str) -> bool:
        found = word(user) if user else "a user whom the service does not name"
        descriptor = sys.stdin.fileno()
        termios.tcflush(descriptor, termios.TCIFLUSH)  # what was typed before the question
        question = (
            f"The browser signed on as {found}, not as {word(expected)}. Keep this logon? [y/N]: "
        )
        click.echo(clean(question), nl=False, err=True)
        answer = await RawLineReader(descriptor).next()
        return (answer or "").casefold() in YES

    def warn(self, text: str) -> None:
        complain(text)

    async def show(self, name: str, start: str, led: Callable[[], Awaitable[None]]) -> None:
        self.asked = True
        say(f"Sign on with {word(name)} in the browser.", err=True)
        with leading_to(start) as page:
            if page is not None and await _opened(self._commands, page.as_uri()):
                say(f"If no window opens, go to {start}", err=True)
            else:
                say(f"No browser could be started; open this address: {start}", err=True)
            await led()

    async def guide(self, name: str, address: str, back: str, take: Callable[[str], str]) -> None:
        self.asked = True
        if self._wanted_here:
            click.echo("There is no browser to open on this machine.", err=True)
        # Prepare the terminal first, because the user may paste right after the prompt.
        descriptor = sys.stdin.fileno()
        with _without_echo(descriptor):
            for text in (
                f"To sign on with {word(name)}, open this address in a browser:",
                "",
                address,
                "",
                "On this machine that is all. On another device the browser ends at an address",
                f"that it cannot open, which begins with {back} . Copy all of it from the",
                "address bar and paste it here (it is not shown), then press Enter.",
            ):
                say(text, err=True)
            lines = RawLineReader(descriptor)
            while (line := await lines.next()) is not None:
                wrong = take(line)
                if not wrong:
                    return
                complain(f"{wrong}; paste it once more")


def browser_commands(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the commands that can open a URL, best first, each as a list of words.

    The commands come from $BROWSER, where `%s` in a command stands for the URL. If $BROWSER is not
    set, return the desktop's commands. Without a display, return [] instead, because the desktop's
    commands could start a text browser.
    """
    if chosen := environment.get("BROWSER", ""):
        commands = []
        for part in chosen.split(os.pathsep):
            with contextlib.suppress(ValueError):
                commands.append(shlex.split(part))
        return [command for command in commands if command and shutil.which(command[0])]
    if environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"):
        return desktop_openers()
    return []


def desktop_openers() -> list[list[str]]:
    """Return the desktop's commands that can open a URL or a path, best first."""
    return [[found] for name in ("xdg-open", "gio") if (found := shutil.which(name))]


def _number(ways: Sequence[str]) -> int:
    """Let the user choose one of `ways` by number; return the index of the choice."""
    click.echo("Sign on with", err=True)
    for number, way in enumerate(ways, 1):
        say(f"  {number}  {word(way)}", err=True)
    with asking():
        chosen = click.prompt("Number", type=WholeNumber(1, len(ways)), default=1, err=True)
    return int(chosen) - 1


async def _opened(commands: Sequence[Sequence[str]], address: str) -> bool:
    """Call `opened_by` in a worker thread, and return the result.

    The event loop can meanwhile answer the browser's requests.
    """
    return await trio.to_thread.run_sync(opened_by, commands, address, own_environment())


def opened_by(
    commands: Sequence[Sequence[str]], address: str, environment: Mapping[str, str]
) -> bool:
    """Open `address` with the first command that works; return False if no command works."""
    return any(_runs(command, address, environment) for command in commands)


def _runs(command: Sequence[str], address: str, environment: Mapping[str, str]) -> bool:
    """Start the browser command for `address`; return False if the command does not work.

    A command that is still running after LOOK_SECONDS is assumed to work.
    """
    words = list(command)
    if os.path.basename(words[0]) == "gio":  # noqa: PTH119  a word of a command line
        words.append("open")
    if any("%s" in word for word in words[1:]):
        words = [words[0], *(word.replace("%s", address) for word in words[1:])]
    else:
        words.append(address)
    try:
        process = subprocess.Popen(  # noqa: S603  the user's own choice of a browser
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
    except OSError:
        return False
    try:
        return process.wait(LOOK_SECONDS) == 0
    except subprocess.TimeoutExpired:  # the browser keeps running
        threading.Thread(target=process.wait, daemon=True).start()  # leaves no zombie
        return True


class RawLineReader:
    """Reader for lines of up to LONGEST bytes, also from a terminal in noncanonical mode.

    The reader handles Backspace, Ctrl-U and Ctrl-D itself.
    """

    def __init__(self, descriptor: int) -> None:
        """Create a reader for a terminal (see `_without_echo`), a pipe or a file."""
        self._descriptor = descriptor
        self._rest = b""  # bytes that were read together with the previous line

    async def next(self) -> str | None:
        """Return the next line without surrounding whitespace, or None at the end of input."""
        text = bytearray()
        while len(text) < LONGEST:
            piece, self._rest = self._rest, b""
            if not piece:
                # A regular file cannot be polled, and is always readable.
                with contextlib.suppress(OSError):
                    await trio.lowlevel.wait_readable(self._descriptor)
                piece = os.read(self._descriptor, PIECE)
            if not piece and not text:
                return None
            piece, end, self._rest = piece.partition(b"\n")
            for byte in piece:
                if byte in b"\x7f\x08":
                    del text[-1:]
                elif byte == 0x15:  # Ctrl-U
                    text.clear()
                elif byte == 0x04 and not text:  # Ctrl-D
                    return None
                else:
                    text.append(byte)
            if end or not piece:
                break
        return text.decode("utf-8", "replace").strip()


@contextlib.contextmanager
def _without_echo(descriptor: int) -> Iterator[None]:
    """Turn off a terminal's echo and its line limit of 4095 characters in the `with` block.

    Does nothing if `descriptor` is not a terminal.
    """
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    during = termios.tcgetattr(descriptor)
    during[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, during)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        click.echo(err=True)


# ---- the start page ----


@contextlib.contextmanager
def leading_to(address: str) -> Iterator[Path | None]:
    """Yield the path of a page that redirects to `address` and that only this user can read.

    Yield None if the page cannot be created in a private folder. The page is deleted at the end of
    the `with` block. Confined browsers (snap) cannot read hidden folders, /tmp or the runtime
    folder. If possible, the page is therefore in the home folder, in a folder that is not hidden.
    """
    with contextlib.ExitStack() as folders:
        pages = (_private_page(place, address, folders) for place in (home, runtime_dir))
        yield next(filter(None, pages), None)


def _private_page(
    place: Callable[[], Path], address: str, folders: contextlib.ExitStack
) -> Path | None:
    """Create a page that redirects to `address`; return its path, or None on failure.

    The page is in a new folder that no other user can enter or replace. `place` returns the parent
    of the new folder. `folders` deletes the new folder later.
    """
    with contextlib.suppress(OSError, NoHomeDirectory):
        above = place()
        if place is runtime_dir:
            private_dir(above)
        if is_private(above.resolve()):
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))  # mode 0700
            folders.callback(shutil.rmtree, folder, ignore_errors=True)
            page = folder / "sign-on.html"
            page.touch(0o600, exist_ok=False)
            page.write_bytes(_page(address))
            return page
    return None


def _page(address: str) -> bytes:
    shown = escape(address)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>zonedrive</title>'
        '<meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0;url={shown}">'
        f'<p>zonedrive: <a href="{shown}">continue to the sign-on</a>\n'
        "(if you see this text with signs around it, open this file in a browser).</html>\n"
    ).encode()
