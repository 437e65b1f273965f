"""Any sequence of operations: the mount and the service end up as a dict does."""

import contextlib
import errno
import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.harness.machine import Mounted

# Few names, so that operations meet; equal ones in several folders, so that moves do.
NAMES = st.sampled_from(["a", "b", "c.txt", "ü"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENT = st.binary(max_size=40) | st.binary(min_size=65_500, max_size=65_600)


class Model:
    """Folders are None, files are bytes, by path; raises what a file system raises."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes | None] = {}

    def parent(self, path: str) -> None:
        """The folder of `path` must be one."""
        parts = path.split("/")[:-1]
        for above in accumulate(parts, "{}/{}".format):
            if above not in self.entries:
                raise FileNotFoundError(errno.ENOENT, path)
            if self.entries[above] is not None:
                raise NotADirectoryError(errno.ENOTDIR, path)

    def file(self, path: str) -> bytes:
        self.parent(path)
        if path not in self.entries:
            raise FileNotFoundError(errno.ENOENT, path)
        content = self.entries[path]
        if content is None:
            raise IsADirectoryError(errno.EISDIR, path)
        return content

    def put(self, path: str, content: bytes) -> None:
        self.parent(path)
        if self.entries.get(path, b"") is None:
            raise IsADirectoryError(errno.EISDIR, path)
        self.entries[path] = content

    def below(self, path: str) -> list[str]:
        return [each for each in self.entries if each.startswith(path + "/")]

    def mkdir(self, path: str) -> None:
        self.parent(path)
        if path in self.entries:
            raise FileExistsError(errno.EEXIST, path)
        self.entries[path] = None

    def rmdir(self, path: str) -> None:
        self.parent(path)
        if path not in self.entries:
            raise FileNotFoundError(errno.ENOENT, path)
        if self.entries[path] is not None:
            raise NotADirectoryError(errno.ENOTDIR, path)
        if self.below(path):
            raise OSError(errno.ENOTEMPTY, path)
        del self.entries[path]

    def unlink(self, path: str) -> None:
        self.file(path)
        del self.entries[path]

    def rename(self, old: str, new: str) -> None:
        self.parent(old)
        self.parent(new)
        if old not in self.entries:
            raise FileNotFoundError(errno.ENOENT, old)
        if old == new:
            return
        if new.startswith(old + "/"):
            raise OSError(errno.EINVAL, new)
        if old.startswith(new + "/"):
            raise OSError(errno.ENOTEMPTY, new)
        if new in self.entries:
            if self.entries[old] is None:
                if self.entries[new] is not None:
                    raise NotADirectoryError(errno.ENOTDIR, new)
                if self.below(new):
                    raise OSError(errno.ENOTEMPTY, new)
            elif self.entries[new] is None:
                raise IsADirectoryError(errno.EISDIR, new)
        for path in [old, *self.below(old)]:
            self.entries[new + path[len(old) :]] = self.entries.pop(path)


@contextlib.contextmanager
def same_outcome(problem: OSError | None) -> Iterator[None]:
    """What the model refused, the mount refuses with the same errno."""
    try:
        yield
    except OSError as found:
        assert problem is not None, f"only the mount refuses: {found}"
        assert found.errno == problem.errno, f"{found} instead of {problem}"
    else:
        assert problem is None, f"only the model refuses: {problem}"


class Steps(RuleBasedStateMachine):
    """The operations, done to both."""

    number = 0

    def __init__(self, mounted: Mounted) -> None:
        super().__init__()
        Steps.number += 1
        self.mounted = mounted
        self.name = f"model-{Steps.number}"
        self.root = mounted.root / self.name
        self.root.mkdir()
        self.model = Model()

    def refused(self, verb: str, *arguments: object) -> OSError | None:
        try:
            getattr(self.model, verb)(*arguments)
        except OSError as problem:
            return problem
        return None

    @rule(path=PATHS, content=CONTENT)
    def write(self, path: str, content: bytes) -> None:
        with same_outcome(self.refused("put", path, content)):
            (self.root / path).write_bytes(content)

    @rule(path=PATHS, more=CONTENT)
    def append(self, path: str, more: bytes) -> None:
        try:
            self.model.put(path, self.model.file(path) + more)
        except OSError:
            return
        with (self.root / path).open("ab") as file:
            file.write(more)

    @rule(path=PATHS, offset=st.integers(0, 70_000), patch=st.binary(min_size=1, max_size=20))
    def write_within(self, path: str, offset: int, patch: bytes) -> None:
        try:
            old = self.model.file(path)
        except OSError:
            return
        new = old.ljust(offset, b"\0")[:offset] + patch + old[offset + len(patch) :]
        self.model.put(path, new)
        with (self.root / path).open("r+b") as file:
            file.seek(offset)
            file.write(patch)

    @rule(path=PATHS, size=st.sampled_from([0, 1, 10, 65_536, 70_000]))
    def truncate(self, path: str, size: int) -> None:
        try:
            self.model.put(path, self.model.file(path)[:size].ljust(size, b"\0"))
        except OSError:
            return
        os.truncate(self.root / path, size)

    @rule(path=PATHS)
    def read(self, path: str) -> None:
        with same_outcome(self.refused("file", path)):
            assert (self.root / path).read_bytes() == self.model.file(path)

    @rule(path=PATHS)
    def mkdir(self, path: str) -> None:
        with same_outcome(self.refused("mkdir", path)):
            (self.root / path).mkdir()

    @rule(path=PATHS)
    def rmdir(self, path: str) -> None:
        with same_outcome(self.refused("rmdir", path)):
            (self.root / path).rmdir()

    @rule(path=PATHS)
    def unlink(self, path: str) -> None:
        with same_outcome(self.refused("unlink", path)):
            (self.root / path).unlink()

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        with same_outcome(self.refused("rename", old, new)):
            (self.root / old).rename(self.root / new)

    @rule(path=PATHS, content=CONTENT)
    def save_by_rename(self, path: str, content: bytes) -> None:
        temporary = self.root / "temporary"
        temporary.write_bytes(content)
        problem = self.refused("put", path, content)
        with same_outcome(problem):
            temporary.rename(self.root / path)
        if problem is not None:
            temporary.unlink()

    @rule()
    def wait_for_the_service(self) -> None:
        self.mounted.sync(self.root)
        self.compare_service()

    @rule()
    def look(self) -> None:
        found: dict[str, bytes | None] = {}
        for folder, folders, files in os.walk(self.root):
            here = Path(folder).relative_to(self.root)
            found |= {str(here / name): None for name in folders}
            found |= {str(here / name): (Path(folder) / name).read_bytes() for name in files}
        assert found == self.model.entries

    def compare_service(self) -> None:
        assert self.mounted.zone.tree(self.name) == {
            f"{self.name}/{path}": content for path, content in self.model.entries.items()
        }

    def teardown(self) -> None:
        self.look()
        self.mounted.sync(self.root)
        self.compare_service()
        self.look()


@pytest.mark.timeout(300)
def test_any_sequence_of_operations_ends_as_it_should(mounted: Mounted) -> None:
    """Whatever programs do, in whatever order: the mount shows it, and the service gets it."""

    class Here(Steps):
        """The steps on this mount."""

        def __init__(self) -> None:
            super().__init__(mounted)

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=30,
            stateful_step_count=30,
            deadline=None,
            # Shrinking would mean hundreds of runs against a real service.
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
