"""Detection of the calling program from the kernel's data about its process."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zonedrive.vfs.caller_policy import CallerPolicy


@contextmanager
def running(*command: str | Path, executable: Path | None = None) -> Iterator[int]:
    """Yield the pid of a program that has written a byte or echoed one, and waits for input."""
    child = subprocess.Popen(
        command, executable=executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(b".")
        assert child.stdout.read(1) == b"."
        yield child.pid
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait()


@contextmanager
def thread_named(name: str) -> Iterator[int]:
    """Yield the id of a thread of this process."""
    numbers, named, over = list[int](), threading.Event(), threading.Event()

    def work() -> None:
        numbers.append(threading.get_native_id())
        Path(f"/proc/self/task/{numbers[0]}/comm").write_text(name)
        named.set()
        over.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert named.wait(60)
        yield numbers[0]
    finally:
        over.set()
        thread.join()


def copy(folder: Path, name: str) -> Path:
    """Copy a program that echoes its input to that name."""
    path = folder / name
    shutil.copy("/bin/cat", path)
    return path


def test_a_program_is_known_by_its_file(tmp_path: Path) -> None:
    """The executable counts even if the program uses another name; other programs do not match."""
    with running("nobody", executable=copy(tmp_path, "tumblerd")) as pid:
        assert CallerPolicy(["tumblerd"]).guarded(pid)
        assert not CallerPolicy(["tumbler", "umblerd", "cat"]).guarded(pid)


def test_a_program_is_known_by_its_command_line(tmp_path: Path) -> None:
    """The first word of the command line counts, too."""
    with running("/usr/lib/tumblerd", executable=copy(tmp_path, "busy")) as pid:
        assert CallerPolicy(["tumblerd"]).guarded(pid)


def test_a_long_name_is_known_whole(tmp_path: Path) -> None:
    """The whole name is compared, although the kernel keeps only 15 bytes."""
    with running(copy(tmp_path, "gdk-pixbuf-thumbnailer")) as pid:
        assert CallerPolicy(["gdk-pixbuf-thumbnailer"]).guarded(pid)
        assert not CallerPolicy(["gdk-pixbuf-thumbnails"]).guarded(pid)


def test_a_name_as_the_process_list_shows_it_will_do(tmp_path: Path) -> None:
    """The first 15 bytes, as `ps` shows them, match the program, too."""
    with running(copy(tmp_path, "gdk-pixbuf-thumbnailer")) as pid:
        assert CallerPolicy(["gdk-pixbuf-thum"]).guarded(pid)


def test_a_program_that_was_upgraded_meanwhile(tmp_path: Path) -> None:
    """The executable was deleted, but the kernel still has its name."""
    path = copy(tmp_path, "tumblerd")
    with running("x", executable=path) as pid:
        path.unlink()
        assert CallerPolicy(["tumblerd"]).guarded(pid)


def test_a_script_is_known_by_its_name(tmp_path: Path) -> None:
    """The script's own name counts, because many scripts share an interpreter."""
    script = tmp_path / "recoll-helper"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nprint('.', end='', flush=True)\nsys.stdin.read()\n"
    )
    script.chmod(0o755)
    with running(script) as pid:
        assert CallerPolicy(["recoll-helper"]).guarded(pid)
        assert not CallerPolicy(["tumblerd"]).guarded(pid)


def test_a_plugin_of_a_runner_is_known(tmp_path: Path) -> None:
    """KDE's thumbnails are created by a generic runner, which also copies files for the user."""
    plugin = tmp_path / "thumbnail.so"
    plugin.write_text("printf .; read x\n")
    shutil.copy("/bin/sh", tmp_path / "kioworker")
    with running(tmp_path / "kioworker", plugin) as pid:
        assert CallerPolicy(["thumbnail.so"]).guarded(pid)
    with running(tmp_path / "kioworker", "-c", "printf .; read x", "file.so") as pid:
        assert not CallerPolicy(["thumbnail.so"]).guarded(pid)


def test_a_thread_counts_as_its_process() -> None:
    """The kernel reports the calling thread, which may have a name of its own."""
    with thread_named("pool-worker") as number:
        assert CallerPolicy([Path("/proc/self/exe").resolve().name]).guarded(number)
        assert not CallerPolicy(["pool-worker"]).guarded(number)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_a_process_that_has_ended_is_not_guarded(pid: int) -> None:
    """A process of another container, or one that has ended, is not guarded."""
    assert not CallerPolicy(["tumblerd"]).guarded(pid)


def test_a_process_of_another_user(tmp_path: Path) -> None:
    """If the executable cannot be read, the command line and the kernel's name count."""
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"")
    (folder / "status").write_text("Name:\tx\nTgid:\t77\n")
    (folder / "comm").write_text("totem-video-thu\n")
    assert CallerPolicy(["totem-video-thumbnailer"], proc=tmp_path).guarded(77)
    assert not CallerPolicy(["totem-video"], proc=tmp_path).guarded(77)


def test_an_empty_list_guards_no_program(tmp_path: Path) -> None:
    """The data of the kernel about the process are not read."""
    assert not CallerPolicy([], proc=tmp_path / "nowhere").guarded(os.getpid())


def test_one_thread_of_a_program_is_known_by_its_name() -> None:
    """If a file manager creates thumbnails in one thread, its other threads can still copy
    files."""
    program = Path("/proc/self/exe").readlink().name
    with thread_named("loader") as number:
        callers = CallerPolicy([f"{program}/loader"])
        assert callers.guarded(number)
        assert not callers.guarded(os.getpid())
        assert not CallerPolicy(["pcmanfm/loader", f"{program}/load", "loader"]).guarded(number)
