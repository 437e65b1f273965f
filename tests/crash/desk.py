"""Folder of the mount in which a test works, with a ledger of confirmed changes."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.crash.ledger import File, Ledger, State, plain
from tests.crash.mounts import Mortal
from tests.harness import workplace
from tests.harness.deployment import RemoteZone

NEVER = -1
"""Number of versions of a file that may exist locally, but not on the service in the end."""


class Desk:
    """File operations in the folder `name` of the zone, recorded in the ledger."""

    def __init__(self, mount: Mortal, name: str, seed: Mapping[str, bytes]) -> None:
        self.mount = mount
        self.name = name
        self.zone: RemoteZone = mount.zone
        self.zone.make_folder(name)
        self.lost: list[bytes] = []  # contents whose names were lost
        self.ledger = Ledger(
            {path: File(data, self.theirs(path, data)) for path, data in seed.items()}
        )

    @property
    def path(self) -> Path:
        """Return the path in the mount."""
        return self.mount.root / self.name

    # ---- a coworker ----

    def theirs(self, name: str, data: bytes) -> str:
        """Write a file as a coworker, directly on the service; return its id."""
        return str(self.zone.write(f"{self.name}/{name}", data)["id"])

    # ---- programs ----

    def look(self) -> None:
        """List the folder."""
        self.mount.names(self.path)

    def save(
        self, name: str, data: bytes, *, mode: str = "wb", sync: bool = False, again: bool = False
    ) -> None:
        """Write a file, new or in place, and close it.

        `sync`: after fsync; `again`: while the version before is not sent yet.
        """
        before = self.ledger.now.get(name)
        content = data
        if mode == "ab" and before is not None:
            content = (before.content or b"") + data
        new = self.ledger.saved(name, content, again=again)
        with self.ledger.change(new), (self.path / name).open(mode) as file:
            file.write(data)
            if sync:
                file.flush()
                self.mount.system.fsync(file.fileno())

    def cut(self, name: str, size: int) -> None:
        """Call truncate(2)."""
        content = (self.ledger.now[name].content or b"")[:size]
        with self.ledger.change(self.ledger.saved(name, content)):
            self.mount.system.truncate(self.path / name, size)

    def rename(self, old: str, new: str) -> None:
        """Call rename(2)."""
        with self.ledger.change(self.ledger.moved(old, new)):
            (self.path / old).rename(self.path / new)

    def exchange(self, one: str, other: str) -> None:
        """Call renameat2(2) with RENAME_EXCHANGE."""
        now = self.ledger.now
        with self.ledger.change({**now, one: now[other], other: now[one]}):
            self.mount.exchange(self.path / one, self.path / other)

    def unlink(self, name: str) -> None:
        """Call unlink(2)."""
        with self.ledger.change(self.ledger.without(name)):
            (self.path / name).unlink()

    def mkdir(self, name: str) -> None:
        """Call mkdir(2)."""
        with self.ledger.change({**self.ledger.now, name: File(None)}):
            (self.path / name).mkdir()

    def trash(self, name: str) -> None:
        """Move a folder to the trash as a file manager does."""
        left = {
            path: file
            for path, file in self.ledger.now.items()
            if path != name and not path.startswith(f"{name}/")
        }
        with self.ledger.change(left):
            trash = self.mount.path / f".Trash-{os.getuid()}/files"
            (self.path / name).rename(trash / f"{self.name}-{name}")

    def collide(self, name: str, data: bytes, end: State) -> None:
        """Write a file that a coworker has changed meanwhile: the conflict ends as `end`."""
        before = self.ledger.now.get(name, File(b""))
        ours = {**self.ledger.now, name: replace(before, content=data, versions=NEVER)}
        with self.ledger.change(ours):
            (self.path / name).write_bytes(data)
        self.ledger.possible = [ours, end]

    # ---- looking ----

    def here(self) -> dict[str, bytes | None]:
        """Return the content by path in the mount."""
        return workplace.content(self.path)

    def check_here(self) -> None:
        """Check that the mount has exactly the confirmed content."""
        found = self.here()
        assert self.ledger.allows(found), _said(found, self.ledger)

    def check_lost(self) -> None:
        """Check that entries without names are in lost+found, and can be deleted there."""
        folder = self.mount.path / "lost+found"
        found = sorted(folder.iterdir()) if folder.exists() else []
        contents = sorted(path.read_bytes() for path in found)
        assert contents == sorted(self.lost), f"{found}"
        assert ("notice" in self.mount.status()) == bool(self.lost)
        for path in found:
            path.unlink()
        assert "notice" not in self.mount.status()

    def check_there(self) -> None:
        """Check that the service has the same, with each save as one version of the same file."""
        prefix = f"{self.name}/"
        tree = self.zone.tree(self.name)
        found = {path.removeprefix(prefix): content for path, content in tree.items()}
        assert found == self.here()
        states = self.ledger.allows(found)
        assert states, _said(found, self.ledger)
        wrong = [self._wrong(found, state) for state in states]
        assert [] in wrong, wrong

    def _wrong(self, found: Mapping[str, object], state: Mapping[str, File]) -> list[str]:
        said = []
        for path in found:
            file = state[plain(path)]
            entry = self.zone.find(f"{self.name}/{path}")
            assert entry is not None
            if file.id is not None and entry["id"] != file.id:
                said.append(f"{path} is another file now")
            if file.content is not None:
                versions = len(self.zone.versions(f"{self.name}/{path}"))
                if versions != file.versions:
                    said.append(f"{path} has {versions} versions instead of {file.versions}")
        return said


def _said(found: Mapping[str, bytes | None], ledger: Ledger) -> str:
    def short(content: bytes | None) -> str:
        return "folder" if content is None else f"{len(content)}:{content[:20]!r}"

    seen = {path: short(content) for path, content in found.items()}
    may = [{path: short(file.content) for path, file in s.items()} for s in ledger.possible]
    return f"found {seen}, but it may only be one of {may}"
