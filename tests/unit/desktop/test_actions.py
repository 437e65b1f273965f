"""Actions of menus: the requests that they send, and what they say when they fail."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.desktop.fake_daemon import FakeDaemon
from zonedrive.desktop import actions


class Served:
    """Daemon that answers in a thread, and the notifications that were shown."""

    def __init__(self, folder: Path) -> None:
        (folder / "zonedrive").mkdir()
        self.mount = folder / "Zones"
        self.daemon = FakeDaemon(folder / "zonedrive" / "default.sock", str(self.mount))
        self.shown: list[tuple[str, ...]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.wait(0.01):
            self.daemon.step()

    def run(self, action: str, *names: str) -> int:
        return actions.main([action, *(str(self.mount / name) for name in names)])

    def asked(self) -> list[dict[str, object]]:
        return [each for each in self.daemon.requests if each["command"] != "watch"]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.daemon.die()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Yield a daemon."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    served = Served(tmp_path)
    monkeypatch.setattr(actions, "notify", lambda *words: served.shown.append(words))
    yield served
    served.close()


@pytest.mark.parametrize(
    ("action", "command"), [("keep", "pin"), ("stop-keeping", "unpin"), ("send", "send")]
)
def test_one_request_for_all_paths(served: Served, action: str, command: str) -> None:
    """The daemon gets one request, and success is silent."""
    assert served.run(action, "a.txt", "b.txt") == 0
    (request,) = served.asked()
    assert request["command"] == command
    assert request["paths"] == [str(served.mount / name) for name in ("a.txt", "b.txt")]
    assert not served.shown


def test_an_error_is_shown(served: Served) -> None:
    """The notification names the file, the cause and the remedy."""
    served.daemon.answer = {"error": "it is kept with Zone", "remedy": "unpin that", "done": True}
    assert served.run("stop-keeping", "a.txt") == 1
    ((title, text),) = served.shown
    assert "a.txt" in title
    assert text == "it is kept with Zone; unpin that"


def test_files_that_failed_are_named(served: Served) -> None:
    failed = [{"path": "Zone/a.txt", "error": "refused"}, {"path": "Zone/b.txt", "error": "full"}]
    served.daemon.answer = {"exit": 1, "failed": failed, "done": True}
    assert served.run("send", "a.txt", "b.txt") == 1
    assert served.shown[0][1] == "Zone/a.txt: refused (and 1 more)"


def test_an_unreachable_service_is_named(served: Served) -> None:
    answer = {"exit": 4, "reason": "the service is offline", "remedy": "it is sent later"}
    served.daemon.answer = {**answer, "done": True}
    assert served.run("send", "a.txt") == 1
    assert served.shown[0][1] == "the service is offline; it is sent later"


def test_without_a_daemon(served: Served) -> None:
    """A path in no mount is an error that says what to do."""
    assert actions.main(["keep", "/nowhere/a.txt"]) == 1
    assert "zonedrive doctor" in served.shown[0][1]


def test_a_silent_daemon(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The action ends with an error."""
    monkeypatch.setattr(actions, "SILENCE_SECONDS", 0.1)
    monkeypatch.setattr("zonedrive.desktop.client.ANSWER_SECONDS", 0.1)
    served.daemon.answers = False
    assert served.run("keep", "a.txt") == 1
    assert "does not answer" in served.shown[0][1]


def test_a_page_that_does_not_open(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's error is shown without its name."""
    command = tmp_path / "zonedrive-command"
    command.write_text("#!/bin/sh\necho 'zonedrive: no browser; install one' >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setattr(actions, "COMMAND", str(command))
    assert served.run("versions", "a.txt") == 1
    assert served.shown[0][1] == "no browser; install one"
    monkeypatch.setattr(actions, "COMMAND", str(tmp_path / "none"))
    assert served.run("versions", "a.txt") == 1
    assert "not installed" in served.shown[1][1]


@pytest.fixture
def without_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the record of opened folders, with a zonedrive that has no window."""
    record = tmp_path / "opened"
    programs = {
        "zonedrive": "echo \"Error: No such command 'ui'.\" >&2\nexit 2",
        "xdg-open": f'echo "$1" >>"{record}"',
    }
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return record


def test_versions_without_a_window(served: Served, without_window: Path) -> None:
    """The folder with the versions opens."""
    assert served.run("versions", "Zone/a.txt") == 0
    assert without_window.read_text() == f"{served.mount}/Zone/.versions/a.txt\n"
    assert not served.shown


def test_authors_without_a_window(served: Served, without_window: Path) -> None:
    """A notification names the authors of the newest versions."""
    version = {"modified": "2026-11-22T12:00:00Z", "modified_by": "bob@acme.example"}
    served.daemon.answer = {"versions": [version] * 9, "done": True}
    assert served.run("log", "Zone/a.txt") == 0
    ((title, text, _),) = served.shown
    assert title == "Who changed a.txt"
    assert text.count("bob@acme.example") == actions.AUTHORS
    (request,) = served.asked()
    assert request["path"] == f"{served.mount}/Zone/a.txt"


def test_a_conflict_without_a_window(
    served: Served, without_window: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions are shown in the file manager, and a notification says what to do."""
    selected: list[list[str]] = []
    monkeypatch.setattr(actions, "_show_items", selected.append)
    conflict = {"path": "Zone/a (conflict).txt", "original": "Zone/a.txt", "by": "bob"}
    served.daemon.answer = {"conflicts": [conflict], "done": True}
    assert served.run("conflict", "Zone/a (conflict).txt") == 0
    copy = f"{served.mount}/Zone/a (conflict).txt"
    assert selected == [[copy, f"{served.mount}/Zone/a.txt"]]
    assert served.shown[0][0] == "a.txt was also changed by bob"
    assert served.run("conflict", "Zone/b.txt") == 1
    assert served.shown[1][1] == "The conflict is already decided."


def test_wrong_usage(served: Served) -> None:
    assert actions.main([]) == 2
    assert actions.main(["keep"]) == 2
    assert actions.main(["dance", "a"]) == 2
