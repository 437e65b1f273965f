"""Pinned files stay on this machine, whatever happens to them on the service."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.deployment import COMMAND
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

BIG = world.SEED["big.bin"]
OFFLINE = ("offline", "reach", "refresh")


def state(path: Path) -> str:
    """Return the state as `getfattr` shows it, or nothing for a missing file."""
    done = subprocess.run(
        ["getfattr", "--only-values", "-n", "user.zonedrive.state", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


def downloads(mounted: Mounted) -> int:
    """Return the number of requests for content so far."""
    requests: dict[str, int] = mounted.deployment.stats()["requests"]
    return sum(count for route, count in requests.items() if "content" in route)


def pinned(mounted: Mounted) -> str:
    """Return the output of `zonedrive pin`."""
    return mounted.machine.done("pin")


def test_a_pinned_folder_is_completely_downloaded(mounted: Mounted) -> None:
    """The command reports the size, and afterwards everything can be read without the service."""
    mounted.allow(*OFFLINE)
    said = mounted.machine.done("pin", mounted.root / "docs")
    assert "docs: 3 files available offline" in said
    assert state(mounted.root / "docs/2026/q1.csv") == "cached"
    assert state(mounted.root / "big.bin") == "remote"
    assert f"{mounted.root.name}/docs" in pinned(mounted)
    with mounted.deployment.faulty(down=True):
        mounted.restart()
        for name in ("report.md", "2026/q1.csv", "Grüße aus Köln.txt"):
            path = f"docs/{name}"
            assert (mounted.root / path).read_bytes() == world.SEED[path]


def test_a_path_that_is_given_twice(mounted: Mounted) -> None:
    """The command reports it once, also in another spelling."""
    path = mounted.root / "notes.txt"
    said = mounted.machine.done("pin", path, f"{mounted.root}/docs/../notes.txt", path)
    assert said.count("1 file available offline") == 1
    mounted.machine.done("unpin", path, path)
    assert "notes.txt" not in pinned(mounted)


def test_a_pin_outlives_the_daemon(mounted: Mounted) -> None:
    """If the daemon is killed while it downloads, the next daemon continues."""
    with mounted.deployment.faulty(stall=300, path="content"):
        waiting = subprocess.Popen(
            [COMMAND, "pin", mounted.root / "big.bin"], env=mounted.machine.environment,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        eventually(lambda: "big.bin" in pinned(mounted))
        mounted.kill()
        assert waiting.wait(60) == 1
    mounted.mount()
    eventually(lambda: state(mounted.root / "big.bin") == "cached")


def test_ctrl_c_ends_the_waiting_only(mounted: Mounted) -> None:
    """The pin stays, and the daemon downloads the rest in the background."""
    mounted.deployment.fault(stall=300, path="content")
    waiting = subprocess.Popen(
        [COMMAND, "pin", mounted.root / "docs"], env=mounted.machine.environment,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: "docs" in pinned(mounted))
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == 130
    mounted.deployment.heal()
    eventually(lambda: state(mounted.root / "docs/report.md") == "cached")
    assert "docs" in pinned(mounted)


def test_changes_before_a_mount_are_fetched(mounted: Mounted) -> None:
    """New files, versions and folders are downloaded after a remount without an access to the
    folder."""
    mounted.machine.done("pin", mounted.root / "docs", mounted.root / "notes.txt")
    mounted.unmount()
    mounted.zone.write("docs/new.txt", b"new\n")
    mounted.zone.make_folder("docs/more")
    mounted.zone.write("docs/more/inside.txt", b"inside\n")
    mounted.zone.write("notes.txt", b"another version\n")
    before = downloads(mounted)
    mounted.mount()

    def here() -> bool:
        said = pinned(mounted)
        return bool(re.search(r"docs +5 +5 ", said) and re.search(r"notes.txt +1 +1 ", said))

    eventually(here)
    assert downloads(mounted) == before + 3


def test_a_folder_that_is_not_uploaded_can_be_pinned(mounted: Mounted) -> None:
    """A folder that is not uploaded yet can be pinned; the pin survives the upload and a rename."""
    (mounted.root / "mine").mkdir()
    (mounted.root / "mine/a.txt").write_bytes(b"mine\n")
    mounted.machine.done("pin", mounted.root / "mine")
    mounted.sync()
    (mounted.root / "mine").rename(mounted.root / "ours")
    mounted.sync()
    mounted.restart()
    assert f"{mounted.root.name}/ours" in pinned(mounted)
    assert state(mounted.root / "ours/a.txt") == "cached"


@pytest.mark.mount("cache_size=1000000")
def test_a_file_that_does_not_fit_is_named(mounted: Mounted) -> None:
    """One line names the file that does not fit, and all others are downloaded."""
    mounted.allow("no room left to cache")
    before = mounted.deployment.stats()["bytes_out"]
    ended = mounted.machine.run("pin", mounted.root)
    assert ended.returncode == 1
    assert "5 of 6 files available offline" in ended.stdout
    assert "big.bin: there is no room for it" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert state(mounted.root / "docs/2026/q1.csv") == "cached"
    assert mounted.deployment.stats()["bytes_out"] - before < len(BIG) / 2


def test_a_pin_is_stored_offline(mounted: Mounted) -> None:
    """Offline, the command says so and exits with 4; the pin is fulfilled once the service is
    back."""
    mounted.allow(*OFFLINE)
    list((mounted.root / "docs").iterdir())
    mounted.deployment.fault(down=True)

    def noticed() -> bool:
        list(mounted.root.iterdir())
        return str(mounted.status()["state"]) == "offline"

    eventually(noticed)
    ended = mounted.machine.run("pin", mounted.root / "docs/report.md", mounted.root / "big.bin")
    assert ended.returncode == 4
    assert "the rest is fetched when the service is back" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "0 of 1 file available offline" in ended.stdout
    assert mounted.machine.run("pin", mounted.root / "docs").returncode == 4
    ended = mounted.machine.run("pin")
    assert f"{mounted.root.name}/docs: the files of 1 folder are not known" in ended.stderr
    mounted.deployment.heal()
    eventually(lambda: state(mounted.root / "big.bin") == "cached")


def test_mistakes_are_one_line(mounted: Mounted, tmp_path: Path) -> None:
    """A path outside a mount, a missing path, and one that is not or not alone pinned give one
    line."""
    for arguments, reason in (
        (("pin", tmp_path), "is not in one of your zones; they are mounted at"),
        (("pin", mounted.root / "nowhere"), "does not exist"),
        (("unpin", mounted.root / "big.bin"), "it is not pinned"),
    ):
        ended = mounted.machine.run(*arguments)
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
        assert reason in ended.stderr
    mounted.machine.done("pin", mounted.root / "docs")
    ended = mounted.machine.run("unpin", mounted.root / "docs/report.md")
    assert ended.returncode == 1
    assert f"it is kept with {mounted.root.name}/docs; unpin that" in ended.stderr
    mounted.machine.done("unpin", mounted.root / "docs")
