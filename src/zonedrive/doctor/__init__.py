"""Checks that `zonedrive doctor` runs, in the order of CHECKS.

A check is a function that takes DoctorFacts and returns a CheckResult, or None if the check does
not apply or another check reports the problem. To add a check, write the function in the module
of its subject (machine, folders, account or mount), and add it to CHECKS.

INVARIANT: a result contains no secret. Except for the key `here` (see `examine`), a result contains
no name of a person, a file, a zone or a host, because users send results to others.

INVARIANT: a check leaves no change behind. A check that fails unexpectedly or hangs does not stop
the other checks.
"""

import errno
import queue
import threading
from collections.abc import Iterator

from zonedrive.doctor import account, folders, machine, mount, profile_check
from zonedrive.doctor.facts import Check, CheckResult, DoctorFacts, bad, local_remedy
from zonedrive.errors import ConfigError

UNFORESEEN = "run 'zonedrive status', and see daemon.log"
CLOSED = "first make the folders readable and writable for you, see above"
SECONDS = 40.0
"""Maximum duration of one check in seconds.

Timeouts inside the checks are shorter, but access to a dead disk can block without a timeout.
"""

CHECKS: tuple[tuple[str, Check], ...] = (
    ("fuse device", machine.fuse_device),
    ("fusermount3", machine.fusermount),
    ("user", machine.user),
    ("AppArmor", machine.apparmor),
    ("home folder", folders.home),
    ("settings", account.settings),
    ("organization", account.organization),
    ("state folder", folders.state),
    ("runtime folder", folders.runtime),
    ("cache folder", folders.cache),
    ("database", folders.database),
    ("logon", account.logon),
    ("profile", account.profile),
    ("encryption", account.encryption),
    ("key", account.key),
    ("service", account.reachable),
    ("certificate", account.certificate),
    ("clock", account.clock),
    ("token", account.token),
    ("mount point", mount.point),
    ("mount", mount.mounted),
    ("daemon", mount.answering),
    ("last daemon", mount.last_end),
    ("background tasks", mount.background),
    ("downloads", mount.downloads),
    ("outbox", mount.outbox),
    ("lost and found", mount.lost_found),
)


def examine(facts: DoctorFacts) -> Iterator[dict[str, object]]:
    """Run all checks; yield the result of each check that applies, as a JSON object.

    The object has the keys `name`, `ok`, `detail`, `remedy`, and `here`, a remedy that may contain
    names and is shown to the local user only (see `local_remedy`).
    """
    for name, check in CHECKS:
        found = _in_time(check, facts)
        if found is not None:
            yield _object(facts, name, found)


def examine_profile(facts: DoctorFacts, file: str) -> Iterator[dict[str, object]]:
    """Check the deployment profile `file` (a name or a path); yield objects as `examine` does.

    The first object is the result for the file. The others are the results for its operations, or
    one failed result if the operations cannot be checked.
    """
    for name, found in profile_check.examine(facts, file):
        yield _object(facts, name, found)


def _object(facts: DoctorFacts, name: str, found: CheckResult) -> dict[str, object]:
    return {
        "name": name,
        "ok": found.ok,
        "detail": found.detail,
        "remedy": found.remedy,
        "here": local_remedy(facts, found),
    }


def _in_time(check: Check, facts: DoctorFacts) -> CheckResult | None:
    """Return the result of the check, or a failed result if the check takes longer than SECONDS.

    A check that hangs, for example on a hung file system, keeps running in its daemon thread.
    """
    results: queue.SimpleQueue[CheckResult | None] = queue.SimpleQueue()
    work = threading.Thread(target=lambda: results.put(_run(check, facts)), daemon=True)
    work.start()
    try:
        return results.get(timeout=SECONDS)
    except queue.Empty:
        return bad(
            f"did not answer within {SECONDS:.0f} s",
            "check the disks and network folders of this machine",
        )


def _run(check: Check, facts: DoctorFacts) -> CheckResult | None:
    try:
        return check(facts)
    except ConfigError:
        return None  # `settings` and `logon` report this
    except OSError as wrong:
        reason = wrong.strerror or type(wrong).__name__
        if wrong.errno == errno.EACCES:
            return bad(f"cannot be checked ({reason})", CLOSED)
    except Exception as wrong:  # the error's message may contain names
        reason = type(wrong).__name__
    return bad(f"cannot be checked ({reason})", UNFORESEEN)
