"""Planted faults: patches that bring a fault into the product, which the simulation must find.

`NAME.patch` is a unified diff after a comment that says what a user would notice. `NAME.txt` is a
scenario in which the fault shows, and `found.json` says which random seed was the first to find it.
`python -m tests.simulation.planted` searches again. Nothing here changes the work tree: a patch is
applied to a copy of the package.
"""

import json
import multiprocessing
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import zonedrive

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


def apply(patch: str, package: Path) -> None:
    """Apply a unified diff to a copy of the package. Raises DoesNotApply.

    Line numbers do not count: each hunk must match at exactly one place.
    """
    for part in re.split(r"^--- ", patch, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
        path = package / head.splitlines()[1].removeprefix(f"+++ b/{PREFIX}")
        text = path.read_text("utf-8")
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            if text.count(before) != 1:
                raise DoesNotApply(f"{path.relative_to(package)} has changed:\n{before}")
            text = text.replace(before, after)
        path.unlink()
        path.write_text(text, "utf-8")


@contextmanager
def copied(patch: str = "") -> Iterator[Path]:
    """Yield a folder with a copy of the package, to which the patch is applied."""
    with tempfile.TemporaryDirectory(prefix="zdplanted") as folder:
        package = Path(folder, "zonedrive")
        unneeded = shutil.ignore_patterns("docs", "locale", "*.html", "*.md")
        shutil.copytree(PACKAGE, package, ignore=unneeded)
        if patch:
            apply(patch, package)
        yield Path(folder)


# ---- running ----


class Player:
    """Process that runs scenarios on a copy of the package."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start on the copy in `folder`, by default on the package itself.

        Other libraries stay imported, so that the start takes a third of a second.
        """
        context = multiprocessing.get_context("fork")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, folder), daemon=True)
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


def _serve(pipe: Connection, folder: Path | None) -> None:
    if folder is not None:
        for name in [*sys.modules]:
            if name.partition(".")[0] == "zonedrive" or name.startswith("tests."):
                del sys.modules[name]
        sys.path.insert(0, str(folder))
    from tests.simulation.run import run
    from tests.simulation.scenario import parse

    while True:
        try:
            text = pipe.recv()
        except EOFError:
            return
        pipe.send(run(parse(text)).findings)
