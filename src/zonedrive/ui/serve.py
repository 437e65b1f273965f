"""Server process of the web interface, which runs until the user closes the last page.

Each user has at most one such process. A second `zonedrive ui` requests a one-time URL (see
`access`) from the running process, through a socket in the private runtime folder.
"""

import asyncio
import contextlib
import html
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from zonedrive import process_setup
from zonedrive.cli import error_messages, text_output
from zonedrive.cli.browser import browser_commands, leading_to, opened_by
from zonedrive.daemon import protocol
from zonedrive.errors import ZonedriveError
from zonedrive.logon.browser.request_check import require_owners
from zonedrive.logon.session_bus import own_environment
from zonedrive.paths import lock_file, private_dir, runtime_dir
from zonedrive.remedies import in_window
from zonedrive.translation import translated
from zonedrive.ui.access import Guard, Keys, OwnProtocol
from zonedrive.ui.pages import Window

RETRY_SECONDS = 0.2
START_SECONDS = 5.0  # another process starts or ends within this time
FIRST_SECONDS = 120.0  # until the first page is open
CLOSED_SECONDS = 10.0  # after the last page was closed; a reload takes less
QUIET_SECONDS = 900.0  # after a request; without scripts, a page does not report that it is open
SOCKET = "ui.socket"
"""Name of the server's socket in the runtime folder.

The suffix is not `.sock`, because desktop extensions take each socket with that suffix for a
daemon's socket.
"""
REQUEST = 64 * 1024  # bytes; a URL has up to three for each byte of a path
ERROR_IS_SHOWN = "ZONEDRIVE_ERROR_IS_SHOWN"
"""Environment variable that is set if the caller, a file manager's menu action, shows the error."""


def run(page: str, *, browser: bool) -> str:
    """Open the web interface at the path `page`, and serve it until all pages are closed.

    If `browser` is False, print the URL instead of opening a browser. Return "" after all pages are
    closed.

    If another process of this user already serves the web interface, open a page of that process,
    and return a message for the user.

    Raises OSError. Raises ZonedriveError if that process does not answer, or if requests of other
    users cannot be rejected. If `browser` is True and the environment does not contain
    ERROR_IS_SHOWN, the error is also shown with `_notify`.
    """
    is_shown = os.environ.pop(ERROR_IS_SHOWN, "")  # not for the daemons that the window starts
    try:
        return _run(page, browser)
    except (ZonedriveError, OSError) as wrong:
        if browser:  # the desktop's menu shows no output of this process
            text, _ = in_window(*error_messages.parts(wrong))
            if is_shown:  # in the same words
                raise ZonedriveError(text) from wrong
            _notify(f"{text[:1].upper()}{text[1:].removesuffix('.')}.")
        raise


def _run(page: str, browser: bool) -> str:
    folder = runtime_dir()
    private_dir(folder)
    end = time.monotonic() + START_SECONDS
    while True:
        with lock_file(folder / "ui.lock", wait=False) as first:
            if first:
                require_owners(
                    remedy="restart the computer if its kernel was upgraded; otherwise use the"
                    " commands instead of the window"
                )
                _serve(folder / SOCKET, page, browser)
                return ""
        try:
            address = _asked(folder / SOCKET, page)
            break
        except ZonedriveError:  # the other process has the lock a little longer than the socket
            if time.monotonic() > end:
                raise
            time.sleep(RETRY_SECONDS)
    _open(address, browser, threading.Event(), wait=5.0)
    return "the window is open already"


def _asked(path: Path, page: str) -> str:
    """Return a one-time URL for `page` from the process that serves the web interface.

    Raises ZonedriveError if that process does not answer or is ending.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            with protocol.address(path) as name:
                connection.connect(name)
            connection.sendall(page.encode() + b"\n")
            with connection.makefile("r", encoding="utf-8") as answer:
                address = answer.readline().strip()
    except OSError as wrong:
        raise ZonedriveError(
            f"the window is open already, and does not answer ({wrong})",
            remedy="close it, wait some seconds and try again",
        ) from wrong
    if not address:
        raise ZonedriveError("the window is just being closed", remedy="try again")
    return address


def _serve(path: Path, page: str, browser: bool) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listening.getsockname()[1]}"
    keys, presence = Keys(), Presence()
    window = Window(presence.open)
    server = uvicorn.Server(
        uvicorn.Config(
            Guard(window.app, keys, host, presence.used),
            http=OwnProtocol, ws="none", lifespan="off", loop="asyncio", log_config=None,
            access_log=False, server_header=False, timeout_graceful_shutdown=2,
            limit_concurrency=200,
        )
    )  # fmt: skip
    address = f"http://{host}{keys.start(page)}"
    ended = threading.Event()

    def open_first() -> None:
        _open(address, browser, ended)
        if process_setup.output_failure():  # the user does not know the URL
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, process_setup.leave)
    path.unlink(missing_ok=True)
    opening = threading.Thread(target=open_first, daemon=True)
    try:
        opening.start()
        asyncio.run(_until_closed(server, listening, path, keys, host, presence))
    finally:
        path.unlink(missing_ok=True)
        ended.set()
        with contextlib.suppress(RuntimeError):  # a signal came before the start
            opening.join()


async def _until_closed(
    server: uvicorn.Server,
    listening: socket.socket,
    path: Path,
    keys: Keys,
    host: str,
    presence: "Presence",
) -> None:
    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            page = (await asyncio.wait_for(reader.readline(), 10)).decode().strip()
            if page.startswith("/"):  # a client of a daemon sends JSON
                presence.expect()
                writer.write(f"http://{host}{keys.start(page)}\n".encode())
                await writer.drain()
        writer.close()

    with protocol.address(path) as name:
        async with await asyncio.start_unix_server(tell, name, limit=REQUEST):
            watching = asyncio.create_task(_watch(server, presence))
            await server.serve([listening])
            watching.cancel()


async def _watch(server: uvicorn.Server, presence: "Presence") -> None:
    while not presence.is_over():  # noqa: ASYNC110  the time of the end changes
        await asyncio.sleep(0.5)
    server.should_exit = True


class Presence:
    """Number of open pages, and the time at which the server shuts down if no page is open.

    A page with scripts keeps a request open until the page is closed.
    """

    def __init__(self) -> None:
        self._open = 0
        self._end = time.monotonic() + FIRST_SECONDS
        self._expected = 0.0  # time until which a page is expected, although others are closed

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Count one more open page during the `with` block."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._end = max(self._expected, time.monotonic() + CLOSED_SECONDS)

    def used(self) -> None:
        """After a request, keep the server running for at least QUIET_SECONDS if no page is open.

        `open` does not count the pages of a browser without scripts. Such a browser is detected
        only by its requests.
        """
        if not self._open:
            self._end = max(self._end, time.monotonic() + QUIET_SECONDS)

    def expect(self) -> None:
        """Keep the server running for at least FIRST_SECONDS seconds, so that a page can open."""
        self._expected = time.monotonic() + FIRST_SECONDS
        self._end = max(self._end, self._expected)

    def is_over(self) -> bool:
        """Return True if all pages are closed and the time to open another page has passed."""
        return not self._open and time.monotonic() > self._end


def _open(address: str, browser: bool, ended: threading.Event, wait: float = 60.0) -> None:
    """Open the URL `address` in the user's browser; print the URL if no browser starts.

    If `browser` is False, only print the URL. The browser opens a temporary page that redirects to
    the URL. This page is removed after `wait` seconds, or earlier if `ended` is set.
    """
    commands = browser_commands(os.environ) if browser else []
    # All users can read the arguments of a command, so these do not contain the URL.
    with leading_to(address) as page:
        if page is not None and commands and opened_by(commands, page.as_uri(), own_environment()):
            ended.wait(wait)
            return
    text_output.say(f"Open this address in a browser of this machine: {address}")
    if browser:
        _notify(translated("No browser was found to show the window."))


def _notify(text: str) -> None:
    """Show a notification, unless stdout is a terminal or notify-send is not installed."""
    if shutil.which("notify-send") and not sys.stdout.isatty():
        subprocess.run(  # noqa: S603
            [str(shutil.which("notify-send")), "--app-name=zonedrive", "--icon=zonedrive", "Zones",
             html.escape(text, quote=False)],
            check=False,
        )  # fmt: skip
