"""The same operations with lost replies, an unreachable service, kills of the daemon, and a
coworker.

A coworker's change while nothing is pending is just shown.  A change while a file is open for
writing causes a conflict, and the expected conflict copy is added to the dict.
"""

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from tests.model.steps import CONTENT, NAMES, PATHS, Steps

ALLOWED = (
    "refused", "reach", "offline", "answer", "reply", "a conflict copy",
    "deleted on the service", "newer version on the service", "stays on the service",
)  # fmt: skip
OFFLINE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ETIMEDOUT, errno.EIO}
NOTHING = {"pending": 0, "uploading": 0, "failed": 0}

T = TypeVar("T")


class TroubledSteps(Steps):
    """Operations with faults in between."""

    def __init__(self, mounted: Mounted) -> None:
        self.troubled = False
        super().__init__(mounted)
        self.beside = set(mounted.zone.listing()) - {self.name}

    def patiently(self, what: str, action: Callable[[], T]) -> T:
        """Do the operation; repeat it after the service is back if it needs the service."""
        try:
            return super().patiently(what, action)
        except OSError as problem:
            if not (self.troubled and problem.errno in OFFLINE):
                raise
        self.peace()
        return action()

    def peace(self) -> None:
        """End all faults, and wait until the daemon knows."""
        self.mounted.deployment.heal()
        if self.troubled:
            eventually(lambda: self.mounted.status()["state"] == "online", what="online")
        self.troubled = False

    def settle(self) -> None:
        """Wait until no change is pending and no leftovers exist."""
        self.peace()
        self.mounted.sync()
        outbox = self.mounted.status()["outbox"]
        assert outbox | NOTHING == outbox, outbox
        outgoing = self.mounted.machine.state / "outgoing"
        eventually(lambda: not os.listdir(outgoing), what="no bytes are left")

    # ---- what goes wrong ----

    @rule(method=st.sampled_from(["POST", "PUT", "DELETE"]), times=st.integers(1, 2))
    def lose_a_reply(self, method: str, times: int) -> None:
        self.done["lose a reply"] += 1
        self.troubled = True
        path = "^/api/(zones|sandbox)/"
        self.mounted.deployment.fault(drop_reply=True, times=times, method=method, path=path)

    @rule()
    def go_away(self) -> None:
        self.done["go away"] += 1
        self.troubled = True
        self.mounted.deployment.fault(down=True)

    @rule()
    def come_back(self) -> None:
        self.mounted.deployment.heal()

    @rule()
    def kill(self) -> None:
        self.done["kill"] += 1
        self.mounted.kill()
        self.mounted.mount()

    # ---- a coworker, while nothing waits ----

    def coworker(self, verb: str, *paths: str, content: bytes | None = None) -> bool:
        """Update the dict, and return True if a coworker can do this, with nothing pending."""
        model = self.model
        arguments = (*paths, content) if content is not None else paths
        before = dict(model.entries)
        if self.refused(verb, *arguments) is not None or model.entries == before:
            return False
        now, model.entries = model.entries, before
        self.settle()
        self.compare_service()
        model.entries = now
        self.done[f"coworker: {verb}"] += 1
        return True

    def await_look(self) -> None:
        """Wait until a new listing shows a coworker's change."""

        def shows() -> bool:
            try:
                return self.here() == self.model.entries
            except FileNotFoundError:  # listed before it was gone, and opened after
                return False

        eventually(shows, what="it shows here")

    def there(self, path: str) -> str:
        """Return the path on the service."""
        return f"{self.name}/{path}"

    @rule(path=PATHS, content=CONTENT)
    def coworker_saves(self, path: str, content: bytes) -> None:
        if self.coworker("put", path, content=content):
            self.mounted.zone.write(self.there(path), content)
            self.await_look()

    @rule(path=PATHS)
    def coworker_makes_a_folder(self, path: str) -> None:
        if self.coworker("mkdir", path):
            self.mounted.zone.make_folder(self.there(path))
            self.await_look()

    @rule(old=PATHS, new=PATHS)
    def coworker_renames(self, old: str, new: str) -> None:
        if new not in self.model.entries and self.coworker("rename", old, new):
            self.mounted.zone.move(self.there(old), self.there(new))
            self.await_look()

    @rule(path=PATHS)
    def coworker_removes(self, path: str) -> None:
        verb = "rmdir" if self.model.entries.get(path) is None else "unlink"
        if self.coworker(verb, path):
            self.mounted.zone.delete(self.there(path))
            self.await_look()

    # ---- a coworker, while the same file is being written here ----

    def at_the_same_time(self, path: str, ours: bytes, theirs: Callable[[], object]) -> bool:
        """Write a file while a coworker changes it before it is closed."""
        if not isinstance(self.model.entries.get(path), bytes):
            return False
        self.settle()
        with (self.root / path).open("wb", buffering=0) as file:
            file.write(ours)
            theirs()
        self.settle()
        return True

    @rule(path=PATHS, ours=st.binary(min_size=1, max_size=40), theirs=st.binary(max_size=40))
    def both_save(self, path: str, ours: bytes, theirs: bytes) -> None:
        write = self.mounted.zone.write
        if self.at_the_same_time(path, ours, lambda: write(self.there(path), theirs)):
            self.done["both save"] += 1
            self.model.entries[path] = theirs
            found = self.here()
            copies = found.keys() - self.model.entries.keys()
            assert len(copies) == (ours != theirs), copies
            for copy in copies:
                assert copy.startswith(path.removesuffix(".txt") + " (conflict, "), copy
                self.model.entries[copy] = ours
            self.look()
            self.compare_service()

    @rule(path=PATHS, ours=st.binary(min_size=1, max_size=40))
    def removed_while_saved(self, path: str, ours: bytes) -> None:
        if self.at_the_same_time(path, ours, lambda: self.mounted.zone.delete(self.there(path))):
            self.done["removed while saved"] += 1
            self.model.entries[path] = ours
            self.look()
            self.compare_service()

    @rule(path=PATHS, name=NAMES, ours=st.binary(min_size=1, max_size=40))
    def renamed_while_saved(self, path: str, name: str, ours: bytes) -> None:
        folder, slash, _ = path.rpartition("/")
        new = f"{folder}{slash}{name}"
        if new in self.model.entries:
            return
        move = self.mounted.zone.move
        if self.at_the_same_time(path, ours, lambda: move(self.there(path), self.there(new))):
            self.done["renamed while saved"] += 1
            del self.model.entries[path]
            self.model.entries[new] = ours
            self.await_look()
            self.compare_service()

    # ---- the end ----

    def compare_service(self) -> None:
        super().compare_service()
        assert set(self.mounted.zone.listing()) - self.beside == {self.name}

    def teardown(self) -> None:
        self.peace()
        super().teardown()
