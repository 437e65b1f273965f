"""Actions of menus: their requests, and their messages on failure."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import COMMAND
from tests.unit.desktop.fake_daemon import FakeDaemon
from zonedrive.desktop import actions


class Served:
    """Daemon that answers in a thread, and the notifications that were shown."""

    def __init__(self, folder: Path, account: str = "default", name: str = "Zones") -> None:
        (folder / "zonedrive").mkdir(exist_ok=True)
        self.mount = folder / name
        self.daemon = FakeDaemon(folder / "zonedrive" / f"{account}.sock", str(self.mount))
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
    (tmp_path / "mountinfo").write_text(
        f"98 31 0:52 / {served.mount} rw - fuse.zonedrive z rw\n"
        "99 31 0:53 / /dead rw - fuse.zonedrive z rw\n"
    )
    monkeypatch.setattr(actions, "MOUNTINFO", tmp_path / "mountinfo")
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


def test_each_daemon_gets_its_paths(served: Served, tmp_path: Path) -> None:
    """The folders of two mounts are in the same folder."""
    other = Served(tmp_path, "other", "Others")
    try:
        assert actions.main(["keep", str(served.mount), str(other.mount)]) == 0
        assert [request["paths"] for request in served.asked()] == [[str(served.mount)]]
        assert [request["paths"] for request in other.asked()] == [[str(other.mount)]]
    finally:
        other.close()


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_a_pause(served: Served, action: str) -> None:
    """The daemon of the mount gets the command."""
    assert served.run(action) == 2
    assert actions.main([action, str(served.mount)]) == 0
    (request,) = served.asked()
    assert request["command"] == action
    assert not served.shown


def test_a_link_without_a_clipboard(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is shown; if there is no link, the error has the reason."""
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
    served.daemon.answer = {"link": "https://zones.example/web/1", "done": True}
    assert served.run("link", "Zone/a.txt") == 0
    assert served.shown == [("Link for members", "https://zones.example/web/1", "edit-copy")]
    served.daemon.answer = {"error": "Zone/a.txt is not on the service", "done": True}
    assert served.run("link", "Zone/a.txt") == 1
    assert served.shown[1][1] == "Zone/a.txt is not on the service"
    assert {request["path"] for request in served.asked()} == {f"{served.mount}/Zone/a.txt"}


FAILED = [{"path": "Zone/a.txt", "error": "refused"}, {"path": "Zone/b.txt", "error": "full"}]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"error": "it is kept", "remedy": "unpin that"}, "it is kept; unpin that"),
        ({"exit": 1, "failed": FAILED}, "Zone/a.txt: refused (and 1 more)"),
        ({"exit": 4, "reason": "it is away", "remedy": "wait"}, "it is away; wait"),
    ],
)
def test_an_error_is_shown(served: Served, answer: dict[str, object], said: str) -> None:
    """The notification names the file, the cause and the remedy."""
    served.daemon.answer = {**answer, "done": True}
    assert served.run("send", "a.txt", "b.txt") == 1
    ((title, text),) = served.shown
    assert "a.txt" in title
    assert text == said


def test_without_a_daemon(served: Served) -> None:
    """The error for a path in a mount whose daemon died has a remedy."""
    assert actions.main(["keep", "/dead/a.txt"]) == 1
    assert "zonedrive doctor" in served.shown[0][1]


@pytest.mark.parametrize("action", ["keep", "send", "link", "pause"])
def test_outside_of_the_zones(served: Served, action: str) -> None:
    """The menu of Dolphin is on all files; a daemon that does not answer is not the reason."""
    assert actions.main([action, "/deadly/a.txt"]) == 1
    assert served.shown[0][1] == "This is not in one of your zones."


def test_a_silent_daemon(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The action ends with an error."""
    monkeypatch.setattr(actions, "SILENCE_SECONDS", 0.1)
    monkeypatch.setattr("zonedrive.desktop.client.ANSWER_SECONDS", 0.1)
    served.daemon.answers = False
    assert served.run("keep", "a.txt") == 1
    assert "does not answer" in served.shown[0][1]


def test_a_daemon_that_dies_while_it_answers(served: Served) -> None:
    """An incomplete answer is an error that is shown."""
    served.daemon.dies_answering = True
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


def test_a_window_that_does_not_open_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The menu shows the error of the command, which shows no notification of its own."""
    programs, runtime = tmp_path / "bin", tmp_path / "runtime"
    programs.mkdir()
    runtime.mkdir(0o700)
    (runtime / "zonedrive").touch()  # not a folder, so no window opens
    notify = programs / "notify-send"
    notify.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{tmp_path}/given\n')
    notify.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
    monkeypatch.setattr(actions, "COMMAND", COMMAND)
    assert actions.main(["overview", "/home/me/Zones"]) == 1
    (shown,) = (tmp_path / "given").read_text().splitlines()
    assert "That did not work: Zones" in shown and str(runtime / "zonedrive") in shown


def test_a_text_is_no_markup_without_a_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """notify-send gets the text escaped; standard error has the text itself."""
    command = tmp_path / "notify-send"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$0.given"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
    actions.notify("R&D", 'a <a href="https://evil.example">&</a>: refused')
    given = (tmp_path / "notify-send.given").read_text().splitlines()
    escaped = 'a &lt;a href="https://evil.example"&gt;&amp;&lt;/a&gt;: refused'
    assert given[1:] == ["--", "R&D", escaped]
    assert capsys.readouterr().err == 'R&D: a <a href="https://evil.example">&</a>: refused\n'


def test_wrong_usage(served: Served) -> None:
    assert actions.main([]) == 2
    assert actions.main(["keep"]) == 2
    assert actions.main(["dance", "a"]) == 2
