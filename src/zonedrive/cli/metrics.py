"""Metrics of accounts in the text format of Prometheus, for `status --metrics`.

INVARIANT: no label contains a name of a file, zone or user, or a secret.
INVARIANT: the user is never asked to unlock a keyring.
INVARIANT: a daemon that does not respond delays the output by about `ASK_SECONDS`, or by up to
`control_client.WORKING_SECONDS` more while the daemon computes or waits for its disk.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from typing import Any

from zonedrive import __version__
from zonedrive.cli import control_client
from zonedrive.errors import ConfigError, StoreError, ZonedriveError
from zonedrive.paths import (
    DEFAULT_ACCOUNT,
    AccountPaths,
    require_own_folders,
)

ASK_SECONDS = 5.0
STATES = ("online", "offline", "logon-required", "unmounted", "died", "unknown")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Metrics:
    """Metrics of several accounts, grouped by metric name, as the Prometheus format requires."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}  # by the name of the metric
        self._labels = {"uid": str(os.getuid())}
        self.add("info", "gauge", "Version of zonedrive.", [({"version": __version__}, 1)])

    def collect(self, paths: AccountPaths) -> None:
        """Add the metrics of an account; omit each metric that cannot be read."""
        self._labels = {"uid": str(os.getuid()), "account": paths.account}
        found, state = self._asked(paths)
        self._state(state, is_up=bool(found))
        self._local(paths)
        self._cache(paths, found)
        self._daemon(found)

    def collect_unmoved(self, paths: AccountPaths) -> None:
        """Add the metrics of an account whose state folder must be moved before its next use.

        The metric `up` is 0, and the account's state is "unknown".
        """
        self._labels = {"uid": str(os.getuid()), "account": paths.account}
        self._state("unknown", is_up=False)

    def _state(self, state: str, *, is_up: bool) -> None:
        self._gauge("up", "1 if a daemon serves the account and answers.", is_up)
        states = [({"state": each}, each == state) for each in STATES]
        self.add("state", "gauge", "1 for the state of the account.", states)

    def _asked(self, paths: AccountPaths) -> tuple[dict[str, Any], str]:
        """Return the daemon's metrics and the account's state.

        The metrics are {} if no daemon responds.
        """
        try:
            found = control_client.ask(paths, {"command": "metrics"}, timeout=ASK_SECONDS)
        except ZonedriveError:
            # Without access to its folder, a daemon of the account cannot be found.
            if control_client.running(paths) or not os.access(paths.state, os.R_OK | os.X_OK):
                return {}, "unknown"
            from zonedrive.daemon import last_run

            return {}, "unmounted" if last_run.death(paths) is None else "died"
        return found, str(found["state"])

    def _local(self, paths: AccountPaths) -> None:
        """Add the metrics of the pause and the outbox, which are read from the disk."""
        from zonedrive.daemon import local_data

        is_paused = local_data.pause(paths) is not None
        self._gauge("paused", "1 while uploads are paused.", is_paused)
        found: dict[str, Any] | None = None
        with suppress(StoreError, OSError):
            found = local_data.outbox(paths)
        text = "1 if the database of the pending changes can be read."
        self._gauge("database_readable", text, found is not None)
        if found is None:
            return
        for name, key, text in (
            ("pending_changes", "pending", "Changes that the service does not have yet."),
            ("pending_bytes", "bytes", "Size of the files among these changes."),
            ("conflict_copies", "conflicts", "Conflict copies that nobody has resolved."),
            ("lost_files", "lost", "Files in lost+found, which only this machine has."),
            (
                "oldest_pending_timestamp_seconds",
                "oldest",
                "Last write to the file that has waited longest for its upload.",
            ),
        ):
            self._gauge(name, text, found[key])
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
            self._gauge("cache_bytes", "Disk space used by the cache.", used["bytes"])
            self._gauge("cache_limit_bytes", "Disk space that the cache may use.", used["limit"])

    def _daemon(self, found: dict[str, Any]) -> None:
        """Add the metrics in `found`, the response of the daemon; add none if `found` is empty."""
        if not found:
            return
        self._gauge("failing_tasks", "Background tasks of the daemon that fail.", found["failing"])
        self._gauge("logon_end_timestamp_seconds", "End of the logon.", found.get("logon_end"))
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

    def _gauge(self, name: str, text: str, value: float | None) -> None:
        """Add a gauge metric with one sample; add nothing if `value` is None (unknown)."""
        if value is not None:
            self.add(name, "gauge", text, [({}, value)])

    def add(self, name: str, kind: str, text: str, samples: Iterable[tuple[Any, ...]]) -> None:
        """Add samples of the metric `name`, whose type is `kind` and whose help text is `text`.

        A sample is a tuple (labels, value) or (labels, value, name suffix); `labels` is a dict.
        """
        name = f"zonedrive_{name}"
        head = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines = self._lines.setdefault(name, head)
        for labels, value, *suffix in samples:
            pairs = (self._labels | labels).items()
            shown = ",".join(f'{label}="{each.translate(_ESCAPES)}"' for label, each in pairs)
            number = int(value) if float(value).is_integer() else float(value)
            lines.append(f"{name}{''.join(suffix)}{{{shown}}} {number!r}")

    def text(self) -> str:
        """Return all metrics in the Prometheus text format."""
        return "".join(f"{line}\n" for lines in self._lines.values() for line in lines)


def of_accounts(account: str | None) -> str:
    """Return the metrics of `account` (None: of all accounts) in the Prometheus text format.

    Raises NotLoggedOn if `account` is not logged on, and ForeignFolder if a folder of zonedrive
    belongs to another user.
    """
    require_own_folders(AccountPaths(account or DEFAULT_ACCOUNT))
    if account is not None:
        control_client.require_logon(account)
    metrics = Metrics()
    unmoved = control_client.unmoved_accounts() if account is None else []
    listed = [AccountPaths(account)] if account is not None else control_client.accounts()
    for paths in listed:
        require_own_folders(paths)
    for paths in listed:
        if paths not in unmoved:
            metrics.collect(paths)
    for paths in unmoved:
        metrics.collect_unmoved(paths)
    return metrics.text()
