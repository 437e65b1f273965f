"""The account in the side bar of programs that use libcloudproviders."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread, Timer
from typing import Any

from jeepney import DBusAddress, new_method_call

from tests.desktop.extensions import install_side_bar
from tests.desktop.session import Session
from tests.harness.bus import connected
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from zonedrive.desktop.client import ANSWER_SECONDS

EXPORTER = DBusAddress(
    "/org/zonedrive/Desktop",
    bus_name="org.zonedrive.Desktop",
    interface="org.freedesktop.DBus.ObjectManager",
)
SYSTEM_PYTHON = "/usr/bin/python3"
PROGRAM = Path(__file__).with_name("cloud_accounts.py")


class SideBar:
    """Accounts that a program with a side bar shows now."""

    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self.accounts: list[list[Any]] = []
        self._input, self._output = program.stdin, program.stdout
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._output is not None
        for line in self._output:
            self.accounts = json.loads(line)

    def choose(self, action: str, label: str) -> None:
        """Choose an item of the account's menu."""
        eventually(lambda: label in self.accounts[0][4], what=f"{label}, in {self.accounts}")
        assert self._input is not None
        self._input.write(f"{action}\n")
        self._input.flush()

    def until(self, status: str, text: str = "") -> None:
        """Wait until the only account has this state."""
        eventually(
            lambda: (
                [(each[2], each[3]) for each in self.accounts if text in each[3]] != []
                and self.accounts[0][2] == status
            ),
            what=f"{status} {text}, not {self.accounts}",
        )


@contextmanager
def shown(session: Session) -> Iterator[SideBar]:
    """Run the program in a session."""
    with subprocess.Popen(
        [SYSTEM_PYTHON, PROGRAM],
        env=session.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            yield SideBar(program)
        finally:
            program.terminate()


def test_the_account_shows_its_state(mounted: Mounted) -> None:
    """The bus starts the exporter; the state follows uploads, failures and the end of the mount."""
    with Session(install_side_bar(mounted.machine)) as session, shown(session) as side_bar:
        side_bar.until("idle", "Everything is on the service.")
        ((name, path, *_),) = side_bar.accounts
        assert name == "Acme"
        assert path == str(mounted.path)
        mounted.allow("refused", "HTTP 403")
        with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
            (mounted.root / "notes.txt").write_bytes(b"refused\n")
            side_bar.until("error", "1 upload failed.")
        mounted.sync()
        side_bar.until("idle")
        mounted.kill()
        eventually(lambda: not side_bar.accounts, what="the account goes with its daemon")


def test_the_first_look_shows_name_and_state(mounted: Mounted) -> None:
    """A program whose look for accounts starts the exporter gets each account with all values, also
    if a daemon answers late. The program could miss values that follow while it is busy, and would
    show an account without a name."""
    goes_on = Timer(ANSWER_SECONDS / 3, os.kill, (mounted.pid, signal.SIGCONT))
    with Session(install_side_bar(mounted.machine)) as session:
        os.kill(mounted.pid, signal.SIGSTOP)
        goes_on.start()
        with connected(session.environment["DBUS_SESSION_BUS_ADDRESS"]) as connection:
            call = new_method_call(EXPORTER, "GetManagedObjects")
            (objects,) = connection.send_and_get_reply(call).body
        goes_on.join()
        kind = "org.freedesktop.CloudProviders.Account"
        (account,) = [each[kind] for each in objects.values() if kind in each]
        found = {name: value for name, (_, value) in account.items()}
        assert (found["Name"], found["Path"]) == ("Acme", str(mounted.path))
        assert found["StatusDetails"] == "Everything is on the service."


def test_uploads_are_paused_from_the_side_bar(mounted: Mounted) -> None:
    """The account's menu pauses the uploads, and then offers to resume them."""
    with Session(install_side_bar(mounted.machine)) as session, shown(session) as side_bar:
        side_bar.until("idle", "Everything is on the service.")
        side_bar.choose("pause", "Pause uploads")
        side_bar.until("idle", "Uploads are paused.")
        side_bar.choose("resume", "Resume uploads")
        side_bar.until("idle", "Everything is on the service.")
        assert not mounted.status()["paused"]
