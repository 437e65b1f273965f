"""`status --metrics`, read with the parser of the Prometheus client."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.stand_in import StandIn, log_on, run
from zonedrive import paths
from zonedrive.cli import metrics, text_output
from zonedrive.cli.metrics import Metrics
from zonedrive.errors import ZonedriveError
from zonedrive.remote.request_times import BOUNDS, RequestTimes
from zonedrive.state.names import TEMPORARY, local_only_reason

UNITS = ("_seconds", "_bytes")


def samples(text: str) -> dict[str, float]:
    """Return all values by name and labels, without the user's number."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for one in family.samples:
            labels = dict(one.labels)
            assert labels.pop("uid") == str(os.getuid())
            key = " ".join([one.name, *labels.values()])
            assert key not in found, "a repeated series makes Prometheus drop the whole answer"
            found[key] = one.value
    return found


@pytest.fixture
def measured(stand_in: StandIn) -> Iterator[StandIn]:
    """Yield a stand-in with measurements of one upload and one failed download."""
    times = RequestTimes()
    times.add("upload", 0.3)
    times.add("download", 999.0, failed=True)
    stand_in.answers["metrics"] = {
        "state": "logon-required",
        "cache": {"bytes": 5 << 30, "limit": 10 << 30},
        "failing": 2,
        "logon_end": 1_800_000_000.25,
        "requests": times.json(),
    }
    yield stand_in


def test_values_of_a_daemon(measured: StandIn) -> None:
    """All values of the daemon are printed, in seconds and bytes."""
    found = samples(run("status", "--metrics").stdout)
    assert found["zonedrive_up default"] == 1
    assert found["zonedrive_state default logon-required"] == 1
    assert found["zonedrive_state default online"] == 0
    assert found["zonedrive_cache_bytes default"] == 5 << 30
    assert found["zonedrive_cache_limit_bytes default"] == 10 << 30
    assert found["zonedrive_failing_tasks default"] == 2
    assert found["zonedrive_logon_end_timestamp_seconds default"] == 1_800_000_000.25
    assert found["zonedrive_pending_changes default"] == 0
    assert found["zonedrive_paused default"] == 0
    assert "zonedrive_oldest_pending_timestamp_seconds default" not in found


def test_buckets_are_cumulative(measured: StandIn) -> None:
    """Each bucket includes the ones below it, and +Inf includes every request."""
    found = samples(run("status", "--metrics").stdout)
    name = "zonedrive_request_duration_seconds"
    uploads = [found[f"{name}_bucket default upload {bound:g}"] for bound in BOUNDS]
    assert uploads == [float(bound >= 0.3) for bound in BOUNDS]
    assert found[f"{name}_count default upload"] == 1
    assert found[f"{name}_sum default upload"] == 0.3
    assert found[f"{name}_bucket default download {BOUNDS[-1]:g}"] == 0
    assert found[f"{name}_bucket default download +Inf"] == 1
    assert found["zonedrive_request_failures_total default download"] == 1
    assert found["zonedrive_request_failures_total default upload"] == 0


def test_all_accounts_or_one(measured: StandIn) -> None:
    """Each metric has one group of lines for all accounts; `--account` selects one."""
    log_on("work")
    both = samples(run("status", "--metrics").stdout)
    assert (both["zonedrive_up default"], both["zonedrive_up work"]) == (1, 0)
    assert both["zonedrive_state work unmounted"] == 1
    one = samples(run("status", "--metrics", "--account", "work").stdout)
    assert "zonedrive_up default" not in one
    assert one["zonedrive_up work"] == 0


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("options", [[], ["--account", "default"], ["--account", "work"]])
def test_metrics_of_another_users_accounts_are_refused(options: list[str]) -> None:
    """Folders of another user have accounts of that user, as every command says."""
    log_on()
    work = log_on("work")
    os.chown(work.state, 4711, 4711)
    if "default" in options:
        assert "default" in run("status", "--metrics", *options).stdout
        os.chown(work.state.parent / "default", 4711, 4711)
    ended = run("status", "--metrics", *options)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "belongs to another user" in ended.stderr


def test_without_accounts_only_the_version_is_printed() -> None:
    """A machine without a logon is no failure for the collector."""
    ended = run("status", "--metrics")
    assert ended.returncode == 0, ended
    assert [key.split()[0] for key in samples(ended.stdout)] == ["zonedrive_info"]
    assert run("status", "--metrics", "--account", "none").returncode == 3


def test_a_damaged_database_is_a_value() -> None:
    """The other values are still printed, and those of the database are left out."""
    paths = log_on()
    paths.database.write_bytes(b"no database" * 1000)
    found = samples(run("status", "--metrics").stdout)
    assert found["zonedrive_database_readable default"] == 0
    assert found["zonedrive_state default unmounted"] == 1
    assert "zonedrive_pending_changes default" not in found


def test_an_account_that_cannot_be_read_has_an_unknown_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its daemon may be running, but cannot be found."""
    state = log_on().state
    monkeypatch.setattr(os, "access", lambda path, mode: path != state)
    assert samples(metrics.of_accounts(None))["zonedrive_state default unknown"] == 1


def test_a_daemon_with_an_error_counts_as_unknown(stand_in: StandIn) -> None:
    """A daemon of an earlier version, for example, does not know the command."""
    stand_in.answers["metrics"] = ZonedriveError("unknown command")
    found = samples(run("status", "--metrics").stdout)
    assert found["zonedrive_up default"] == 0
    assert found["zonedrive_state default unknown"] == 1
    assert found["zonedrive_database_readable default"] == 1


def test_labels_are_escaped() -> None:
    """The parser returns quotes, backslashes and line breaks unchanged."""
    odd = 'a"b\\n\\c\nd'
    metrics = Metrics()
    metrics.add("odd", "gauge", "Odd.", [({"label": odd}, 0.1)])
    found = {one.name: one for one in text_string_to_metric_families(metrics.text())}
    assert found["zonedrive_odd"].samples[0].labels["label"] == odd
    assert found["zonedrive_odd"].samples[0].value == 0.1


def test_output_replaces_a_file(measured: StandIn, home: Path) -> None:
    """The file is replaced as a whole and can be read by node_exporter; nothing else remains."""
    folder = home / "textfiles"
    folder.mkdir()
    file = folder / "zonedrive.prom"
    file.write_text("old")
    before = file.open()
    ended = run("status", "--metrics", "--output", file)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert samples(file.read_text())["zonedrive_up default"] == 1
    with before:
        assert before.read() == "old"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [*folder.iterdir()] == [file]


def test_an_unfinished_output_stays_on_this_machine(tmp_path: Path) -> None:
    """In a mount, the temporary file of a command that is killed is not uploaded."""
    folder = tmp_path / "textfiles"
    folder.mkdir()
    with text_output.replaced(str(folder / "zonedrive.prom")):
        (unfinished,) = folder.iterdir()
        assert local_only_reason(unfinished.name) == TEMPORARY
    assert [one.name for one in folder.iterdir()] == ["zonedrive.prom"]


def test_an_output_that_cannot_be_written(home: Path) -> None:
    """One line names the file and the reason; a folder in the place of the file stays."""
    for place, why in ((home / "none/zonedrive.prom", "cannot be written"), (home, "is a folder")):
        ended = run("status", "--metrics", "--output", place)
        assert ended.returncode == 1
        assert ended.stderr.count("\n") == 1
        assert f"{place} {why}" in ended.stderr
    assert not [one for one in (*home.iterdir(), *home.parent.iterdir()) if one.name[0] == "."]


@pytest.mark.parametrize(
    "arguments",
    [("--metrics", "--json"), ("--metrics", "--watch"), ("--metrics", "x"), ("--output", "x")],
)
def test_options_that_exclude_each_other(arguments: tuple[str, ...]) -> None:
    """A wrong combination is a usage error."""
    assert run("status", *arguments).returncode == 2


def test_names_follow_the_conventions(measured: StandIn) -> None:
    """Counters end in _total, and every time and size names its base unit."""
    for family in text_string_to_metric_families(run("status", "--metrics").stdout):
        assert family.name.startswith("zonedrive_")
        if family.type == "counter":
            assert all(one.name.endswith("_total") for one in family.samples)
        elif family.type == "histogram":
            assert family.name.endswith(UNITS)


def test_an_account_that_must_be_moved_has_an_unknown_state(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pending changes are not counted, because they are not where they are expected."""
    log_on()
    monkeypatch.setattr(paths, "policy_folders", lambda: {"state_dir": home / "elsewhere"})
    found = samples(metrics.of_accounts(None))
    assert found["zonedrive_up default"] == 0
    assert found["zonedrive_state default unknown"] == 1
    assert "zonedrive_pending_changes default" not in found
