"""State of an account in the side bar, and the time at which accounts are announced."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.unit.desktop.fake_daemon import FakeDaemon, StepLoop
from zonedrive.desktop import client as client_module
from zonedrive.desktop import mounts
from zonedrive.desktop.side_bar import SideBar, described


@pytest.mark.parametrize(
    ("link", "counts", "state", "text"),
    [
        ("online", {}, "IDLE", "Everything is on the service."),
        ("online", {"pending": 1}, "SYNCING", "1 change is being uploaded."),
        ("online", {"pending": 1, "uploading": 2}, "SYNCING", "3 changes are being uploaded."),
        ("online", {"pending": 9, "failed": 1}, "ERROR", "1 upload failed."),
        ("online", {"conflict": 2}, "ERROR", "2 conflicts are undecided."),
        ("offline", {}, "ERROR", "The service cannot be reached."),
        ("offline", {"pending": 2}, "ERROR",
         "The service cannot be reached. 2 changes are waiting."),
        ("logon-required", {"pending": 2}, "ERROR",
         "You are logged off. Your changes are safe on this computer."),
    ],
)  # fmt: skip
def test_the_most_urgent_fact_is_shown(
    link: str, counts: dict[str, int], state: str, text: str
) -> None:
    """The most urgent fact decides the state and the text."""
    assert described(link, counts) == (state, text)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "Uploads are paused."),
        ({"pending": 1}, "Uploads are paused. 1 change is waiting."),
        ({"pending": 2, "uploading": 1}, "Uploads are paused. 3 changes are waiting."),
    ],
)
def test_a_pause_is_shown(counts: dict[str, int], text: str) -> None:
    """A pause is not shown as an error, because the user has requested it."""
    assert described("online", counts, paused=True) == ("IDLE", text)
    assert described("online", {**counts, "failed": 1}, paused=True)[0] == "ERROR"
    assert described("offline", counts, paused=True)[0] == "ERROR"


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [([], 0), ([True, True], 0), ([True, False], client_module.ANSWER_SECONDS)],
)
def test_accounts_are_announced_with_their_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[bool], seconds: float
) -> None:
    """Each has a state. A daemon that does not answer delays the others for some seconds only."""
    (tmp_path / "zonedrive").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(mounts, "MOUNTINFO", tmp_path / "mountinfo")
    daemons = list[FakeDaemon]()
    table = ""
    for number, each in enumerate(answers):
        daemons.append(FakeDaemon(tmp_path / "zonedrive" / f"{number}.sock", f"/home/me/{number}"))
        daemons[-1].answers = each
        table += f"9{number} 31 0:52 / /home/me/{number} rw - fuse.zonedrive z rw\n"
    mounts.MOUNTINFO.write_text(table)
    loop, library, announced = StepLoop(), MagicMock(), list[int]()
    states = library.AccountExporter.new.return_value.set_status_details
    bar = SideBar(
        library, MagicMock(), None, loop, MagicMock(),
        lambda: announced.append(states.call_count),
    )  # fmt: skip
    assert announced == [0] * (not answers)

    def settle() -> None:
        while loop.step() | any(each.step() for each in daemons):
            pass

    settle()
    assert bool(announced) == (seconds == 0)
    loop.now += seconds
    settle()
    assert len(announced) == 1
    assert announced[0] >= sum(answers)
    assert library.AccountExporter.new.call_count == sum(answers)
    bar._client.close()
    for daemon in daemons:
        daemon.die()


def test_a_folder_that_is_not_utf_8_hides_no_other_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library cannot name such a folder; the other accounts are announced."""
    (tmp_path / "zonedrive").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(mounts, "MOUNTINFO", tmp_path / "mountinfo")
    folders = ["/home/me/caf\udce9", "/home/me/Zones"]
    daemons = [
        FakeDaemon(tmp_path / "zonedrive" / f"{number}.sock", folder)
        for number, folder in enumerate(folders)
    ]
    lines = [
        f"9{number} 31 0:52 / {folder} rw - fuse.zonedrive z rw\n".encode(
            "utf-8", "surrogateescape"
        )
        for number, folder in enumerate(folders)
    ]
    mounts.MOUNTINFO.write_bytes(b"".join(lines))
    loop, library, announced = StepLoop(), MagicMock(), list[bool]()
    bar = SideBar(library, MagicMock(), None, loop, MagicMock(), lambda: announced.append(True))
    while loop.step() | any(each.step() for each in daemons):
        pass
    named = library.AccountExporter.new.return_value.set_path
    assert [call.args for call in named.call_args_list] == [("/home/me/Zones",)]
    assert announced == [True]
    bar._client.close()
    for daemon in daemons:
        daemon.die()
