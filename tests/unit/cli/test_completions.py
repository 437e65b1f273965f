"""Completion of commands with the Tab key, in real shells."""

import codecs
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

PROMPT = "ready> "
PROGRAMS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed scripts, and a home folder with two accounts."""
    folder = tmp_path_factory.mktemp("share")
    subprocess.run(
        [sys.executable, "-m", "zonedrive.cli.reference", folder], check=True, capture_output=True
    )
    for account in ("default", "work"):
        (folder / "home/.local/state/zonedrive" / account).mkdir(parents=True)
    (folder / "home/Project X").mkdir()
    (folder / "home/authority.pem").touch()
    return folder


class Shell:
    """Shell in a pseudo-terminal."""

    def __init__(self, share: Path, *command: str) -> None:
        self._ours, theirs = pty.openpty()
        home = share / "home"
        environment = {"HOME": str(home), "PATH": PROGRAMS, "TERM": "dumb", "PS1": PROMPT}
        self._process = subprocess.Popen(
            command,
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, start_new_session=True,
            env={**environment, "LC_ALL": "C.UTF-8", "INPUTRC": "/dev/null"},
        )  # fmt: skip
        os.close(theirs)
        self._shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def until(self, words: str) -> None:
        """Wait until the shell prints `words`; keep the output after them."""
        while words not in self._shown:
            data = os.read(self._ours, 4096)
            assert data, f"{words!r} never came: {self._shown}"
            self._shown += self._decoder.decode(data)
        self._shown = self._shown.partition(words)[2]

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._ours, keys.encode())

    def end(self) -> None:
        """Close the terminal."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@pytest.fixture(scope="module", params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, share: Path) -> Iterator[Shell]:
    """Yield a shell that has loaded its script; each test types a line and clears it."""
    if request.param == "bash":
        one = Shell(share, "bash", "--norc", "--noprofile", "-i")
        begin = f". '{share}/bash-completion/completions/zonedrive'"
    else:
        one = Shell(share, "zsh", "-f", "-i")
        begin = f"fpath+=('{share}/zsh/site-functions'); autoload -U compinit; compinit -u -D"
    try:
        one.until(PROMPT)
        one.type(f"{begin}; echo be''gun\n")
        one.until("begun\r\n")
        one.until(PROMPT)
        yield one
    finally:
        one.end()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("mou", "mount"),
        ("tokens cr", "tokens create"),
        ("logon --passw", "logon --password-stdin"),
        ("status --account wo", "status --account work"),
        ("logon --ca-file auth", "logon --ca-file authority.pem"),
        ("mount Proj", r"mount Project\ X/"),
        ("unmount Proj", r"unmount Project\ X/"),
        ("pin auth", "pin authority.pem"),
        ("groups member g m man", "groups member g m manage"),
    ],
)
def test_the_tab_key_completes(shell: Shell, typed: str, completed: str) -> None:
    """A unique match is inserted: commands, options, account names, files and folders."""
    shell.type(f"zonedrive {typed}\t")
    shell.until(f"zonedrive {completed}")
    shell.type("\x15\n")  # Ctrl-U
    shell.until(PROMPT)


OFFERED: Mapping[str, Sequence[str]] = {
    "mou": ["mount"],
    "tokens ": ["create", "list", "revoke"],
    "users list --j": ["--json"],
    "status --account ": ["default", "work"],
    "logon --ca-file auth": ["authority.pem"],
    "mount Proj": ["Project X/"],
    "pin auth": ["authority.pem"],
    "pin tokens auth": ["authority.pem"],
    "groups member g m man": ["manage"],
    "logon auth": [],
}


def test_fish_offers(share: Path) -> None:
    """fish lists the same matches."""
    script = share / "fish/vendor_completions.d/zonedrive.fish"
    lines = [f"source '{script}'"]
    for typed in OFFERED:
        lines += [f"echo 'typed {typed}'", f"complete -C 'zonedrive {typed}'"]
    asked = subprocess.run(
        ["fish", "--no-config", "-c", "\n".join(lines)],
        capture_output=True, text=True, check=True, cwd=share / "home",
        env={"HOME": str(share / "home"), "PATH": PROGRAMS, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert not asked.stderr
    found: dict[str, list[str]] = {}
    for line in asked.stdout.splitlines():
        if line.startswith("typed "):
            found[line.removeprefix("typed ")] = offered = []
        else:
            offered.append(line.split("\t")[0])
    assert found == OFFERED
