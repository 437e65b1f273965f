"""Ordinary user on a machine that lacks something, in a mount namespace for each command.

Knows nothing of zonedrive except the command's name.  Mounts in the namespace end with the command.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.harness import starter
from tests.harness.deployment import COMMAND
from tests.harness.machine import Machine

NOBODY = 65534  # a user that each system has
NAMELESS = 54_321  # and one that none has
# The checkout may be in a folder that only its owner may enter; reading is all that this gives.
_READING = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]

# A /dev without /dev/fuse: devices of our own could not be made in every container.
WITHOUT_DEVICE = """
mkdir -p dev
mount -t tmpfs none dev
for name in null zero urandom random; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mount --move dev /dev
"""


class Person:
    """Ordinary user, who owns the machine's folders."""

    def __init__(
        self, machine: Machine, uid: int = NOBODY, *, starts_programs: bool = False
    ) -> None:
        """Own the machine's folders; `starts_programs`: start an interpreter for each command."""
        assert os.geteuid() == 0, "another user is made by root: run this with sudo"
        self.machine, self._uid, self._starts_programs = machine, uid, starts_programs
        self.give(machine.folder)

    def give(self, folder: Path) -> None:
        """Make this user the owner of a folder and its content."""
        subprocess.run(["chown", "-R", f"{self._uid}:{self._uid}", folder], check=True)

    def do(self, script: str) -> None:
        """Run a shell's script."""
        subprocess.run([*self._user(), "/bin/sh", "-c", script], check=True)

    def _user(self) -> list[str]:
        """Return the beginning of a command line that runs the rest as this user."""
        return ["setpriv", f"--reuid={self._uid}", f"--regid={self._uid}", "--clear-groups"]

    def run(
        self,
        *arguments: str | Path | bytes,
        lacking: str = "",
        text: str = "",
        environment: Mapping[str, str | None] | None = None,
        how: tuple[str, ...] = (),
        shell: str = "",
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command after root has run `lacking`; None in `environment` removes a variable.

        `how` are more options of setpriv, `shell` is how the user's shell starts the command.
        With these, and where its interpreter may differ, the command is a program.  Without
        `lacking` the namespace is the global one, so that a mount stays.
        """
        mine = {name: v for name, v in self.machine.environment.items() if name != "BROWSER"}
        for name, value in (environment or {}).items():
            mine.pop(name, None)
            if value is not None:
                mine[name] = value
        if not (self._starts_programs or how or shell) and starter.can_run(mine):
            words = [os.fsdecode(word) for word in arguments]
            become = starter.Become(self._uid, lacking)
            return starter.run(words, text, mine, self.machine.folder, 120, become=become)
        apart = ["unshare", "--mount", "--propagation", "private"] if lacking else []
        script = f'set -e\n{lacking}\nexec "$@"'
        clean = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in mine.items())]
        command = [*apart, "sh", "-c", script, "sh", *self._user(), *_READING, *how, *clean]
        command += ["/bin/sh", "-c", shell or 'exec "$@"', "sh"]
        return subprocess.run(
            [*command, COMMAND, *arguments],
            input=text, timeout=120, cwd=self.machine.folder,
            capture_output=True, encoding="utf-8", errors="surrogateescape", check=False,
        )  # fmt: skip


def stand_in(machine: Machine, program: str) -> Path:
    """Return a copy of a program, in a folder that is the first of the machine's PATH."""
    found = shutil.which(program)
    assert found is not None, program
    folder = machine.folder / "bin"
    folder.mkdir(exist_ok=True)
    shutil.copy(found, folder / program)
    machine.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    return folder / program
