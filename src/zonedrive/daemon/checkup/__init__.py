"""What `zonedrive doctor` looks at: small checks, each of one thing, in the order of CHECKS.

A check is a function from a Patient to a Finding, or None where there is nothing to look at.
To add one: write the function where its subject is (machine, folders, account, service, mount),
and put it in its place in CHECKS.

INVARIANT: a finding holds no secret, and no name of a person, a file, a zone or a host: people
send the output to others.
INVARIANT: nothing is changed, and a check that fails in an unforeseen way ends no other.
"""

from collections.abc import Iterator

from zonedrive.daemon.checkup import account, deployment, folders, machine, mount, service
from zonedrive.daemon.checkup.finding import Check, Finding
from zonedrive.daemon.checkup.patient import Patient
from zonedrive.errors import ConfigError

UNFORESEEN = "run 'zonedrive status', and look into daemon.log"

CHECKS: tuple[tuple[str, Check], ...] = (
    ("fuse device", machine.fuse_device),
    ("fusermount3", machine.fusermount),
    ("settings", account.settings),
    ("state folder", folders.state),
    ("cache folder", folders.cache),
    ("cache speed", folders.cache_speed),
    ("database", folders.database),
    ("logon", account.logon),
    ("profile", account.profile),
    ("encryption", account.encryption),
    ("key", account.key),
    ("service", service.reachable),
    ("certificate", service.certificate),
    ("clock", service.clock),
    ("token", service.token),
    ("mount", mount.mounted),
    ("daemon", mount.answering),
    ("outbox", mount.outbox),
    ("lost and found", mount.lost_found),
)


def examine(patient: Patient) -> Iterator[dict[str, object]]:
    """The contract's objects: name, ok, detail, remedy."""
    for name, check in CHECKS:
        found = _looked(check, patient)
        if found is not None:
            yield _object(name, found)


def examine_profile(patient: Patient, file: str) -> Iterator[dict[str, object]]:
    """The same objects, for a deployment profile and each operation that there is."""
    for name, found in deployment.examine(patient, file):
        yield _object(name, found)


def _object(name: str, found: Finding) -> dict[str, object]:
    return {"name": name, "ok": found.ok, "detail": found.detail, "remedy": found.remedy}


def _looked(check: Check, patient: Patient) -> Finding | None:
    try:
        return check(patient)
    except ConfigError:
        return None  # `settings` and `logon` say so
    except OSError as wrong:
        reason = wrong.strerror or type(wrong).__name__
    except Exception as wrong:  # its message may hold names
        reason = type(wrong).__name__
    return Finding(False, f"cannot be looked at ({reason})", UNFORESEEN)
