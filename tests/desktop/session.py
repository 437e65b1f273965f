"""Desktop session without a visible screen: an X server, and a bus that starts services.

Knows nothing of zonedrive.
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.desktop.looking import DESKTOP, ON_SCREEN, Item, accessibility
from tests.harness.bus import RING_PASSWORD, connected, has_owner
from tests.harness.waiting import eventually

OPENED_WITH = """[Desktop Entry]
Type=Application
Name=Reader
Exec={program} %f
MimeType=text/plain;
"""


class Session:
    """X server and session bus with this environment, in which programs are started.

    Services that the bus starts on demand end with the session.
    """

    def __init__(self, environment: Mapping[str, str], height: int = 700) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._windows: dict[str, str] = {}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.environment = dict(
            environment,
            NO_AT_BRIDGE="0",
            GTK_USE_PORTAL="0",
            GDK_BACKEND="x11",
            GSK_RENDERER="cairo",  # without a graphics card
            PATH=os.defpath,  # a Python in a program would otherwise be the one in the suite's PATH
        )
        self.environment.pop("WAYLAND_DISPLAY", None)
        self.environment["DISPLAY"] = ":" + self._start(
            "Xvfb",
            "-displayfd",
            "{}",
            "-screen",
            "0",
            f"1024x{height}x24",
            "-nolisten",
            "tcp",
            "-noreset",
        )
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = self._start(
            "dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address={}"
        )
        # Before any program, because programs look for this interface only at their start.
        self._interface = connected(accessibility(self.environment))
        self.screen = Item(self._interface, DESKTOP)
        list(self.screen.children())  # starts the registry, which a program asks only once

    def _start(self, *command: str) -> str:
        """Start a server that writes its address to a descriptor, `{}`; return the address."""
        reader, writer = os.pipe()
        self.run(*(part.format(writer) for part in command), pass_fds=[writer])
        os.close(writer)
        with os.fdopen(reader) as said:
            line = said.readline().strip()
        assert line, f"{command[0]} did not start"
        return line

    def run(self, *command: str | Path, pass_fds: list[int] | None = None) -> None:
        """Start a program, which ends with the session at the latest."""
        self._running.append(
            subprocess.Popen(
                command, env=self.environment, pass_fds=pass_fds or [],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors,
            )
        )  # fmt: skip

    def focus(self, name: str) -> None:
        """Give the keyboard to the first window of a program, which a window manager would do."""
        if name not in self._windows:
            self._windows[name] = eventually(lambda: self._search(name), what=f"{name} is shown")
        self.xdotool("windowfocus", "--sync", self._windows[name], check=True)

    def xdotool(self, *arguments: str, check: bool = False) -> str:
        """Run xdotool, which types, clicks and finds windows; return its output."""
        done = subprocess.run(
            ["xdotool", *arguments], env=self.environment, timeout=30,
            stdout=subprocess.PIPE, text=True, check=check,
        )  # fmt: skip
        return done.stdout

    def click(self, button: Item) -> None:
        """Click on a notification's button with the mouse, until the notification goes.

        A notification accepts no click while it is still moving in.
        """
        x, y = button.centre(ON_SCREEN)

        def taken() -> bool:
            self.xdotool("mousemove", str(x - 5), str(y), check=True)
            self.xdotool("mousemove", str(x), str(y), check=True)
            self.xdotool("click", "1", check=True)
            return button.is_gone()

        eventually(taken, what="the notification takes a click")

    def _search(self, name: str) -> str:
        """Return the number of the newest window of a program, or ""."""
        found = self.xdotool("search", "--onlyvisible", "--class", name)
        return next(reversed(found.split()), "")

    def opens_text_with(self, script: str) -> None:
        """Open text files with a shell script, which gets the path as $1."""
        data = Path(self.environment["XDG_DATA_HOME"])
        program = data / "reader"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        (data / "applications").mkdir()
        (data / "applications/reader.desktop").write_text(OPENED_WITH.format(program=program))
        (data / "applications/mimeapps.list").write_text(
            "[Default Applications]\ntext/plain=reader.desktop\n"
        )

    def unlock_keyring(self) -> None:
        """Start the keyring as a login does; otherwise a dialog would ask for a password."""
        process = subprocess.Popen(
            ["gnome-keyring-daemon", "--unlock", "--components=secrets", "--foreground"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors,
            env=self.environment,
        )  # fmt: skip
        self._running.append(process)
        assert process.stdin is not None
        process.stdin.write(RING_PASSWORD.encode())
        process.stdin.close()
        address = self.environment["DBUS_SESSION_BUS_ADDRESS"]
        eventually(lambda: has_owner(address, "org.freedesktop.secrets"), what="the keyring")

    def opens_folders_with(self, entry: str) -> None:
        """Open folders with the program of a menu entry, by its name without the suffix."""
        lists = Path(self.environment["XDG_DATA_HOME"], "applications", "mimeapps.list")
        lists.parent.mkdir(exist_ok=True)
        lists.write_text(f"[Default Applications]\ninode/directory={entry}.desktop\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._interface.close()
        ended = [process.args for process in self._running if process.poll() is not None]
        print("programs that ended:", ended)  # pytest shows it when a test fails
        for process in reversed(self._running):
            process.terminate()
        for process in self._running:
            process.wait(60)
        with self._errors:
            self._errors.seek(0)
            print(self._errors.read().decode(errors="replace"))
