"""Environment for the documents' commands: a machine of a logged-on user, with mounted zones.

The service that the documents call https://service.example is a sandbox with its example world,
whose CA certificate this machine trusts.  Commands for a checkout run in this one.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.documents.pages import ROOT
from tests.harness import starter, world
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine
from zonedrive.sandbox import seed

SECONDS = 150.0
"""Deadline of a script; no script waits for a fixed time."""

SERVICE = "https://service.example"
PROMPTS = (
    (re.compile(r"User name at \S+: $"), "alice@acme.example"),
    (re.compile(r"[Pp]assword[^\n]*: $"), world.PASSWORDS["alice"]),
    (re.compile(r"\[y/N\]: $"), "y"),
)
# What stays until Ctrl-C, and what it shows once it is there.
STAYS = (
    (re.compile(r"zonedrive status .*--watch"), "mounted at"),
    (re.compile(r"zonedrive mount .*(-f|--foreground)\b.*"), "is mounted at"),
    (re.compile(r"(zonedrive |python -m zonedrive\.)sandbox\b.*"), "the sandbox runs until Ctrl-C"),
    (re.compile(r"packaging/demo"), "until you press Ctrl-C"),
)


# What may be run at all; whatever else a document says, or misspells, is refused.
MAY_RUN = re.compile(
    r"(zonedrive|cat|cd|chmod|cp|df|echo|export|findmnt|getfattr|ls|mkdir|tail|packaging/demo"
    r"|python -m zonedrive\.sandbox|\.venv/bin/python -m zonedrive\.cli\.reference"
    r"|\.venv/bin/python -m tests\.[\w.]+ --help)( .*)?"
)
# What asks for a password at the terminal of its session, or must see Ctrl-C, is a program.
IS_A_PROGRAM = re.compile(r"\b(logon|new-credentials|tokens|demo|--watch|--foreground|-f)\b")
# What is told of a folder of a zone is run there.
IN_A_ZONE = re.compile(r"cp \.versions/.*")
REPEAT_SECONDS = 20.0  # without output, after which a person presses Ctrl-C again


@dataclass(frozen=True)
class Shown:
    """Result of a script."""

    code: int
    text: str


class Stage:
    """Machine with one service."""

    def __init__(self, machine: Machine, deployment: Deployment) -> None:
        self.home = machine.folder
        self.deployment = deployment
        self._machine = machine
        self._serial = 0
        self._as_it_was = False
        self.environment = dict(machine.environment)
        for name in [each for each in self.environment if each.startswith("XDG_")]:
            del self.environment[name]
        runtime = machine.folders["RUNTIME_DIR"]
        self.environment |= {
            "XDG_RUNTIME_DIR": str(runtime),
            "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
            "SSL_CERT_FILE": str(deployment.ca_file),
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "TERM": "xterm",
        }
        machine.environment = self.environment
        (self.home / "bin").mkdir()
        starter.write_stand_in(self.home / "bin/zonedrive")
        self._is_paused = False  # a script has paused the uploads
        self.succeeded: set[str] = set()
        self._furnish()

    def _furnish(self) -> None:
        """Create the files that a reader is assumed to have."""
        (self.home / "Zones").mkdir()
        shutil.copy(self.deployment.ca_file, self.home / "ca.pem")
        profiles = ROOT / "src/zonedrive/remote/profiles"
        shutil.copy(profiles / "sandbox.toml", self.home / "ours.toml")
        (self.home / "password").write_text(world.PASSWORDS["alice"] + "\n")
        self.deployment.plant("Project X", "Minutes.txt", "Nothing decided yet.\n")
        self.deployment.plant("Project X", "report.odt", "first\n")

    # ---- how it stands before a script ----

    def ready(self, script: str = "") -> None:
        """Log on, and mount unless `script` begins with a mount of its own."""
        if not self._as_it_was:
            self.empty()
            self._machine.log_on(self.deployment, profile="sandbox")
            self._as_it_was = True
        if self._is_paused:
            self._machine.done("resume")
            self._is_paused = False
        first = re.search(r"zonedrive (mount|unmount)\b|packaging/(demo)\b", script)
        wanted = not first or first[1] == "unmount"
        if wanted and str(self.home / "Zones") not in self._mounts():
            self._machine.done("mount", self.home / "Zones")
        elif not wanted:
            self._unmount()

    def empty(self) -> None:
        """Remove the logon and the folder for the zones."""
        self._as_it_was = False
        self._unmount()
        for name in (".config", ".cache", ".local"):
            shutil.rmtree(self.home / name, ignore_errors=True)

    def end_demo(self) -> None:
        """End the service of a demo that had to be killed."""
        for file in self.home.glob(".local/share/zonedrive-demo/**/sandbox.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)

    def _unmount(self) -> None:
        for path in self._mounts():
            self._machine.run("unmount", path, "--now")
            if path in self._mounts():
                subprocess.run(["fusermount3", "-uz", path], check=True)

    def _mounts(self) -> list[str]:
        table = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
        paths = [line.split()[1] for line in table.splitlines() if " fuse.zonedrive " in line]
        return [path for path in paths if path.startswith(f"{self.home}/")]

    # ---- words that stand for something ----

    def filled(self, form: str) -> str:
        """Return the form with values in place of words in capitals and dots."""
        words = re.sub(r"https://(?=\s|$)", SERVICE, form).split()
        found = []
        for number, word in enumerate(words):
            before = words[number - 1] if number else ""
            found.append(self._meaning(word, before, words) if word.isupper() else word)
        return " ".join(found)

    def _meaning(self, word: str, before: str, words: Sequence[str]) -> str:
        self._serial += 1
        if word == "FILE":
            at = {"--world": str(seed.PACKAGED_WORLD), "--profile": "ours.toml"}
            return at.get(before, f"{self.home}/out-{self._serial}")
        if word == "NAME":
            return self._deleted() if {"restore", "--purge"} & set(words) else f"n{self._serial}"
        if word == "DIR":
            path = self.home / f"dir-{self._serial}"
            path.mkdir()
            return str(path)
        if word == "ID":
            said = self._machine.done(
                "tokens", "create", "x", "--json", "--password-stdin",
                text=world.PASSWORDS["alice"] + "\n",
            )  # fmt: skip
            return str(json.loads(said)["id"])
        minutes = "~/Zones/'Project X'/Minutes.txt"
        known = {
            "PATH": minutes, "VERSION": "1", "ZONE": "'Project X'", "TIME": "30m", "USER": "alice",
        }  # fmt: skip
        return known[word]

    def _deleted(self) -> str:
        """Return the name of an entry in the trash."""
        name = f"old-{self._serial}.txt"
        self.deployment.plant("Project X", name, "old\n")
        self.deployment.person("alice").zone("Project X").delete(name)
        return name

    # ---- running ----

    def run(self, script: str) -> Shown:
        """Run a script in a terminal and answer its questions; interrupt one that does not end."""
        self._is_paused |= "zonedrive pause" in script
        if "zonedrive logoff" in script:  # another logon keeps the profile, or has the same one
            self._as_it_was = False
        if "packaging/demo" in script:
            self._check_setup()
        sign = next((sign for form, sign in STAYS if form.fullmatch(script.strip())), "")
        text = script.replace(SERVICE, self.deployment.base_url)
        text = re.sub(r"(\.venv/bin/)?\bpython -m", f"{sys.executable} -m", text)
        text = re.sub(r"(?m)^\.venv/bin/zonedrive\b", "zonedrive", text)
        text = re.sub(r"(?m)^packaging/", f"{ROOT}/packaging/", text)
        if IN_A_ZONE.fullmatch(script):
            text = f"cd ~/Zones/'Project X'; {text}"
        quick = not sign and not IS_A_PROGRAM.search(script)
        return self._in_terminal(text, sign, quick=quick)

    def _check_setup(self) -> None:
        """Fail if the demo would make a new .venv, from which other tests import."""
        check = [str(ROOT / "packaging/setup"), "--check"]
        said = subprocess.run(check, env=self.environment, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr

    def _in_terminal(self, script: str, sign: str, *, quick: bool) -> Shown:
        environment = dict(self.environment)
        if quick:
            environment["PATH"] = f"{self.home}/bin:{environment['PATH']}"
        ours, theirs = pty.openpty()
        command = ["bash", "-e", "-o", "pipefail", "-c", script]
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
            cwd=self.home, start_new_session=True, preexec_fn=_make_controlling,
        )  # fmt: skip
        os.close(theirs)
        try:
            shown, interrupted, ended = _talk(ours, sign)
            if not ended:
                os.killpg(process.pid, signal.SIGKILL)
                shown += f"\n(no end after {SECONDS:.0f} s)"
            # Before the terminal goes: programs such as cp have left it a moment before they end,
            # and would die of its end.
            code = process.wait(SECONDS)
        finally:
            os.close(ours)
        return Shown(0 if interrupted and code in (130, -signal.SIGINT) else code, shown)


def _talk(ours: int, sign: str) -> tuple[str, bool, bool]:
    """Return the terminal's output, if Ctrl-C was sent at the `sign`, and if the script ended."""
    shown, answered, interrupted = "", 0, 0.0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        data = _read(ours)
        if data is None:
            return shown, bool(interrupted), True
        shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        if sign and sign in shown and time.monotonic() - interrupted > REPEAT_SECONDS:
            interrupted = time.monotonic()
            os.write(ours, b"\x03")
        answer = _answer(shown[answered:])
        if answer is not None:
            answered = len(shown)
            os.write(ours, answer.encode() + b"\n")
    return shown, bool(interrupted), False


def _make_controlling() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read(descriptor: int) -> bytes | None:
    """Return the next output of the terminal; None once no process has it open."""
    ready, _, _ = select.select([descriptor], [], [], 1.0)
    if not ready:
        return b""
    try:
        return os.read(descriptor, 65536) or None
    except OSError:
        return None


def _answer(shown: str) -> str | None:
    return next((answer for prompt, answer in PROMPTS if prompt.search(shown)), None)


@contextmanager
def open_stage(folder: Path) -> Iterator[Stage]:
    """Yield an environment below `folder`, whose path is short, and remove it afterwards."""
    service = folder / "service"
    deployment = Deployment(service, world_file=world.example(service, seed.PACKAGED_WORLD))
    stage = Stage(Machine(folder / "home"), deployment)
    try:
        yield stage
    finally:
        stage.end_demo()
        stage.empty()
        deployment.close()
