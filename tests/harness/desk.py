"""User who logs on by a sign-on in a browser: the terminal, and the address for the browser.

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
    """Terminal in which a logon runs, and the address that it opened in the browser."""

    def __init__(
        self,
        machine: Machine,
        service: Deployment,
        *options: str,
        browser: Path | None = None,
        terminal: bool = True,
    ) -> None:
        """Start a logon with `browser` as the browser; without `terminal` no question is
        possible."""
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
        """Return the complete address with which the browser was started."""
        eventually(self._given.exists, what=f"a browser is opened: {self.terminal.shown}")
        return self._given.read_text().strip()

    def go(self, chromium: Chromium) -> None:
        """Open that address in a real browser, up to the provider's page."""
        chromium.go(self.address())
        eventually(
            lambda: chromium.address.startswith("https:") and chromium.text,
            what="the browser is at the provider",
        )

    def is_opened(self) -> bool:
        """Return True if a browser was started."""
        return self._given.exists()

    def start(self) -> str:
        """Return the address that the terminal shows in case no browser opens."""
        self.terminal.until("If no window opens")
        while not (found := re.search(r"(http://127\.0\.0\.1:\d+/\S+)\s", self.terminal.shown)):
            assert self.terminal.until_more(), self.terminal.shown
        return found[1]

    def forget(self) -> None:
        """Forget the address that was given."""
        self._given.unlink(missing_ok=True)

    def agree(self, user: str, answer: str = "y") -> str:
        """Answer if the browser's user is right; return the output before."""
        self.terminal.until("[y/N]")
        shown = self.terminal.shown
        assert f"The browser signed on as {user}" in shown, shown
        self.terminal.type(answer)
        return shown

    def end(self, code: int) -> str:
        """Wait for the end of the logon with that exit code; return the output."""
        assert self.terminal.end() == code, self.terminal.shown
        assert "Traceback" not in self.terminal.shown
        return self.terminal.shown


def command(service: Deployment, *options: str) -> list[str]:
    """Return the command line of a logon."""
    profile = [] if "--profile" in options else ["--profile", "sandbox"]
    return ["logon", service.base_url, "--ca-file", str(service.ca_file), *profile, *options]


def sign_on(chromium: Chromium, user: str = ALICE, password: str = "") -> None:
    """Sign on at the provider's page."""
    chromium.until("Password")
    chromium.fill("username", user)
    chromium.fill("password", password or world.PASSWORDS[user.partition("@")[0]])
    chromium.click("button.go")
