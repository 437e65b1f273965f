"""Uploads as users see them: their progress, the reason why they wait, and the remedy."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.harness.deployment import COMMAND
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

BIG = os.urandom(6_000_000)


def upload(mounted: Mounted, name: str) -> dict[str, object]:
    """Return the upload of one file in `status --json`."""
    found = {each["path"].rpartition("/")[2]: each for each in mounted.status()["uploads"]}
    return dict(found.get(name, {}))


@pytest.mark.mount("upload_limit=150000", "connections=2")
def test_a_small_file_passes_a_big_one_and_progress_is_shown(mounted: Mounted) -> None:
    """A small file is uploaded before a big one, whose progress is reported.

    The big one would take most of a minute, so that it cannot be finished before the check on any
    machine. The next mount has no limit.
    """
    (mounted.root / "film.bin").write_bytes(BIG)
    eventually(lambda: upload(mounted, "film.bin").get("sent"), what="it is on its way")
    (mounted.root / "note.txt").write_bytes(b"now\n")
    seen: list[object] = []

    def there() -> bool:
        state = upload(mounted, "film.bin")
        assert state, "the film was faster"
        seen.append(state["sent"])
        return mounted.zone.find("note.txt") is not None

    eventually(there, what="the note is on the service")
    eventually(lambda: upload(mounted, "film.bin").get("sent", 0) != seen[0], what="it goes on")
    assert mounted.zone.find("film.bin") is None
    mounted.unmount("--now")
    mounted.mount("upload_limit=0")
    mounted.sync()
    assert mounted.zone.read("film.bin") == BIG


@pytest.mark.mount("upload_limit=4096")
def test_progress_of_a_limited_upload(mounted: Mounted) -> None:
    """In its first seconds, an upload of most of a minute is not reported as completely sent."""
    (mounted.root / "slow.bin").write_bytes(BIG[:200_000])

    def going() -> dict[str, object]:
        now = upload(mounted, "slow.bin")
        return now if now.get("sent") else {}

    state = eventually(going, what="it is on its way")
    assert state["state"] == "uploading"
    assert state["sent"] != state["size"]
    mounted.unmount("--now")
    mounted.mount("upload_limit=0")
    mounted.sync()
    assert mounted.zone.read("slow.bin") == BIG[:200_000]


@pytest.mark.mount("upload_limit=150000")
def test_a_change_during_an_upload_restarts_it(mounted: Mounted) -> None:
    """If a file is saved during its upload, the upload is cancelled, and one version arrives."""
    path = mounted.root / "notes.txt"
    path.write_bytes(BIG)
    eventually(lambda: upload(mounted, "notes.txt").get("sent"), what="it is on its way")
    path.write_bytes(b"changed my mind\n")
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"changed my mind\n"
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert mounted.status()["outbox"]["conflicts"] == 0


@pytest.mark.mount("settle=600")
def test_sync_does_not_wait_for_the_settle_time(mounted: Mounted) -> None:
    """`sync` does not wait for the settle time of files that are or become closed.

    The kernel reports the last close some time after it, so that the order of the two is not known.
    """
    answers = mounted.answers(command="sync", timeout=60)
    with (mounted.root / "new.txt").open("xb") as file:
        file.write(b"mine\n")
        os.fsync(file.fileno())
        assert next(answers)["left"]["files"] == 1  # it has begun
    *_, last = answers
    assert last["exit"] == 0
    assert mounted.zone.read("new.txt") == b"mine\n"


@pytest.mark.mount("settle=0")
def test_an_open_file_is_not_called_safe(mounted: Mounted) -> None:
    """`status` counts an open file and names the reason; `sync` waits for its close."""
    path = mounted.root / "new.txt"
    with path.open("xb", buffering=0) as file:
        file.write(b"mine\n")
        first = mounted.machine.done("status", path).splitlines()[0]
        assert first == "1 file (5 bytes) is only on this machine"
        assert "open for writing" in str(upload(mounted, "new.txt")["error"])
        ended = mounted.machine.run("sync", path, "--timeout", "0")
        assert ended.returncode == 1 and "open for writing" in ended.stderr
        answers = mounted.answers(command="sync", timeout=60)
        assert next(answers)["left"]["files"] == 1
    *_, last = answers
    assert last["exit"] == 0
    assert mounted.zone.read("new.txt") == b"mine\n"
    with path.open("r+b") as file, (mounted.root / "y.swp").open("xb") as swap:
        swap.write(b"never leaves\n")
        swap.flush()
        mounted.sync()  # opened, and nothing written
        file.truncate(1)
        with (mounted.root / "gone.txt").open("xb", buffering=0) as gone:  # never sent
            gone.write(b"x")
            (mounted.root / "gone.txt").unlink()
            assert set(left(mounted)) == {"new.txt"}


def test_sync_names_the_program_it_waits_for(mounted: Mounted) -> None:
    """`sync` names the program and the file once, and continues after the file is closed."""
    path = mounted.root / "letter.txt"
    with path.open("xb", buffering=0) as file:
        file.write(b"Dear Sir\n")
        sync = subprocess.Popen(
            [COMMAND, "sync"], env=mounted.machine.environment, cwd=mounted.machine.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert sync.stderr is not None
        said = sync.stderr.readline()
    name = Path("/proc/self/comm").read_text().strip()
    assert said == f"zonedrive: waiting for {name} ({os.getpid()}) to close {path}\n"
    assert sync.communicate(timeout=60) == ("", "")
    assert sync.returncode == 0
    assert mounted.zone.read("letter.txt") == b"Dear Sir\n"


def left(mounted: Mounted) -> list[str]:
    """Return the names that are reported as not uploaded, once the removals are."""
    eventually(lambda: not upload(mounted, "gone.txt"), what="the removal is told")
    return [each["path"].rpartition("/")[2] for each in mounted.status()["uploads"]]


REFUSALS = {
    403: ("NOT_ALLOWED", "your rights", "manager"),
    400: ("ILLEGAL_NAME", "rejects the request", "rename"),
    423: ("LOCKED", "lock", "released"),
}


def test_a_refusal_does_not_stop_other_files(mounted: Mounted) -> None:
    """`status` and `sync` name cause and remedy; other files arrive, and the file once the cause
    is gone."""
    mounted.allow("refused")
    folder = mounted.zone.entry_id("docs")
    where = f"^/api/zones/[^/]+/files/{re.escape(folder)}$"
    for status, (code, cause, remedy) in REFUSALS.items():
        mine, arrives = f"mine, {status}\n".encode(), f"arrives, {status}\n".encode()
        with mounted.deployment.faulty(status=status, error=code, method="POST", path=where):
            (mounted.root / "docs/report.md").write_bytes(mine)
            (mounted.root / "other.txt").write_bytes(arrives)
            ended = mounted.machine.run("sync", "--timeout", "20")
            assert ended.returncode == 1, status
            (line,) = ended.stderr.splitlines()
            shown = mounted.machine.done("status")
            for text in (line, shown):
                assert "docs/report.md" in text
                assert cause in text
                assert remedy in text
            assert mounted.zone.read("other.txt") == arrives
            assert (mounted.root / "docs/report.md").read_bytes() == mine
        if status == 403:
            eventually(
                lambda mine=mine: mounted.zone.read("docs/report.md") == mine,  # type: ignore[misc]
                what="it goes by itself",
            )


def test_a_busy_service_gets_every_file_once(mounted: Mounted) -> None:
    """An overload rejection costs one attempt; no file is lost, sent twice or reported as
    offline."""
    mounted.allow("too much to do")
    names = [f"{number}.txt" for number in range(40)]
    for status in (429, 503):
        mounted.deployment.fault(
            status=status, error="NOT_AVAILABLE", method="POST", path="/files/", times=20
        )
        before = uploads(mounted)
        for name in names:
            (mounted.root / name).write_bytes(f"{status} {name}".encode())
        mounted.sync(seconds=120)
        assert uploads(mounted) - before == 60
        for name in names:
            assert mounted.zone.read(name) == f"{status} {name}".encode()
    assert [len(mounted.zone.versions(name)) for name in names] == [2] * 40
    assert mounted.status()["outbox"]["conflicts"] == 0
    assert "the service is offline" not in mounted.log()


def uploads(mounted: Mounted) -> int:
    """Return the number of upload requests that reached the service."""
    requests = mounted.deployment.stats()["requests"]
    return sum(n for route, n in requests.items() if re.match(r"POST .*/files/", route))


@pytest.mark.parametrize(
    ("status", "code", "what", "seconds"), [(507, 1, "a.txt", "60"), (503, 4, "1 file", "3")]
)
def test_sync_reports_the_cause_of_failures(
    mounted: Mounted, status: int, code: int, what: str, seconds: str
) -> None:
    """`sync` reports not only the failed file or the number of pending files, but the cause."""
    mounted.allow("offline", "refused by the service")
    assert os.listdir(mounted.root)
    with mounted.deployment.faulty(status=status, path="^/api/"):
        (mounted.root / "a.txt").write_bytes(b"a\n")
        if code == 4:
            eventually(lambda: mounted.status()["state"] == "offline", what="it notices")
        ended = mounted.machine.run("sync", "--timeout", seconds)
    assert ended.returncode == code
    (line,) = ended.stderr.splitlines()
    assert what in line
    assert f"HTTP {status}" in line


@pytest.mark.mount("refresh=60")
@pytest.mark.parametrize("size", [5, 3_000_000], ids=["small", "big"])
def test_sync_reports_a_service_that_does_not_answer(mounted: Mounted, size: int) -> None:
    """`sync` exits with 4 within its timeout, even before the service is known to be
    unreachable."""
    mounted.allow(r"WARNING (?![^\n]*\n.)")
    assert os.listdir(mounted.root)
    with mounted.deployment.faulty(stall=300):
        (mounted.root / "new.bin").write_bytes(b"x" * size)
        eventually(lambda: mounted.status()["outbox"]["uploading"], what="it is asked")
        mounted.machine.run("sync", "--timeout", "1")  # what the connection takes has moved by then
        ended = mounted.machine.run("sync", "--timeout", "2")
    assert (ended.returncode, ended.stderr.count("\n")) == (4, 1), ended.stderr
    mounted.sync()
    assert mounted.zone.read("new.bin") == b"x" * size


@pytest.mark.mount("refresh=600")
def test_pending_changes_have_a_path_and_a_kind(mounted: Mounted) -> None:
    """A pending conflict copy is reported as one, and a removed file with its former path."""
    mounted.allow("a conflict copy")
    assert (mounted.root / "notes.txt").read_bytes()
    assert (mounted.root / "docs/report.md").exists()
    mounted.zone.write("notes.txt", b"by bob\n")
    with mounted.deployment.faulty(
        status=500, path="^/api/(zones/[^/]+/files|sandbox)/", method="POST"
    ):
        mounted.deployment.fault(status=500, method="DELETE")
        (mounted.root / "notes.txt").write_bytes(b"mine\n")
        (mounted.root / "docs/report.md").unlink()

        def told() -> bool:
            found = {str(each["path"]): each["state"] for each in mounted.status()["uploads"]}
            (copy,) = (path for path in found if "(conflict, " in path)
            assert found[f"{mounted.root.name}/docs/report.md"] in ("pending", "uploading")
            return bool(found[copy] == "conflict")

        def later() -> bool:
            try:
                return told()
            except (KeyError, ValueError):
                return False

        eventually(later, what="both wait")
    mounted.sync()
    assert mounted.status()["uploads"] == []


def test_changes_without_bytes_are_not_counted_as_files(mounted: Mounted) -> None:
    """A local-only file is not confused with a folder, a rename or a removal.

    Each has its path, also in a folder that was removed with it.
    """
    os.listdir(mounted.root / "docs/2026")
    with mounted.deployment.faulty(down=True):
        (mounted.root / "new").mkdir()
        (mounted.root / "notes.txt").rename(mounted.root / "moved.txt")
        shutil.rmtree(mounted.root / "docs")
        names_only = mounted.machine.done("status")
        (mounted.root / "new/made.txt").write_bytes(b"made\n")
        said = mounted.machine.done("status")
    first, then = names_only.splitlines()[0], said.splitlines()[0]
    assert re.fullmatch(r"\d changes \(new folders, renames, removals\) are only .*", first)
    assert re.fullmatch(r"1 file \(5 bytes\) and \d changes \(.*\) are only on this machine", then)
    kinds = {
        "new/made.txt": "pending +5 bytes",
        "new": "pending, new folder",
        "moved.txt": "pending, renamed",
        "docs/2026/q1.csv": "pending, removed",
    }
    for name, kind in kinds.items():
        assert re.search(rf"^ *{mounted.root.name}/{name} +{kind}", said, re.MULTILINE), said
    mounted.sync()


def test_many_refusals_are_a_few_lines(mounted: Mounted) -> None:
    """Twenty refused files give only a few lines."""
    mounted.allow("refused")
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        for number in range(20):
            (mounted.root / f"{number}.txt").write_bytes(b"x")
        ended = mounted.machine.run("sync", "--timeout", "20")
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    assert 2 <= len(lines) <= 10
    assert "more" in lines[-1]


def test_names_cannot_steer_the_terminal(mounted: Mounted) -> None:
    """No command prints control characters or direction overrides in names."""
    mounted.allow("refused")
    evil = "a\x1b[2Jb\u202egpj.exe"
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        (mounted.root / evil).write_bytes(b"x")
        synced = mounted.machine.run("sync", "--timeout", "20")
        told = [synced.stderr, mounted.machine.done("status")]
    mounted.sync()
    told.append(mounted.machine.run("versions", mounted.root / "nothing" / evil).stderr)
    mounted.zone.delete("a\u241b[2Jb\u2039RLO\u203agpj.exe")
    told.append(mounted.machine.done("trash", "--zone", mounted.root.name))
    for text in told:
        assert "gpj.exe" in text
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_work_continues_after_a_suspend(mounted: Mounted) -> None:
    """After a suspend all connections are dead; reads and uploads still work."""
    paths = [path for path in mounted.root.rglob("*") if path.is_file()]
    assert paths
    pid = mounted.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        mounted.deployment.stop()
        mounted.deployment.start()
    finally:
        os.kill(pid, signal.SIGCONT)
    begin = time.monotonic()
    assert (mounted.root / "big.bin").read_bytes()
    (mounted.root / "after.txt").write_bytes(b"awake\n")
    mounted.sync()
    assert time.monotonic() - begin < 60
    assert mounted.zone.read("after.txt") == b"awake\n"


def tried_in_vain(mounted: Mounted) -> None:
    """Change the database as if every upload had failed for a week; only while unmounted."""
    later = time.time_ns() + 300 * 1_000_000_000
    with closing(sqlite3.connect(mounted.machine.state / "tree.db")) as database, database:
        database.execute("UPDATE intents SET attempts = 9000, due_ns = ?", (later,))


def test_after_a_week_offline_everything_is_sent(mounted: Mounted) -> None:
    """Despite many failed attempts and a distant next one, files are sent within seconds once
    online."""
    mounted.allow("offline")
    assert os.listdir(mounted.root)
    with mounted.deployment.faulty(down=True):
        (mounted.root / "notes.txt").write_bytes(b"from the journey\n")
        (mounted.root / "new").mkdir()
        (mounted.root / "new/deep.txt").write_bytes(b"deep\n")
        eventually(lambda: mounted.status()["state"] == "offline", what="it notices")
        assert "are sent when it is back" in mounted.machine.done("status")
        mounted.unmount("--now")
        tried_in_vain(mounted)
        mounted.mount()
        eventually(lambda: mounted.status()["state"] == "offline", what="it notices again")
        assert (mounted.root / "notes.txt").read_bytes() == b"from the journey\n"
    eventually(lambda: mounted.status()["outbox"]["bytes"] == 0, what="all has been sent")
    mounted.sync()
    assert mounted.zone.read("new/deep.txt") == b"deep\n"
    assert len(mounted.zone.versions("notes.txt")) == 2
