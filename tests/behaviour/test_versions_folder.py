"""Former versions are files in the `.versions` folder next to their file."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.behaviour.semantics import outcome, table
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.fault_proxy import FaultProxy
from tests.harness.machine import Machine, Mounted, files_below
from tests.harness.waiting import eventually

FIRST = world.SEED["notes.txt"]
BIG = world.SEED["big.bin"]


def history(path: Path) -> Path:
    """Return the path of a file's versions."""
    return path.parent / ".versions" / path.name


def versions(path: Path) -> list[Path]:
    """Return the versions of a file, the oldest first."""
    return sorted(history(path).iterdir())


def attributes(path: Path) -> dict[str, str]:
    """Return the extended attributes of an entry."""
    return {
        name.removeprefix("user.zonedrive."): os.getxattr(path, name).decode()
        for name in os.listxattr(path)
    }


def requests(deployment: Deployment, route: str) -> int:
    """Return the number of requests of a route so far."""
    told: dict[str, int] = deployment.stats()["requests"]
    return sum(count for name, count in told.items() if route in name)


def test_every_version_is_a_file(mounted: Mounted) -> None:
    """Each version is a file, in order, with number, time, author and extension in its name.

    Size, time, bytes, mode and attributes are those of the version.
    """  # fmt: skip
    path = mounted.root / "notes.txt"
    mounted.zone.write("notes.txt", b"by bob\n")
    eventually(lambda: path.stat().st_size == 7, what="it shows here")
    path.write_bytes(b"by alice\n")
    mounted.sync()
    found = versions(path)
    assert [each.read_bytes() for each in found] == [FIRST, b"by bob\n", b"by alice\n"]
    told = json.loads(mounted.machine.done("versions", path, "--json"))[::-1]
    for number, (each, version) in enumerate(zip(found, told, strict=True), 1):
        moment = datetime.fromisoformat(version["modified"]).astimezone(UTC)
        author = str(version["modified_by"])
        assert each.name == f"{number:05}_{moment:%Y-%m-%dT%H-%M-%SZ}_{author}.txt"
        status = each.stat()
        assert (status.st_size, int(status.st_mtime)) == (version["size"], moment.timestamp())
        assert status.st_mode == 0o100600
        assert attributes(each) == attributes(path) | {
            "id": version["id"], "version": str(number), "modified_by": author, "state": "cached",
        }  # fmt: skip
    assert [each["modified_by"] for each in told[1:]] == ["bob@acme.example", "alice@acme.example"]
    of_the_file = attributes(path)
    assert of_the_file.pop("version") == "3"
    assert attributes(history(path)) == of_the_file
    assert attributes(history(path).parent).keys() == of_the_file.keys()


def test_the_command_tells_the_number_as_well(mounted: Mounted) -> None:
    """After a request for the history, the file's attributes show its version number."""
    path = mounted.root / "notes.txt"
    path.write_bytes(b"by alice\n")
    mounted.sync()
    with pytest.raises(OSError, match="No data"):
        os.getxattr(path, "user.zonedrive.version")
    mounted.machine.done("versions", path)
    assert os.getxattr(path, "user.zonedrive.version") == b"2"


@pytest.mark.mount("settle=60")
def test_the_newest_version_is_not_fetched_twice(mounted: Mounted) -> None:
    """The newest version is read from the file's cache, also after an edit that is not uploaded
    yet."""
    path = mounted.root / "big.bin"
    assert path.read_bytes() == BIG
    newest = versions(path)[-1]
    with path.open("ab") as file:
        file.write(b"more")
    with mounted.deployment.faulty(down=True):
        assert os.getxattr(newest, "user.zonedrive.state") == b"cached"
        assert newest.read_bytes() == BIG
    assert path.read_bytes() == BIG + b"more"


def test_walks_do_not_find_the_folder(mounted: Mounted, tmp_path: Path) -> None:
    """find, ls, du, cp, rsync and rm do not see the folder, and cause no requests."""
    root, target = mounted.root, tmp_path / "copy"
    assert (root / ".versions/notes.txt").is_dir()
    before = requests(mounted.deployment, "versions")
    commands: tuple[list[str | Path], ...] = (
        ["find", root], ["ls", "-laR", root], ["du", "-a", root], ["cp", "-a", root, target],
        ["rsync", "-a", "--itemize-changes", f"{root}/", tmp_path / "rsynced"],
    )  # fmt: skip
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ".versions" not in ended.stdout
    assert not list(tmp_path.rglob(".versions"))
    assert ".versions" not in {name for _, names, _ in os.walk(root) for name in names}
    (root / "docs/2026/.versions").stat()
    shutil.rmtree(root / "docs/2026")
    (root / "docs").rename(root / "papers")
    assert os.listdir(root / "papers/.versions") != []
    assert requests(mounted.deployment, "versions") == before


def _looked_for(path: Path) -> None:
    path.stat()


def _not_uploaded(root: Path) -> None:
    (root / "new.txt").touch()
    history(root / "new.txt").stat()


ROWS: Mapping[str, Callable[[Path, Path], object]] = {
    "list a folder, walk through it": lambda root, _: [each.stat() for each in root.rglob("*")],
    "list `.versions`": lambda root, _: os.listdir(root / ".versions"),
    "list the versions of a file": lambda _, old: os.listdir(old.parent),
    "read a version": lambda _, old: old.read_bytes(),
    "copy a version over the file": lambda root, old: shutil.copyfile(old, root / "notes.txt"),
    "look for the versions of a folder": lambda root, _: _looked_for(history(root / "docs")),
    "look for the versions of what is not uploaded yet": lambda root, _: _not_uploaded(root),
    "look for `.versions` next to the zones": lambda top, _: _looked_for(top.parent / ".versions"),
    "make a folder `.versions`": lambda root, _: (root / ".versions").mkdir(),
    "make a file there": lambda root, _: (root / ".versions/new").touch(),
    "make a folder there": lambda _, old: (old.parent / "new").mkdir(),
    "write into a version": lambda _, old: old.write_bytes(b"x"),
    "append to a version": lambda _, old: old.open("ab").close(),
    "truncate a version": lambda _, old: os.truncate(old, 1),
    "`chmod` a version": lambda _, old: old.chmod(0o600),
    "`touch` a version": lambda _, old: os.utime(old, (1, 1)),
    "set an attribute of a version": lambda _, old: os.setxattr(old, "user.mine", b"x"),
    "remove a version": lambda _, old: old.unlink(),
    "remove the versions of a file": lambda _, old: old.parent.rmdir(),
    "remove `.versions`": lambda root, _: (root / ".versions").rmdir(),
    "rename a version": lambda _, old: old.rename(old.parent / "new"),
    "move a version out": lambda root, old: old.rename(root / "out"),
    "move a file there": lambda root, old: (root / "empty").rename(old.parent / "empty"),
    "rename `.versions`": lambda root, _: (root / ".versions").rename(root / "other"),
}  # fmt: skip
"""Operation of each row of the page, in a zone, with a version of `notes.txt`."""


@pytest.mark.mount("settle=60")
def test_the_page_is_true(mounted: Mounted) -> None:
    """Each row of the page is true, and refused operations change nothing."""
    mounted.zone.write("notes.txt", b"by bob\n")
    path = mounted.root / "notes.txt"
    eventually(lambda: len(versions(path)) == 2, what="bob's version shows")
    old = versions(path)[0]
    ended = {
        name: outcome(lambda root, do=do: do(root, old), mounted.root)  # type: ignore[misc]
        for name, do in ROWS.items()
    }
    assert ended == {cells[0]: cells[2] for cells in table("Former versions")}
    assert list(ended) == [cells[0] for cells in table("Former versions")]
    assert not old.parent.stat().st_mode & 0o222  # for who is not root
    names = ["big.bin", "docs", "empty", "new.txt", "notes.txt"]
    assert sorted(os.listdir(mounted.root)) == names
    assert old.read_bytes() == FIRST
    mounted.sync()
    assert len(mounted.zone.versions("notes.txt")) == 3


@pytest.mark.mount("refresh=0.5", "settle=600")  # nothing is sent between the steps of a save
def test_the_history_follows_the_file(mounted: Mounted) -> None:
    """New versions, new names and removals are visible; a save by renaming keeps the history."""
    path, root = mounted.root / "notes.txt", mounted.root
    past = history(path)
    number = past.stat().st_ino
    mounted.zone.write("notes.txt", b"by bob\n")
    eventually(lambda: len(versions(path)) == 2, what="bob's version shows")
    assert path.read_bytes() == b"by bob\n"  # what the history shows, the folder does
    (root / "notes.tmp").write_bytes(b"by alice\n")
    assert not history(root / "notes.tmp").exists()  # the service has none of it
    (root / "notes.tmp").rename(path)
    mounted.sync()
    assert [each.read_bytes() for each in versions(path)] == [FIRST, b"by bob\n", b"by alice\n"]
    assert past.stat().st_ino == number
    with os.scandir(past) as within:
        first = next(iter(within)).inode()
    path.rename(root / "renamed.md")
    assert not past.exists()
    renamed = versions(root / "renamed.md")
    assert [each.suffix for each in renamed] == [".md"] * 3
    assert renamed[0].stat().st_ino == first
    mounted.sync()
    folder = os.open(history(root / "renamed.md"), os.O_PATH)
    try:
        mounted.zone.delete("renamed.md")
        eventually(lambda: "renamed.md" not in os.listdir(root / ".versions"))
        with pytest.raises(FileNotFoundError):
            os.listdir(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)
    (root / "new.txt").write_bytes(b"new\n")
    mounted.sync()
    assert [each.read_bytes() for each in versions(root / "new.txt")] == [b"new\n"]


def test_offline_and_after_a_restart(mounted: Mounted) -> None:
    """Read versions stay available, encrypted, under the same number; others give the reason."""
    path = mounted.root / "notes.txt"
    mounted.zone.write("notes.txt", b"bob's second\n")
    mounted.zone.write("notes.txt", b"bob's third\n")
    eventually(lambda: len(versions(path)) == 3)
    first, second, _ = versions(path)
    number = first.stat().st_ino
    assert first.read_bytes() == FIRST
    with mounted.deployment.faulty(down=True):
        eventually(lambda: os.listdir(mounted.path) and mounted.status()["state"] == "offline")
        assert [each.name for each in versions(path)][:2] == [first.name, second.name]
        assert first.read_bytes() == FIRST
        with pytest.raises(OSError, match="Network is unreachable"):
            second.read_bytes()
        with pytest.raises(OSError, match="Network is unreachable"):
            os.listdir(history(mounted.root / "empty"))
    eventually(lambda: mounted.status()["state"] == "online")
    mounted.restart()
    before = requests(mounted.deployment, "/content")
    assert first.stat().st_ino == number
    assert os.getxattr(first, "user.zonedrive.state") == b"cached"
    assert os.getxattr(second, "user.zonedrive.state") == b"remote"
    assert first.read_bytes() == FIRST
    assert requests(mounted.deployment, "/content") == before
    assert not [path for path, data in files_below(mounted.machine.cache) if FIRST in data]


@pytest.fixture
def thumbnailer(tmp_path: Path) -> Path:
    """Return a program of the default `guard`."""
    return Path(shutil.copy("/bin/cat", tmp_path / "tumblerd"))


def test_a_part_of_a_large_version(mounted: Mounted, thumbnailer: Path) -> None:
    """A part of a version is read by range requests; guarded programs cause no download."""
    path = mounted.root / "big.bin"
    mounted.zone.write("big.bin", b"small by now\n")
    eventually(lambda: path.stat().st_size == 13)
    old = versions(path)[0]
    before = mounted.deployment.stats()["bytes_out"]
    assert subprocess.run([thumbnailer, old], capture_output=True, check=False).returncode == 1
    with old.open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4096, 2_000_000) == BIG[2_000_000:2_004_096]
    assert mounted.deployment.stats()["bytes_out"] - before < len(BIG) // 2
    assert old.read_bytes() == BIG
    shown = subprocess.run([thumbnailer, old], capture_output=True, check=True)
    assert shown.stdout == BIG


@pytest.mark.mount("refresh=0.5")
def test_names_in_use_and_similar_names(mounted: Mounted) -> None:
    """Real entries with that name come first, similar names have their own histories.

    A refusal of the service is a refusal here.
    """
    root, zone = mounted.root, mounted.root.name
    with pytest.raises(FileExistsError):
        (root / ".versions").mkdir()
    mounted.deployment.plant(zone, "either/or.txt", "both")
    shown = root / "either\uff0for.txt"
    eventually(shown.exists)
    assert [each.read_bytes() for each in versions(shown)] == [b"both"]
    assert not (root / ".versions/docs").exists()
    assert not (root / ".versions/no such file").exists()
    assert not (mounted.path / ".versions").exists()
    refusing = mounted.deployment.faulty(status=403, error="NOT_ALLOWED", path="/versions$")
    with refusing, pytest.raises(PermissionError):
        os.listdir(history(root / "empty"))
    mounted.deployment.plant(zone, ".versions", "a file that somebody made")
    eventually((root / ".versions").is_file)
    assert (root / ".versions").read_text() == "a file that somebody made"
    assert ".versions" in os.listdir(root)
    (root / ".versions").unlink()
    assert [each.read_bytes() for each in versions(root / "notes.txt")] == [FIRST]


@pytest.mark.mount(profile="published")
def test_a_profile_without_versions(mounted: Mounted) -> None:
    """The folder does not exist, and its name is an ordinary one."""
    path = mounted.root / ".versions"
    assert not path.exists()
    path.write_bytes(b"a list of versions\n")
    mounted.sync()
    assert mounted.zone.read(".versions") == b"a list of versions\n"
    assert os.listdir(mounted.root).count(".versions") == 1


class Told:
    """Altered data about the versions of `notes.txt` from the service."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.versions: list[dict[str, object]] = []
        proxy.about = lambda asked: asked.path.endswith("/versions")
        proxy.alter = lambda answer: answer.say(self.versions)

    def say(self, count: int, **fields: Callable[[int], object]) -> None:
        """Send this number of versions, the newest first, with their own fields."""
        told = {
            "version": lambda n: n,
            "id": lambda n: f"id-{n}",
            "size": lambda n: len(FIRST),
            "lastModified": lambda n: f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z",
            "lastModifiedBy": lambda n: "bob@acme.example",
            **fields,
        }
        numbers = range(count, 0, -1)
        self.versions = [{key: of(number) for key, of in told.items()} for number in numbers]


def test_histories_of_other_services(
    proxy: FaultProxy, machine: Machine, deployment: Deployment, zone: str
) -> None:
    """Unusual histories are shown correctly, and only an empty one as empty.

    Cases are a thousand versions, duplicate numbers, no versions, no sizes.
    """
    told = Told(proxy)
    machine.log_on(proxy, profile="sandbox")
    mounted = Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.5"])
    path = mounted.root / "notes.txt"
    try:
        mounted.mount()
        told.say(1000)
        with os.scandir(history(path)) as found:
            sizes = {each.name: each.stat().st_size for each in found}
        assert [name[:6] for name in sorted(sizes)] == [f"{n:05}_" for n in range(1, 1001)]
        assert set(sizes.values()) == {len(FIRST)}
        first = history(path) / min(sizes)
        assert first.read_bytes() == FIRST  # the first that the service has is the same
        told.say(3, version=lambda n: 1)
        eventually(lambda: len(versions(path)) == 3)
        assert len({each.stat().st_ino for each in versions(path)}) == 3
        told.say(2, version=lambda n: None, lastModified=lambda n: f"2026-01-0{3 - n}T00:00:00Z")
        eventually(lambda: len(versions(path)) == 2)
        assert [each.name[:11] for each in versions(path)] == ["2026-01-01T", "2026-01-02T"]
        told.say(1, size=lambda n: None)
        eventually(lambda: len(versions(path)) == 1)
        with pytest.raises(OSError, match="Input/output error"):
            versions(path)[0].read_bytes()
        assert ["does not report their sizes" in each for each in mounted.complaints()] == [True]
    finally:
        mounted.tear_down()
