"""Times, users and following of `zonedrive log`."""

import itertools
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import click
import pytest

from tests.unit.cli.stand_in import log_on, run
from zonedrive.cli import control_client, text_output, zone_log
from zonedrive.cli.control_client import NoDaemon
from zonedrive.cli.zone_log import Since, ZoneLog
from zonedrive.daemon.protocol import Message
from zonedrive.errors import MountEnded, NotLoggedOn, Unreachable
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, save_bearer
from zonedrive.logon.secrets import open_store
from zonedrive.paths import AccountPaths


def since(text: str) -> datetime:
    """Return the time that an option means."""
    return datetime.fromtimestamp(Since().convert(text, None, None) / 1e9).astimezone()


def test_a_time_is_a_date_or_a_duration() -> None:
    """Times without a zone are local; durations count back from now."""
    assert since("2026-11-20") == datetime(2026, 11, 20).astimezone()
    assert since("2026-11-20 14:30") == datetime(2026, 11, 20, 14, 30).astimezone()
    assert since("2026-11-20T14:30:00+02:00").timestamp() == 1795177800
    now = datetime.now().astimezone()
    for text, age in (("90s", 90), ("30m", 1800), ("2h", 7200), ("7d", 604_800), ("2w", 1_209_600)):
        assert abs(now - timedelta(seconds=age) - since(text)) < timedelta(seconds=30)
    today = since("today")
    assert (today.hour, today.minute) == (0, 0) and today <= datetime.now().astimezone()
    assert timedelta(hours=22) < today - since("Yesterday") < timedelta(hours=26)
    assert Since().convert("1900-01-01", None, None) == 0


@pytest.mark.parametrize(
    "text", ["", "soon", "5", "7y", "2026-13-01", "-1h", "999999d", "9" * 9 + "d"]
)
def test_an_invalid_time(text: str) -> None:
    """The error shows what a time looks like."""
    with pytest.raises(click.BadParameter, match="2026-11-20"):
        Since().convert(text, None, None)


def test_a_user_is_named_in_full_or_by_the_part_before_the_domain() -> None:
    """Case does not matter; a part of a name is not a name."""
    for wanted in ("bob", "BOB", "bob@acme.example"):
        assert zone_log._is_by("Bob@acme.example", wanted)
    for wanted in ("bo", "acme.example", "bob@acme"):
        assert not zone_log._is_by("bob@acme.example", wanted)


def message(number: int, text: str = "x") -> dict[str, Any]:
    """Return a message of the log; its number is the minute of its time."""
    when = f"2026-01-01T00:{number:02}:00+00:00"
    return {"time": when, "user": "bob", "event": "E", "path": "", "id": "1", "message": text}


class Source:
    """Log with prepared answers, which are exceptions or messages, newest first."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def messages(self, since_ns: int = 0) -> tuple[list[Any], list[str]]:
        self.asked.append(since_ns)
        answer = self.answers.pop(0) if self.answers else NotLoggedOn("over")
        if isinstance(answer, Exception):
            raise answer
        return answer, []


def followed(source: Source, since_ns: int | None = None) -> Iterator[str]:
    """Yield the texts of a log that is followed until its answers end."""
    with pytest.raises(NotLoggedOn):
        for one in zone_log._followed(cast(ZoneLog, source), since_ns):
            yield one["message"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of pauses, none of which takes any time."""
    found: list[float] = []

    def pause(seconds: float) -> bool:
        found.append(seconds)
        return True

    monkeypatch.setattr(text_output, "has_reader", pause)
    return found


def test_each_message_comes_once(pauses: list[float]) -> None:
    """New messages are shown in the order of the log; equal ones as often as they exist."""
    a, b, c = message(1, "a"), message(2, "b"), message(3, "c")
    source = Source([b, a], [b, a], [c, c, b], [c, c, c], [c, c, c])
    assert list(followed(source, 0)) == ["a", "b", "c", "c", "c"]
    assert all(pause >= zone_log.POLL_SECONDS for pause in pauses) and len(pauses) == 5
    late = zone_log.LATE_NS
    times = [int(datetime.fromisoformat(one["time"]).timestamp()) * 10**9 for one in (b, c)]
    assert source.asked[1:4] == [times[0] - late, times[0] - late, times[1] - late]


def test_following_for_a_long_time_needs_little_memory(pauses: list[float]) -> None:
    """Messages that are too old to be read again are not remembered."""

    class BusySource(Source):
        """Log with one long message an hour, which is read twice."""

        def messages(self, since_ns: int = 0) -> tuple[list[Any], list[str]]:
            self.asked.append(since_ns)
            hour = len(self.asked) // 2
            when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
            return [message(0, str(hour) * 5000) | {"time": when.isoformat()}], []

    shown = zone_log._followed(cast(ZoneLog, BusySource()), 0)
    tracemalloc.start()
    try:
        assert sum(1 for _ in itertools.islice(shown, 500)) == 500
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_message_of_the_future_hides_no_later_message(pauses: list[float]) -> None:
    """The service may state a wrong time, and new messages have the right time."""
    odd = message(1, "odd") | {"time": "2190-01-01T00:00:00+00:00"}
    source = Source([odd], [odd, message(2, "new")])
    assert list(followed(source, 0)) == ["odd", "new"]
    assert all(since_ns < time.time_ns() for since_ns in source.asked)


def test_following_begins_with_the_last_messages(pauses: list[float]) -> None:
    """Ten of a week come first; with --since all of them."""
    many = [message(number, str(number)) for number in range(30, 0, -1)]
    source = Source(many)
    assert list(followed(source)) == [str(number) for number in range(21, 31)]
    assert time.time_ns() - source.asked[0] < 8 * 86_400 * 10**9
    assert len(list(followed(Source(many), 5))) == 30


def test_following_since_a_time_shows_no_older_message(pauses: list[float]) -> None:
    """A message that was written shortly before that time is no late one."""

    def time_ns(one: Any) -> int:
        return int(datetime.fromisoformat(one["time"]).timestamp()) * 10**9

    class WholeLog(Source):
        """Source whose answers, as those of a service, have no message before `since_ns`."""

        def messages(self, since_ns: int = 0) -> tuple[list[Any], list[str]]:
            found, _ = super().messages(since_ns)
            return [one for one in found if time_ns(one) >= since_ns], []

    a, b, c = message(1, "a"), message(2, "b"), message(3, "c")
    source = WholeLog([b, a], [b, a], [c, b, a])
    assert list(followed(source, time_ns(b))) == ["b", "c"]


def test_following_waits_for_an_unreachable_service(
    pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines report the outage, however long it is, and no message is lost."""
    away = Unreachable("zones.example cannot be reached")
    source = Source([], away, away, away, [message(1, "a")])
    assert list(followed(source, 0)) == ["a"]
    said = capsys.readouterr().err
    assert said.count("cannot be reached; waiting") == 1 and said.count("is back") == 1


@pytest.mark.parametrize("ended", [NoDaemon("not mounted"), MountEnded("the mount has ended")])
def test_the_log_is_shown_without_a_mount(
    monkeypatch: pytest.MonkeyPatch, ended: Exception
) -> None:
    """Only a daemon knows the current paths; if the mount ends, the paths are left out."""

    def ask(*_: object) -> Message:
        raise ended

    monkeypatch.setattr(control_client, "ask", ask)
    assert ZoneLog(AccountPaths("default"), None, "")._located("z", ["1"]) == {}


def test_exit_codes_without_a_log() -> None:
    """Exit code 3 without a logon, 1 if the profile has no log, also without a service."""
    outside = run("log")
    assert (outside.returncode, outside.stdout, outside.stderr.count("\n")) == (3, "", 1)
    log_on()
    lacking = run("log", "--json")
    assert (lacking.returncode, lacking.stdout) == (1, "")
    assert "has no endpoint for zone_log; log on with a --profile that has it" in lacking.stderr
    nowhere = run("log", "/nowhere/file")
    assert nowhere.returncode == 1 and "is not in one of your zones" in nowhere.stderr
    assert run("log", "--since", "soon").returncode == 2


def test_a_service_that_is_unreachable_from_the_start(home: Path) -> None:
    """Exit code 4, in one line, without waiting, also with --follow."""
    paths = AccountPaths("default")
    Account(name="default", base_url="https://127.0.0.1:1", username="a", profile="sandbox").save(
        paths
    )
    save_bearer(open_store(paths), Bearer("t0ken", "token"))
    for more in ([], ["--follow"]):
        away = run("log", *more)
        assert (away.returncode, away.stdout, away.stderr.count("\n")) == (4, "", 1)
