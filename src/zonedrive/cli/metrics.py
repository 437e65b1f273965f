"""Metrics of accounts in the text format of Prometheus, for `status --metrics`.

INVARIANT: no label contains a name of a file, zone or user, or a secret.
INVARIANT: the user is never asked to unlock a keyring, and a silent daemon delays the answer by
`ASK_SECONDS` at most.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from zonedrive import __version__
from zonedrive.cli import control_client
from zonedrive.errors import ConfigError, StoreError, ZonedriveError
from zonedrive.paths import AccountPaths, quoted

ASK_SECONDS = 5.0
STATES = ("online", "offline", "logon-required", "unmounted", "died", "unknown")
MODE = 0o644  # of the file: node_exporter runs as another user


class Sample(NamedTuple):
    """One line of a metric; `suffix` follows the name, such as `_bucket`."""

    labels: dict[str, str]
    value: float
    suffix: str = ""


class Metric(NamedTuple):
    """Name, type, help text and samples of one metric."""

    name: str
    type: str
    help: str
    samples: list[Sample]


class Metrics:
    """Metrics of several accounts, grouped by name as the format requires."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._labels = {"uid": str(os.getuid())}
        self.add("info", "gauge", "Version of zonedrive.", [({"version": __version__}, 1)])

    def collect(self, paths: AccountPaths) -> None:
        """Add the metrics of an account; a part that cannot be read is left out."""
        self._labels = {"uid": str(os.getuid()), "account": paths.account}
        found, state = self._asked(paths)
        self.add(
            "up", "gauge", "1 if a daemon serves the account and answers.", [({}, bool(found))]
        )
        self.add(
            "state", "gauge", "1 for the state of the account.",
            [({"state": each}, each == state) for each in STATES],
        )  # fmt: skip
        self._pause(paths)
        self._outbox(paths)
        self._cache(paths, found)
        self._daemon(found)

    def _asked(self, paths: AccountPaths) -> tuple[dict[str, Any], str]:
        """Return the daemon's measurements, {} without an answer, and the account's state."""
        try:
            found = control_client.ask(paths, {"command": "metrics"}, timeout=ASK_SECONDS)
        except ZonedriveError:
            if control_client.running(paths):
                return {}, "unknown"
            from zonedrive.daemon import last_run

            return {}, "unmounted" if last_run.death(paths) is None else "died"
        return found, str(found["state"])

    def _pause(self, paths: AccountPaths) -> None:
        from zonedrive.daemon import local_data

        is_paused = local_data.pause(paths) is not None
        self.add("paused", "gauge", "1 while uploads are paused.", [({}, is_paused)])

    def _outbox(self, paths: AccountPaths) -> None:
        from zonedrive.daemon import local_data

        found: dict[str, Any] | None = None
        with suppress(StoreError, OSError):
            found = local_data.outbox(paths)
        self.add(
            "database_readable", "gauge", "1 if the database of the pending changes can be read.",
            [({}, found is not None)],
        )  # fmt: skip
        if found is None:
            return
        gauges = (
            ("pending_changes", "pending", "Changes that the service does not have yet."),
            ("pending_bytes", "bytes", "Size of the files among these changes."),
            ("conflict_copies", "conflicts", "Conflict copies that nobody has resolved."),
            ("lost_files", "lost", "Files in lost+found, which only this machine has."),
        )
        for name, key, text in gauges:
            self.add(name, "gauge", text, [({}, found[key])])
        if found["oldest"] is not None:
            text = "Last write to the file that has waited longest for its upload."
            self.add("oldest_pending_timestamp_seconds", "gauge", text, [({}, found["oldest"])])
        failures = [({"cause": cause}, number) for cause, number in found["failures"].items()]
        text = "Pending changes whose last attempt failed, by cause."
        self.add("failed_changes", "gauge", text, failures)

    def _cache(self, paths: AccountPaths, found: dict[str, Any]) -> None:
        from zonedrive.daemon import local_data

        used = found.get("cache")
        if used is None:
            with suppress(ConfigError, OSError):
                used = local_data.cache(paths)
        if used is not None:
            self.add("cache_bytes", "gauge", "Disk space used by the cache.", [({}, used["bytes"])])
            text = "Disk space that the cache may use."
            self.add("cache_limit_bytes", "gauge", text, [({}, used["limit"])])

    def _daemon(self, found: dict[str, Any]) -> None:
        """Add measurements that only a daemon has."""
        if not found:
            return
        text = "Background tasks of the daemon that fail."
        self.add("failing_tasks", "gauge", text, [({}, found["failing"])])
        if "logon_end" in found:
            text = "End of the logon."
            self.add("logon_end_timestamp_seconds", "gauge", text, [({}, found["logon_end"])])
        requests = found["requests"]
        bounds = [*(f"{bound:g}" for bound in requests["bounds"]), "+Inf"]
        failed, times = [], []
        for kind, each in requests["kinds"].items():
            label = {"kind": kind}
            failed.append((label, each["failed"]))
            counts = [*accumulate(each["buckets"])]
            times += [
                (label | {"le": bound}, number, "_bucket")
                for bound, number in zip(bounds, counts, strict=True)
            ]
            times += [(label, each["seconds"], "_sum"), (label, counts[-1], "_count")]
        text = "Requests without a successful answer since the daemon's start."
        self.add("request_failures_total", "counter", text, failed)
        text = "Time to the answer; for a download, to its first byte."
        self.add("request_duration_seconds", "histogram", text, times)

    def add(self, name: str, kind: str, text: str, samples: Iterable[tuple[Any, ...]]) -> None:
        """Add samples of a metric: labels, value and, where the name has one, the suffix."""
        metric = self._metrics.setdefault(name, Metric(f"zonedrive_{name}", kind, text, []))
        metric.samples.extend(
            Sample(self._labels | labels, float(value), *suffix)
            for labels, value, *suffix in samples
        )

    def text(self) -> str:
        """Return all metrics in the text format."""
        lines = (line for metric in self._metrics.values() for line in exposition(metric))
        return "".join(f"{line}\n" for line in lines)


def exposition(metric: Metric) -> Iterator[str]:
    """Yield the lines of one metric."""
    yield f"# HELP {metric.name} {_escaped(metric.help)}"
    yield f"# TYPE {metric.name} {metric.type}"
    for labels, value, suffix in metric.samples:
        parts = ",".join(f'{name}="{_quotable(text)}"' for name, text in labels.items())
        number = str(int(value)) if value.is_integer() else repr(value)
        yield f"{metric.name}{suffix}{{{parts}}} {number}"


def of_accounts(account: str | None) -> str:
    """Return the metrics of one account, or of all accounts.

    Raises NotLoggedOn for an unknown account.
    """
    if account is not None:
        control_client.require_logon(account)
    metrics = Metrics()
    for paths in [AccountPaths(account)] if account is not None else control_client.accounts():
        metrics.collect(paths)
    return metrics.text()


def write(path: Path, text: str) -> None:
    """Replace a file atomically. Raises ZonedriveError, and leaves the old file then."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, MODE)
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as wrong:
        raise ZonedriveError(
            f"{quoted(path)} cannot be written ({wrong.strerror})",
            remedy="give --output a file in a folder that you may write to",
        ) from wrong


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quotable(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
