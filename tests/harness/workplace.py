"""Check of the guarantee for saves, for a folder of a mount.

Knows no test.  The guarantee: the service has exactly the local files; a changed file has one more
version, under the same id.
"""

from fnmatch import fnmatch
from pathlib import Path

from tests.harness.machine import Mounted
from zonedrive.config import LOCAL_ONLY

TRY_SECONDS = 0.15

Tree = dict[str, bytes | None]
Known = dict[str, tuple[str, int]]
"""Id and number of versions of files, by name."""


def stays_here(name: str) -> bool:
    """Return True if the name, or that of a folder above, is local-only."""
    return any(fnmatch(part, glob) for part in Path(name).parts for glob in LOCAL_ONLY)


def content(folder: Path) -> Tree:
    """Return every name below a folder, with the bytes of files."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


class Workplace:
    """Mount of a zone that already contained files."""

    def __init__(self, mounted: Mounted) -> None:
        self.mounted = mounted
        self.zone = mounted.zone
        self.root = mounted.root

    def flush(self, seconds: float = 60) -> None:
        """Send everything as `zonedrive sync` does; all must be on the service in the end."""
        last = self.mounted.command("sync", timeout=seconds)
        assert last["exit"] == 0, last

    def pause(self, *, still_open: bool) -> None:
        """Wait until everything that may be sent is sent.

        A file that a program has open for writing must not be sent: then `sync` only gets a moment.
        """
        if still_open:
            self.mounted.command("sync", timeout=TRY_SECONDS)
        else:
            self.flush()

    def known(self, folder: str) -> Known:
        """Return the entries below a folder on the service, by names relative to it."""
        return {
            name.removeprefix(f"{folder}/"): (
                self.zone.entry_id(name),
                len(self.zone.versions(name)),
            )
            for name, data in self.zone.tree(folder).items()
            if data is not None
        }

    def check(self, folder: str, before: Tree, known: Known) -> None:
        """Send everything; compare the service with the local files and the former versions."""
        self.mounted.sync()
        here = content(self.root / folder)
        shared = {name: data for name, data in here.items() if not stays_here(name)}
        there = self.zone.tree(folder)
        assert {name.removeprefix(f"{folder}/"): data for name, data in there.items()} == shared
        now = self.known(folder)
        for name, data in shared.items():
            if data is None:
                continue
            if name not in known:
                assert now[name][1] == 1, f"{name} is new and has {now[name][1]} versions"
                continue
            entry_id, versions = known[name]
            more = data != before[name]
            assert now[name][0] == entry_id, f"{name} is another file"
            assert now[name][1] == versions + more, f"{name} has {now[name][1]} versions"
