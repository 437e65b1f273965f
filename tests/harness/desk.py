"""A person who logs on by a sign-on in a browser: the terminal, and what it gives to the browser.

Knows the command and the provider's page, and no test.
"""

import re
from pathlib import Path

from tests.harness import world
from tests.harness.chromium import Chromium
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually

ALICE = f"alice@{world.DOMAIN}"


class Desk:
    """A person's desk: a terminal in which a logon runs, and what it gave to the browser."""

    def __init__(
        self,
        machine: Machine,
        service: Deployment,
        *options: str,
        browser: Path | None = None,
        terminal: bool = True,
    ) -> None:
        """`browser` is started as the browser; without `terminal` nobody can be asked."""
        self._given = machine.folder / "given"
        hook = machine.folder / "hook"
        hook.write_text(
            f'#!/bin/sh\necho "$@" >{self._given}.new; mv {self._given}.new {self._given}\n'
        )
        hook.chmod(0o700)
        machine.environment["BROWSER"] = str(browser or hook)
        self.machine = machine
        self.terminal = Terminal(machine, *command(service, *options), types=terminal)

    def address(self) -> str:
        """What the browser is started with, all of it."""
        eventually(self._given.exists, what=f"a browser is opened: {self.terminal.shown}")
        return self._given.read_text().strip()

    def go(self, chromium: Chromium) -> None:
        """Open in a real browser what this one was started with, up to the provider's page."""
        chromium.go(self.address())
        eventually(
            lambda: chromium.address.startswith("https:") and chromium.text,
            what="the browser is at the provider",
        )

    def is_opened(self) -> bool:
        """Whether a browser was started."""
        return self._given.exists()

    def start(self) -> str:
        """The address that the terminal shows, for a browser that does not open."""
        self.terminal.until("If no window opens")
        while not (found := re.search(r"(http://127\.0\.0\.1:\d+/\S+)\s", self.terminal.shown)):
            assert self.terminal.until_more(), self.terminal.shown
        return found[1]

    def forget(self) -> None:
        """Forget the address that was given."""
        self._given.unlink(missing_ok=True)

    def agree(self, user: str, answer: str = "y") -> str:
        """Say whether the browser's user is the right one; what was shown before."""
        self.terminal.until("[y/N]")
        shown = self.terminal.shown
        assert f"The browser signed on as {user}" in shown, shown
        self.terminal.type(answer)
        return shown

    def end(self, code: int) -> str:
        """Wait for the end of the logon, with that exit code; what was shown."""
        assert self.terminal.end() == code, self.terminal.shown
        assert "Traceback" not in self.terminal.shown
        return self.terminal.shown


def command(service: Deployment, *options: str) -> list[str]:
    """The command line of a logon."""
    profile = [] if "--profile" in options else ["--profile", "sandbox"]
    return ["logon", service.base_url, "--ca-file", str(service.ca_file), *profile, *options]


def sign_on(chromium: Chromium, user: str = ALICE, password: str = "") -> None:
    """At the provider's page."""
    chromium.until("Password")
    chromium.fill("username", user)
    chromium.fill("password", password or world.PASSWORDS[user.partition("@")[0]])
    chromium.click("button.go")
