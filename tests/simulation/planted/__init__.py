"""Planted faults: patches that bring a fault into the product, which the simulation must find.

`NAME.patch` is a unified diff after a comment that says what a user would notice. `NAME.txt` is a
scenario in which the fault shows, and `found.json` says which random seed was the first to find it.
`python -m tests.simulation.planted` searches again. Nothing here changes the work tree: a patch
replaces the code of functions in a process, and so must change no other lines than theirs.
"""

import gc
import inspect
import json
import multiprocessing
import re
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType

import zonedrive
from tests.simulation.run import run
from tests.simulation.scenario import parse

FOLDER = Path(__file__).parent
FOUND = FOLDER / "found.json"
PACKAGE = Path(zonedrive.__file__).parent
PREFIX = "src/zonedrive/"


class DoesNotApply(Exception):
    """The product has changed where a patch changes it: renew the patch."""


@dataclass(frozen=True)
class Fault:
    """Fault that can be planted."""

    name: str

    @property
    def patch(self) -> str:
        """Return the text of the patch."""
        return (FOLDER / f"{self.name}.patch").read_text("utf-8")

    @property
    def says(self) -> str:
        """Return the effect of the fault on a user."""
        lines = self.patch.splitlines()
        return " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))

    @property
    def scenario_file(self) -> Path:
        """Return the file with a scenario that shows the fault."""
        return FOLDER / f"{self.name}.txt"


def faults() -> list[Fault]:
    """Return all planted faults."""
    return [Fault(path.stem) for path in sorted(FOLDER.glob("*.patch"))]


def found() -> dict[str, dict[str, object]]:
    """Return, by name, the first random seed that found a fault, and the finding."""
    return json.loads(FOUND.read_text("utf-8")) if FOUND.exists() else {}


# ---- patches ----


def patched(patch: str) -> dict[Path, str]:
    """Return the new text of each file that a unified diff changes. Raises DoesNotApply.

    Line numbers do not count: each hunk must match at exactly one place.
    """
    found: dict[Path, str] = {}
    for part in re.split(r"^--- ", patch, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
        path = PACKAGE / head.splitlines()[1].removeprefix(f"+++ b/{PREFIX}")
        text = path.read_text("utf-8")
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            if text.count(before) != 1:
                raise DoesNotApply(f"{path.relative_to(PACKAGE)} has changed:\n{before}")
            text = text.replace(before, after)
        found[path] = text
    return found


def plant(patch: str) -> None:
    """Replace the code of the functions that a patch changes, in this process."""
    new: dict[tuple[str, str, int], CodeType] = {}
    for path, text in patched(patch).items():
        codes = [
            _functions(compile(each, path, "exec", dont_inherit=True))
            for each in (path.read_text("utf-8"), text)
        ]
        new |= {_place(old): code for old, code in zip(*codes, strict=True)}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and _place(each.__code__) in new:
            each.__code__ = new[_place(each.__code__)]


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions of a module and the methods of its classes."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            is_class = not each.co_flags & inspect.CO_OPTIMIZED
            yield from _functions(each) if is_class else [each]


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


# ---- running ----


class Player:
    """Process that runs scenarios on the product with a fault, or without one."""

    def __init__(self, patch: str = "") -> None:
        """Start the process. Raises DoesNotApply."""
        patched(patch)
        context = multiprocessing.get_context("fork")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, patch), daemon=True)
        self._process.start()
        end.close()

    def play(self, scenario: str) -> list[str]:
        """Return the findings of a scenario."""
        self._pipe.send(scenario)
        findings: list[str] = self._pipe.recv()
        return findings

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()  # it waits for the next scenario
        self._process.join()


def _serve(pipe: Connection, patch: str) -> None:
    plant(patch)
    while True:
        try:
            text = pipe.recv()
        except EOFError:
            return
        pipe.send(run(parse(text)).findings)
