"""If a daemon hangs or is unreachable, every command ends, and the remedy that it names works."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.harness.deployment import COMMAND
from tests.harness.machine import Machine, Mounted, has_ended
from tests.harness.terminal import CONTROLS, Terminal
from tests.harness.waiting import eventually

HUNG = "the daemon of account default does not answer"


def test_each_command_ends_with_a_remedy(mounted: Mounted) -> None:
    """Commands with paths in the mount end, too; saved files stay pending, are counted, and are
    sent later."""
    mounted.allow("offline", "reach", "upload")
    assert (mounted.root / "notes.txt").exists()
    with mounted.deployment.faulty(down=True):
        (mounted.root / "kept.txt").write_bytes(b"saved\n")
        os.kill(mounted.pid, signal.SIGSTOP)
        asked = ["status", "status --json", f"status '{mounted.root}'", "sync --timeout 1", "sync",
                 "zones", "conflicts", f"pin '{mounted.root}'", "logoff",
                 f"versions '{mounted.root}/notes.txt'"]  # fmt: skip
        running = [
            subprocess.Popen(
                [COMMAND, *shlex.split(each)], env=mounted.machine.environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            )
            for each in asked
        ]  # fmt: skip
        for words, process in zip(asked, running, strict=True):
            shown, said = process.communicate(timeout=60)
            assert (process.returncode, shown) == (1, ""), (words, said)
            assert said.startswith(f"zonedrive: {HUNG}") and said.count("\n") == 1, (words, said)
            if words.startswith("status"):
                assert "1 file (6 bytes) not on the service yet" in said
        remedies = re.findall("'zonedrive (.*?)'", said)
        assert [each.split()[0] for each in remedies] == ["unmount", "mount"]
        for each in remedies:
            mounted.machine.done(*shlex.split(each))
    mounted.sync()
    assert mounted.zone.read("kept.txt") == b"saved\n"


def view(watching: Terminal, wanted: Callable[[str], bool]) -> str:
    """Return the first screen that satisfies the condition."""
    while True:
        for each in watching.shown.split("\x1b[H")[1:]:
            if wanted(text := CONTROLS.sub("", each)):
                return text
        assert watching.until_more(), watching.shown


def test_status_watch_reports_a_hanging_daemon(mounted: Mounted) -> None:
    """`status --watch` shows since when the state is unknown, and recovers with the daemon."""
    watching = Terminal(mounted.machine, "status", "--watch", size=(100, 30))
    watching.until("everything is on the service")
    os.kill(mounted.pid, signal.SIGSTOP)
    try:
        hung = view(watching, lambda text: "before that:" in text)
        lines = hung.rpartition("since ")[2]
        assert re.match(r"[-0-9]+ [:0-9]+ it is not known what is on the service", lines)
        assert "unmount --now" in lines.partition("before that:")[0].replace("\n", "")
    finally:
        os.kill(mounted.pid, signal.SIGCONT)
    watching.shown = ""
    known = "everything is on the service"
    view(watching, lambda text: known in text and "not known" not in text)
    assert watching.interrupt() == 130
    assert watching.is_as_before()


def test_a_socket_whose_folder_was_removed_is_created_again(mounted: Mounted) -> None:
    """The daemon creates the socket again when its folder was removed at the end of a desktop
    session. Commands also find the socket with another XDG_RUNTIME_DIR."""
    folder = mounted.machine.folders["RUNTIME_DIR"]
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    assert mounted.status()["mountpoint"] == str(mounted.path)
    mounted.sync()
    shutil.rmtree(folder)
    elsewhere = mounted.machine.folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    mounted.machine.environment["XDG_RUNTIME_DIR"] = str(elsewhere)
    assert mounted.status()["mountpoint"] == str(mounted.path)
    mounted.unmount()
    assert not mounted.is_mounted()


def test_an_unmount_ends_a_killed_daemon_that_waits_for_a_program(mounted: Mounted) -> None:
    """A thread of the daemon waits for a rename in the same folder, which waits for the daemon.
    `unmount --now` ends both, and the next mount works."""
    mounted.allow("broke", "download", "fetch", "ended normally", "died")
    zone, pid = mounted.zone, mounted.pid
    zone.write("read.bin", b"old\n" * (4 << 20))  # of which the open fetches the beginning
    zone.write("edited.txt", b"old\n")
    new, read, edited = (mounted.root / each for each in ("new.txt", "read.bin", "edited.txt"))
    eventually(lambda: edited.read_bytes() and read.stat())
    new.write_bytes(b"new\n")
    mounted.sync()
    mounted.machine.done("pause")
    with edited.open("ab") as file:
        file.write(b"edit\n")
    zone.move("edited.txt", "moved.txt")
    reader = os.open(read, os.O_RDONLY)
    with mounted.deployment.faulty(stall=300, path="content"):
        before = mounted.deployment.downloads()
        renaming = subprocess.Popen(["mv", new, read], stderr=subprocess.DEVNULL)
        eventually(lambda: mounted.deployment.downloads() > before, what="the rename waits")
        mounted.machine.done("resume")
        threads = Path(f"/proc/{pid}/task")
        eventually(lambda: any(") D " in (t / "stat").read_text() for t in threads.iterdir()))
        os.kill(pid, signal.SIGKILL)
        mounted.unmount("--now")
        assert renaming.wait(60) == 1
    with suppress(OSError):  # ENOTCONN
        os.close(reader)
    assert has_ended(pid)
    mounted.mount()
    mounted.sync()
    assert zone.read("moved.txt") == b"old\nedit\n"


def test_an_unmount_does_not_wait_for_an_upload_that_hangs(mounted: Mounted) -> None:
    """`unmount` ends in the middle of an upload; the next mount sends the file once."""
    mounted.allow("broke", "upload")
    data = b"\xaa" * 3_000_000
    with mounted.deployment.faulty(stall=300, method="POST", path="^/api/zones/"):
        (mounted.root / "sent.bin").write_bytes(data)
        eventually(lambda: mounted.status()["outbox"]["uploading"])
        waiting = Terminal(
            mounted.machine, "unmount", str(mounted.path), "--timeout", "600", size=(200, 24)
        )
        waiting.until("waiting for 1 file")
        os.kill(mounted.pid, signal.SIGSTOP)
        assert waiting.leave() == 0
        assert HUNG in waiting.text()
        assert not mounted.is_mounted()
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("sent.bin") == data
    assert len(mounted.zone.versions("sent.bin")) == 1


def test_a_mount_in_use_by_a_container_can_be_ended(mounted: Mounted) -> None:
    """`status` reports no mount, `unmount` ends the daemon, and the next mount works."""
    apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 300"]
    container = subprocess.Popen(apart, stdout=subprocess.PIPE)
    try:
        assert container.stdout is not None and container.stdout.readline()
        # Busy while a file manager of another test looks for a trash in each new mount.
        detach = ["fusermount3", "-u", str(mounted.path)]
        eventually(lambda: subprocess.run(detach, check=False).returncode == 0)
        found = mounted.status()
        assert (found["mountpoint"], found["pid"]) == (None, mounted.pid)
        shown = mounted.machine.done("status")
        assert "not mounted" in shown
        assert f"run 'zonedrive unmount {mounted.path}' to end that" in shown
        mounted.unmount()
        assert json.loads(mounted.machine.done("status", "--json"))["pid"] is None
        mounted.mount()
        assert (mounted.root / "notes.txt").read_bytes()
    finally:
        container.kill()
        container.communicate()


def test_commands_in_an_unmounted_folder(mounted: Mounted) -> None:
    """All commands work in such a shell; for a relative path they report the problem and a
    remedy."""
    run = f"cd '{mounted.root}' || exit; exec 2>&1\n"
    run += f"'{COMMAND}' unmount --timeout 0 '{mounted.path}'\n"
    run += f"'{COMMAND}' status && '{COMMAND}' status --json && '{COMMAND}' doctor\n"
    run += f"'{COMMAND}' status .; echo $?; '{COMMAND}' mount x; echo $?\n"
    run += f"'{COMMAND}' mount '{mounted.path}' && '{COMMAND}' sync && echo done"
    shown = subprocess.run(
        ["sh", "-c", run], env=mounted.machine.environment, stdout=subprocess.PIPE,
        encoding="utf-8", timeout=100, check=False,
    ).stdout  # fmt: skip
    used, first, *_ = lines = shown.splitlines()
    # A file manager of another test may be named as well, which looks into each new mount.
    assert re.fullmatch(
        rf"zonedrive: unmounted {mounted.path}, although ([^,]+ \([0-9]+\), )*sh \([0-9]+\)"
        r"(, [^,]+ \([0-9]+\))* still used it", used
    )  # fmt: skip
    assert first == "everything is on the service"
    assert lines[-1] == "done"
    gone = "the current folder does not exist any more: it was removed or unmounted; change to"
    assert shown.count(f"{gone} another folder with cd, or give the absolute path\n1\n") == 2


def test_daemons_of_two_state_folders_are_not_mistaken(mounted: Mounted) -> None:
    """Daemons may share a runtime folder; each command reaches the daemon of its own state
    folder."""
    other = Machine(mounted.machine.folder / "other")
    other.copy_account(mounted.machine)
    other.environment["XDG_RUNTIME_DIR"] = mounted.machine.environment["XDG_RUNTIME_DIR"]
    assert json.loads(other.done("status", "--json"))["mountpoint"] is None
    second = Mounted(other, mounted.deployment, mounted.root.name, [])
    second.mount()
    try:
        assert second.status()["pid"] == second.pid != mounted.pid
        assert mounted.status()["pid"] == mounted.pid
        mounted.restart()
        assert second.status()["pid"] == second.pid
        second.unmount()
        assert second.status()["pid"] is None
        assert mounted.status()["mountpoint"] == str(mounted.path)
        shutil.rmtree(Path(other.environment["XDG_RUNTIME_DIR"], "zonedrive"))  # a session's end
        second.mount()  # which takes the place that the first one had
        assert mounted.status()["pid"] == mounted.pid
        assert second.status()["pid"] == second.pid
    finally:
        second.tear_down()
