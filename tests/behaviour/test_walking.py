"""Prefetching for programs that go through folders and small files, without useless requests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment
from tests.harness.machine import Mounted
from tests.harness.planting import Plant
from tests.harness.waiting import eventually

LONG = pytest.mark.mount("refresh=600")
FOLDERS, FILES = 40, 40
FIRST_WINDOW = 8  # files that are fetched ahead at first

# A program that reads nothing for some seconds is no longer expected to continue.  It waits for a
# prefetch of its file for some seconds, and then requests the file itself.
PATIENT = """
def first():
    from zonedrive.prefetch import files
    files.SOON_S = files.GONE_S = files.PATIENCE_S = 300.0
"""


def asked(deployment: Deployment, part: str) -> int:
    """Return the number of requests so far whose route contains `part`."""
    requests: dict[str, int] = deployment.stats()["requests"]
    return sum(count for route, count in requests.items() if part in route)


class Counted:
    """Number of requests since the creation of the object."""

    def __init__(self, deployment: Deployment, part: str) -> None:
        self._deployment, self._part = deployment, part
        self._before = asked(deployment, part)

    def __call__(self) -> int:
        return asked(self._deployment, self._part) - self._before


def reads(program: Path, path: Path) -> bool:
    """Return True if a program can read a file."""
    return subprocess.run([program, path], check=False).returncode == 0


def is_here(path: Path) -> bool:
    """Return True if the content is cached."""
    return os.getxattr(path, "user.zonedrive.state") == b"cached"


@pytest.fixture
def folders(deployment: Deployment, zone: str) -> list[str]:
    """Create many folders in the folder `many`, each with a subfolder and a file; return their
    names."""
    names = [f"f{number:02}" for number in range(FOLDERS)]
    deployment.tell({"plant": {"zone": zone, "name": "many", "folder": True}})
    for name in names:
        for order in (
            {"name": name, "parent": "many", "folder": True},
            {"name": "sub", "parent": f"many/{name}", "folder": True},
            {"name": "a.txt", "parent": f"many/{name}", "content": name},
        ):
            deployment.tell({"plant": {"zone": zone, **order}})
    return names


@pytest.fixture
def files(deployment: Deployment, zone: str) -> list[str]:
    """Create many small files in the folder `many`; return their names."""
    names = [f"{number:02}.txt" for number in range(FILES)]
    deployment.tell({"plant": {"zone": zone, "name": "many", "folder": True}})
    for name in names:
        deployment.plant(zone, name, f"this is {name}\n", parent="many")
    return names


@pytest.fixture
def patient(mounted: Mounted) -> Mounted:
    """Return a mount whose prefetching is the same if the machine stands still for a while."""
    mounted.unmount()
    Plant(mounted.machine, PATIENT)
    mounted.mount()
    return mounted


@LONG
def test_listing_one_folder_causes_one_listing(folders: list[str], mounted: Mounted) -> None:
    """`ls -l` of a folder does not list its subfolders."""
    os.listdir(mounted.root)
    listings = Counted(mounted.deployment, "/folder/")
    shown = subprocess.check_output(["ls", "-l", mounted.root / "many"], text=True)
    assert len(shown.splitlines()) == 1 + FOLDERS
    assert sorted(os.listdir(mounted.root / "many")) == folders
    assert listings() == 1


@LONG
def test_a_path_through_many_folders_is_no_walk(folders: list[str], mounted: Mounted) -> None:
    """Opening a deep file lists only the folders above it."""
    listings = Counted(mounted.deployment, "/folder/")
    assert (mounted.root / f"many/{folders[7]}/a.txt").read_text() == folders[7]
    assert listings() == 3


@LONG
@pytest.mark.parametrize("command", [["find", "."], ["ls", "-lR", "."]])
def test_a_walk_lists_each_folder_once(
    folders: list[str], mounted: Mounted, command: list[str]
) -> None:
    """A walk through everything sees all entries, and lists each folder once."""
    count = 1 + sum(content is None for content in mounted.zone.tree().values())
    listings = Counted(mounted.deployment, "/folder/")
    for _ in range(2):
        shown = subprocess.check_output(command, cwd=mounted.root, text=True)
        assert shown.count("sub") >= FOLDERS
        assert shown.count("a.txt") == FOLDERS
        assert listings() == count


@LONG
def test_a_walk_is_listed_ahead_until_it_stops(folders: list[str], mounted: Mounted) -> None:
    """After some folders the next ones are listed ahead, until the program stops."""
    os.listdir(mounted.root / "many")
    listings = Counted(mounted.deployment, "/folder/")
    used = 0
    while listings() <= used + 1:
        assert (mounted.root / "many" / folders[used] / "a.txt").exists()
        used += 1
    assert used < FOLDERS / 2
    eventually(lambda: not mounted.status()["uploads"], what="the daemon answers")
    assert listings() < FOLDERS


@LONG
def test_a_failure_ahead_is_no_failure(folders: list[str], mounted: Mounted) -> None:
    """A failed listing ahead is repeated when a program needs it."""
    mounted.allow("503", "refresh")
    os.listdir(mounted.root / "many")
    with mounted.deployment.faulty(
        status=503, error="NOT_AVAILABLE", method="GET", path="/folder/", times=3
    ):
        for name in folders:
            assert sorted(os.listdir(mounted.root / "many" / name)) == ["a.txt", "sub"]


@pytest.mark.mount("refresh=1")
def test_a_walk_shows_changes_since_the_last_one(folders: list[str], mounted: Mounted) -> None:
    """Prefetched listings are as fresh as others."""
    seen = subprocess.check_output(["find", mounted.root], text=True)
    assert "new.txt" not in seen
    for name in folders[::7]:
        mounted.zone.write(f"many/{name}/sub/new.txt", b"by bob\n")

    def shows() -> bool:
        found = subprocess.check_output(["find", mounted.root], text=True)
        return found.count("new.txt") == len(folders[::7])

    eventually(shows, what="all new files show")


@LONG
def test_small_files_are_fetched_ahead_once(files: list[str], patient: Mounted) -> None:
    """A program that reads files one after the other gets all of them, each with one request."""
    downloads = Counted(patient.deployment, "/content")
    used = 0
    while downloads() <= used + 1:
        name = files[used]
        assert (patient.root / "many" / name).read_text() == f"this is {name}\n"
        used += 1
    assert used < FILES / 2
    for name in files[used:]:
        assert (patient.root / "many" / name).read_text() == f"this is {name}\n"
    assert downloads() == FILES
    for name in files:
        assert (patient.root / "many" / name).read_text() == f"this is {name}\n"
    assert downloads() == FILES


@pytest.fixture
def tree(deployment: Deployment, zone: str) -> list[list[str]]:
    """Create small files; return their paths by folder."""
    found = []
    for folder in (f"t{number:02}" for number in range(FOLDERS)):
        deployment.tell({"plant": {"zone": zone, "name": folder, "folder": True}})
        found.append([f"{folder}/{number}.txt" for number in range(4)])
        for path in found[-1]:
            deployment.plant(zone, path[-5:], f"this is {path}\n", parent=folder)
    return found


def shows_order(root: Path, paths: list[str]) -> bool:
    """Return True if the first files in name order are not in the order of the listing."""
    folder = (root / paths[0]).parent
    listed = [name for name in os.listdir(folder) if name != Path(paths[-1]).name]
    return listed != sorted(listed)


@LONG
def test_reading_folder_after_folder_prefetches_the_next_ones(
    tree: list[list[str]], patient: Mounted
) -> None:
    """Reading folder after folder without listings, as git does, prefetches the next folders.

    All content is right, and each file is requested once.
    """
    first = next(number for number, paths in enumerate(tree) if shows_order(patient.root, paths))
    patient.unmount()  # forget that the folders were listed just now
    patient.mount()
    downloads = Counted(patient.deployment, "/content")

    def read(path: str) -> None:
        assert (patient.root / path).read_text() == f"this is {path}\n"

    for path in [*tree[first], tree[first + 1][0]]:
        read(path)
    eventually(lambda: downloads() == 4 + 1 + FIRST_WINDOW, what="the next two folders are here")
    assert all(is_here(patient.root / path) for path in tree[first + 1] + tree[first + 2])
    for path in tree[first + 1][1:]:
        read(path)
    for paths in tree[first + 2 :]:
        for path in paths:
            read(path)
    assert downloads() == 4 * (FOLDERS - first)


@LONG
def test_reading_one_folder_downloads_nothing_in_others(
    tree: list[list[str]], patient: Mounted
) -> None:
    """Reading one folder, or folders of which none follows another, downloads nothing in other
    folders."""
    names = [paths[0].partition("/")[0] for paths in tree]
    listed = [names.index(name) for name in os.listdir(patient.root) if name in names]
    read, used = [0], 0
    for number in (5, 3, 20, 9, 30):
        # In the order of the listing, too, none follows one that was read before.
        if listed.index(number) - 1 not in {listed.index(earlier) for earlier in read}:
            read.append(number)
    downloads = Counted(patient.deployment, "/content")
    for number in read:
        for path in tree[number]:
            assert (patient.root / path).read_text() == f"this is {path}\n"
            used += 1
    eventually(lambda: not patient.status()["uploads"], what="the daemon answers")
    came = downloads()
    here = {path for paths in tree for path in paths if is_here(patient.root / path)}
    assert here == {path for number in read for path in tree[number]}
    assert came == used


@LONG
def test_reading_a_listed_folder_prefetches_from_the_first_file(
    files: list[str], patient: Mounted
) -> None:
    """Files are prefetched during the first read after a listing, as `cat *` does."""
    names = sorted(os.listdir(patient.root / "many"))
    downloads = Counted(patient.deployment, "/content")
    script = 'cd "$0" && exec cat *'
    shown = subprocess.check_output(["sh", "-c", script, patient.root / "many"], text=True)
    assert shown == "".join(f"this is {name}\n" for name in names)
    assert downloads() == FILES


@LONG
def test_reading_one_or_two_files_prefetches_nothing(files: list[str], mounted: Mounted) -> None:
    """Reading one or two files, or files in no order, prefetches nothing."""
    listed = os.listdir(mounted.root / "many")
    downloads = Counted(mounted.deployment, "/content")
    # Against the listing, and every other one against the names: no three are in a row in either.
    middle = [name for name in reversed(listed) if name not in (listed[0], files[0])]
    pairs = zip(middle[::2], middle[1::2], strict=False)
    read = [name for pair in pairs for name in sorted(pair, reverse=True)][:10]
    for name in read:
        (mounted.root / "many" / name).read_bytes()
    assert downloads() == len(read)


@LONG
def test_a_guarded_program_has_nothing_fetched_ahead(
    files: list[str], patient: Mounted, tmp_path: Path
) -> None:
    """A guarded program may read prefetched files, but causes no prefetching."""
    downloads = Counted(patient.deployment, "/content")
    used = 0
    while downloads() <= used + 1:
        (patient.root / "many" / files[used]).read_bytes()
        used += 1
    program = tmp_path / "tumblerd"
    shutil.copy("/bin/cat", program)
    unread = [patient.root / "many" / name for name in files[used:]]

    def readable() -> list[Path]:
        return [path for path in unread if reads(program, path)]

    def here() -> int:
        """Return the number of prefetched files, once no download is running."""
        found = len(readable())
        return found if downloads() == used + found else 0

    # By name or as they are listed, where the first ones are in a row in both.
    assert eventually(here, what="it reads what is here") < len(unread)
    ahead = downloads()
    assert 0 < len(readable()) < len(unread)
    assert downloads() == ahead


@LONG
def test_a_file_fetched_ahead_is_the_present_version(files: list[str], mounted: Mounted) -> None:
    """If a coworker saves meanwhile, the new version is read, never the former one under its
    name."""
    assert os.listdir(mounted.root / "many")  # with the versions before
    mounted.zone.write(f"many/{files[20]}", b"a longer version by bob, saved meanwhile\n")
    for name in files[:20]:
        (mounted.root / "many" / name).read_bytes()

    def read() -> bytes:
        try:
            return (mounted.root / "many" / files[20]).read_bytes()
        except OSError as wrong:
            return str(wrong).encode()

    eventually(
        lambda: read() == b"a longer version by bob, saved meanwhile\n", what="bob's version"
    )
