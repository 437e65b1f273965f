"""Operations on a mount and on a dict, which must agree after each."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.harness.machine import Mounted
from tests.model.dictionary import Model

# Few names, so that operations meet; equal ones in several folders, so that moves do.
NAMES = st.sampled_from(["a", "b", "c.txt", "ü"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENT = st.binary(max_size=40) | st.binary(min_size=65_500, max_size=65_600)

T = TypeVar("T")


@contextlib.contextmanager
def same_outcome(problem: OSError | None) -> Iterator[None]:
    """Check that the mount fails with the same errno as the model."""
    try:
        yield
    except OSError as found:
        assert problem is not None, f"only the mount refuses: {found}"
        assert found.errno == problem.errno, f"{found} instead of {problem}"
    else:
        assert problem is None, f"only the model refuses: {problem}"


def _append(path: Path, more: bytes) -> None:
    with path.open("ab") as file:
        file.write(more)


def _patch(path: Path, offset: int, patch: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(patch)


def _raise(problem: OSError) -> None:
    raise problem


class Steps(RuleBasedStateMachine):
    """Operations on both sides."""

    number = 0
    done: ClassVar[Counter[str]] = Counter()

    def __init__(self, mounted: Mounted) -> None:
        super().__init__()
        Steps.number += 1
        self.mounted = mounted
        self.name = f"model-{Steps.number}"
        self.root = mounted.root / self.name
        self.root.mkdir()
        self.model = Model()

    def patiently(self, what: str, action: Callable[[], T]) -> T:
        """Do the operation, and count it."""
        self.done[what] += 1
        return action()

    def refused(self, verb: str, *arguments: object) -> OSError | None:
        try:
            getattr(self.model, verb)(*arguments)
        except OSError as problem:
            return problem
        return None

    @rule(path=PATHS, content=CONTENT)
    def write(self, path: str, content: bytes) -> None:
        with same_outcome(self.refused("put", path, content)):
            self.patiently("write", lambda: (self.root / path).write_bytes(content))

    @rule(path=PATHS, more=CONTENT)
    def append(self, path: str, more: bytes) -> None:
        try:
            self.model.put(path, self.model.file(path) + more)
        except OSError:
            return
        self.patiently("append", lambda: _append(self.root / path, more))

    @rule(path=PATHS, offset=st.integers(0, 70_000), patch=st.binary(min_size=1, max_size=20))
    def write_within(self, path: str, offset: int, patch: bytes) -> None:
        try:
            old = self.model.file(path)
        except OSError:
            return
        new = old.ljust(offset, b"\0")[:offset] + patch + old[offset + len(patch) :]
        self.model.put(path, new)
        self.patiently("write within", lambda: _patch(self.root / path, offset, patch))

    @rule(path=PATHS, size=st.sampled_from([0, 1, 10, 65_536, 70_000]))
    def truncate(self, path: str, size: int) -> None:
        try:
            self.model.put(path, self.model.file(path)[:size].ljust(size, b"\0"))
        except OSError:
            return
        self.patiently("truncate", lambda: os.truncate(self.root / path, size))

    @rule(path=PATHS)
    def read(self, path: str) -> None:
        with same_outcome(self.refused("file", path)):
            found = self.patiently("read", (self.root / path).read_bytes)
            assert found == self.model.file(path)

    @rule(path=PATHS)
    def mkdir(self, path: str) -> None:
        with same_outcome(self.refused("mkdir", path)):
            self.patiently("mkdir", (self.root / path).mkdir)

    @rule(path=PATHS)
    def rmdir(self, path: str) -> None:
        with same_outcome(self.refused("rmdir", path)):
            self.patiently("rmdir", (self.root / path).rmdir)

    @rule(path=PATHS)
    def unlink(self, path: str) -> None:
        with same_outcome(self.refused("unlink", path)):
            self.patiently("unlink", (self.root / path).unlink)

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        with same_outcome(self.refused("rename", old, new)):
            self.patiently("rename", lambda: (self.root / old).rename(self.root / new))

    @rule(path=PATHS, content=CONTENT)
    def save_by_rename(self, path: str, content: bytes) -> None:
        temporary = self.root / "temporary"
        temporary.write_bytes(content)
        problem = self.refused("put", path, content)
        with same_outcome(problem):
            self.patiently("save by rename", lambda: temporary.rename(self.root / path))
        if problem is not None:
            temporary.unlink()

    @rule()
    def wait_for_the_service(self) -> None:
        self.settle()
        self.compare_service()

    def settle(self) -> None:
        """Wait until no change is pending."""
        self.mounted.sync(self.root)

    @rule()
    def look(self) -> None:
        found = self.patiently("look", self.here)
        assert found == self.model.entries

    def here(self) -> dict[str, bytes | None]:
        """Return everything in the mount."""
        found: dict[str, bytes | None] = {}
        for folder, folders, files in os.walk(self.root, onerror=_raise):
            here = Path(folder).relative_to(self.root)
            found |= {str(here / name): None for name in folders}
            found |= {str(here / name): (Path(folder) / name).read_bytes() for name in files}
        return found

    def compare_service(self) -> None:
        assert self.mounted.zone.tree(self.name) == {
            f"{self.name}/{path}": content for path, content in self.model.entries.items()
        }

    def teardown(self) -> None:
        self.look()
        self.settle()
        self.compare_service()
        self.look()


def run(machine: type[Steps], mounted: Mounted, examples: int, steps: int) -> None:
    """Run random sequences of the state machine's rules on this mount."""

    class Here(machine):  # type: ignore[misc, valid-type]
        """Steps on this mount."""

        def __init__(self) -> None:
            super().__init__(mounted)

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=False,  # others each time
            deadline=None,
            database=None,
            # Shrinking would mean hundreds of runs against a real service.
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
