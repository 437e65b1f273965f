"""A trace: the calls of a real program on a folder, as portable data.

Knows neither strace nor a mount.  A step is one call: its name, its arguments, and, where it was
refused, the errno.  Names are relative to the folder; an open file is known by a number that the
trace gives it.  Content is kept where it is short, else it is a recipe for as many bytes.

    ["open", PATH, FLAGS, MODE, FILE]    ["close", FILE]              ["read", FILE, OFFSET, LENGTH]
    ["write", FILE, OFFSET, CONTENT]     ["append", FILE, CONTENT]    ["ftruncate", FILE, SIZE]
    ["fsync", FILE]                      ["truncate", PATH, SIZE]     ["rename", OLD, NEW, FLAGS]
    ["unlink", PATH]  ["rmdir", PATH]    ["mkdir", PATH, MODE]        ["stat", PATH]
    ["link", OLD, NEW]                   ["symlink", TARGET, PATH]    ["chmod", PATH, MODE]
    ["fchmod", FILE, MODE]               ["utime", PATH, ATIME_NS, MTIME_NS]
    ["futime", FILE, ATIME_NS, MTIME_NS] ["setxattr", PATH, NAME, CONTENT]

Flags are names joined by "|"; times are null for "now".
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import msgspec

DATA = Path(__file__).with_name("data")
KEPT = 400  # bytes; longer content becomes a recipe
PRIVATE = (os.uname().nodename.encode() + b".", b"," + os.uname().nodename.encode(), b"/tmp/")

Content = str | list[int]


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Single call."""

    call: list[Any]
    at: int = 0  # milliseconds since the program began
    error: str = ""  # the errno it was refused with


class Trace(msgspec.Struct, frozen=True):
    """Recorded calls of one program on one folder."""

    program: str  # name and version
    command: str
    profile: str  # what the deployment could do
    before: dict[str, Content | None]  # the folder at first; None: a folder
    after: dict[str, int | None]  # the names in the end, with sizes
    steps: list[Step]


def content(data: bytes) -> Content:
    """Return the form in which a trace stores these bytes, without private data of the machine."""
    if len(data) <= KEPT and not any(each in data for each in PRIVATE):
        try:
            return data.decode("ascii")
        except UnicodeDecodeError:
            pass
    return [len(data), sum(data) % 1000]


def expand(kept: Content) -> bytes:
    """Return the bytes that a player writes; always the same ones."""
    if isinstance(kept, str):
        return kept.encode("ascii")
    size, seed = kept
    return random.Random(seed).randbytes(size)


def load(path: Path) -> Trace:
    """Read a trace.  Raises msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Trace)


def save(path: Path, trace: Trace) -> None:
    """Write a trace, one line for each step."""
    plain = msgspec.to_builtins(trace)
    steps = ",\n".join(json.dumps(step) for step in plain.pop("steps"))
    head = json.dumps(plain, indent=1)[:-2]
    path.write_text(f'{head},\n "steps": [\n{steps}\n]}}\n')
