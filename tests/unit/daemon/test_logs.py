"""Content of the daemon's log files."""

import ast
import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from zonedrive.daemon import logs

SOURCES = Path(logs.__file__).parents[1]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Yield the root logger; restore it afterwards."""
    root = logging.getLogger()
    filtered = [logging.getLogger(name) for name in ("pyfuse3", "trio.serve_listeners")]
    handlers, level, filters = root.handlers[:], root.level, [each.filters[:] for each in filtered]
    yield root
    logging.captureWarnings(False)
    for added in set(root.handlers) - set(handlers):
        added.close()
    root.handlers[:] = handlers
    for logger, former in zip(filtered, filters, strict=True):
        logger.filters[:] = former
    root.setLevel(level)


@pytest.mark.usefixtures("root")
def test_a_reply_that_the_kernel_discards_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    """Replies to killed programs and ended mounts are not logged; other failures are."""
    logs.to_stderr({})
    said = "fuse_reply_* failed with %s"
    logging.getLogger("pyfuse3").error(f"fuse_release(): {said}", "No such file or directory")
    logging.getLogger("pyfuse3").error(f"fuse_read(): {said}", "Invalid argument")
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("fuse_read(): fuse_reply_* failed with Invalid argument")


class Exhausted(trio.abc.Listener[trio.abc.Stream]):
    """Listener that gets no file descriptor for a client."""

    async def accept(self) -> trio.abc.Stream:
        """Fail."""
        await trio.lowlevel.checkpoint()
        raise OSError(errno.EMFILE, "Too many open files")

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.usefixtures("root")
async def test_exhausted_descriptors_do_not_fill_the_log(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The log has one line per minute, and keeps what happened before."""
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=trio.current_time))
    logs.to_stderr({})

    async def ignored(_: trio.abc.Stream) -> None:
        """Serve nobody."""

    with trio.move_on_after(150):
        await trio.serve_listeners(ignored, [Exhausted()])
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all("EMFILE" in line for line in lines)


@pytest.mark.usefixtures("root")
def test_the_anonymous_log_hides_every_name(tmp_path: Path) -> None:
    """The anonymous log has only fixed text, numbers, known words and types of errors."""
    kept = os.dup(2)
    try:
        logs.to_file(tmp_path / "daemon.log")
        logs.add_anonymous(tmp_path / "daemon.log")
        log = logging.getLogger("zonedrive.sync.upload")
        try:
            try:
                raise KeyError("alice")
            except KeyError as wrong:
                raise ExceptionGroup("Plan", [OSError(28, "x", "/home/alice")]) from wrong
        except ExceptionGroup as wrong:
            log.exception("inode %d of %s: %s after %.1f s", 7, "Plan", wrong.exceptions[0], 1.5)
        log.warning("now %s, was %s", "offline", ["Plan"])
        logging.getLogger("trio").warning("Plan of %s", "alice")
        logging.getLogger("py.warnings").warning("Plan")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    file = logs.anonymous(tmp_path / "daemon.log")
    shown = file.read_text("utf-8")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "alice" not in shown and "Plan" not in shown
    assert "inode 7 of …: OSError (No space left on device) after 1.5 s\n" in shown
    assert "now offline, was …\n" in shown
    assert f"    {__name__}:" in shown
    assert [line for line in shown.splitlines() if line.startswith("    ") and ":" not in line] == [
        "    KeyError",
        "    OSError",
        "    ExceptionGroup",
    ]
    assert "Plan" in (tmp_path / "daemon.log").read_text("utf-8")


def test_messages_are_constant_texts() -> None:
    """A name in the text of a message, instead of a field, would be in the anonymous log."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    ast.Attribute(ast.Name("log" | "logger"), "log"), [_, text, *_]
                ) | ast.Call(
                    ast.Attribute(
                        ast.Name("log" | "logger"),
                        "debug" | "info" | "warning" | "error" | "exception" | "critical",
                    ),
                    [text, *_],
                ):
                    texts = [text.body, text.orelse] if isinstance(text, ast.IfExp) else [text]
                    place = f"{path}:{node.lineno}"
                    assert all(isinstance(each, ast.Constant) for each in texts), place


def full_pipe() -> tuple[int, int]:
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    with suppress(BlockingIOError):
        while os.write(sink, b"x" * 4096):
            pass
    os.set_blocking(sink, True)
    return source, sink


@pytest.mark.parametrize("pair", [full_pipe, os.openpty])
def test_a_reader_that_does_not_read_delays_no_message(
    root: logging.Logger, pair: Callable[[], tuple[int, int]]
) -> None:
    """Messages are dropped, and come again as soon as somebody reads the pipe or terminal."""
    source, sink = pair()
    with os.fdopen(source, "rb", 0) as reader, os.fdopen(sink, "w") as stream:
        root.addHandler(handler := logs.Terminal(stream))
        for _ in range(100):
            root.error("x" * 6000)
        reader.read(1 << 20)
        os.set_blocking(source, False)
        while reader.read(1 << 20):
            pass
        root.error("written")
        os.set_blocking(source, True)
        assert b"written" in reader.read(1 << 20)
        root.removeHandler(handler)
