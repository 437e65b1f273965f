"""The mount and its daemon, and what waits for the service.

Must not look into the stores of a running daemon; it is asked.
"""

from zonedrive.daemon import backlog
from zonedrive.daemon.checkup.finding import Finding
from zonedrive.daemon.checkup.patient import Patient
from zonedrive.errors import MountError
from zonedrive.fuse import mountpoint

STUCK = 10  # attempts in vain, while the service answers: minutes at least


def mounted(patient: Patient) -> Finding | None:
    """Mounts of this account in the kernel's table."""
    account = patient.account
    ours = [each for each in mountpoint.mounts() if each.ours]
    ours = [each for each in ours if account is not None and each.source == account.base_url]
    if not ours:
        return Finding(True, "not mounted") if account is not None else None
    for each in ours:
        try:
            dead = mountpoint.dead(each.path)
        except MountError:
            return Finding(False, "a mount does not answer", "run 'zonedrive unmount --now DIR'")
        if dead:
            return Finding(
                False,
                "a mount has lost its daemon (findmnt -t fuse.zonedrive shows where)",
                "run 'zonedrive mount' there again, or 'zonedrive unmount'",
            )
    return Finding(True, "mounted, and it answers")


def answering(patient: Patient) -> Finding | None:
    """The process behind the mount."""
    if not patient.running:
        return None
    vitals = patient.vitals
    if vitals is None:
        return Finding(False, "it lives and does not answer", "look into its log, daemon.log")
    state = str(vitals["state"])
    if state == "logon-required":
        return Finding(False, "the logon has ended", "run 'zonedrive logon URL' again")
    return Finding(True, f"it answers, and is {state}")


def outbox(patient: Patient) -> Finding | None:
    """What the service does not have yet."""
    if patient.account is None:
        return None
    vitals = patient.vitals
    if vitals is None:
        if patient.running:
            return None
        left = backlog.at_rest(patient.paths)
        if left.files:
            return Finding(True, f"{left} wait until the next mount", "run 'zonedrive mount DIR'")
        return Finding(True, "empty")
    waiting, failed = int(vitals["waiting"]), int(vitals["failed"])
    if failed:
        return Finding(
            False, f"{failed} of {waiting} change(s) were refused", "see 'zonedrive status'"
        )
    if vitals["state"] == "online" and int(vitals["tries"]) >= STUCK:
        return Finding(
            False,
            f"something was tried {vitals['tries']} times in vain, though the service answers",
            "see 'zonedrive status'",
        )
    return Finding(True, f"{waiting} change(s) wait" if waiting else "empty")


def lost_found(patient: Patient) -> Finding | None:
    """Files that a damaged database no longer named."""
    if patient.vitals is None:
        return None
    if patient.vitals["lost"]:
        return Finding(
            False,
            "files lost their names when the database was damaged",
            "copy what you need from lost+found, then delete it there",
        )
    return Finding(True, "nothing is lost")
