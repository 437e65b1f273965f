"""Flatpak and snap programs, which get single documents from the document portal."""

import subprocess
from pathlib import Path

from tests.desktop.session import Session
from tests.harness.machine import Mounted

SYSTEM_PYTHON = "/usr/bin/python3"
PROGRAM = Path(__file__).with_name("portal.py")


def test_a_sandboxed_program_saves(mounted: Mounted, session: Session) -> None:
    """Each save is one version of the same file, and the program's lock stays on this machine."""
    document, before = mounted.root / "notes.txt", set(mounted.zone.listing())
    entry = mounted.zone.entry_id("notes.txt")
    first = len(mounted.zone.versions("notes.txt"))
    with subprocess.Popen(
        [SYSTEM_PYTHON, PROGRAM, document], env=session.environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        mounted.sync()
        assert set(mounted.zone.listing()) == before
        for number, text in enumerate((b"saved in place\n", b"saved by a rename\n"), 1):
            print(file=program.stdin, flush=True)
            assert program.stdout.readline() == "saved\n"
            assert document.read_bytes() == text
            mounted.sync()
            assert mounted.zone.read("notes.txt") == text
            assert len(mounted.zone.versions("notes.txt")) == first + number
        print(file=program.stdin, flush=True)
    assert mounted.zone.entry_id("notes.txt") == entry
    assert set(mounted.zone.listing()) == before
    assert {path.name for path in mounted.root.iterdir()} == before
