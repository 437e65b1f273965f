"""Checks of the mount, its daemon, and pending changes.

Most checks ask a running daemon instead of reading its database.
"""

import os
import time

from zonedrive import __version__, causes
from zonedrive.daemon import last_run, local_data
from zonedrive.doctor.facts import CheckResult, DoctorFacts, age, bad, good
from zonedrive.errors import ConfigError, MountError, StoreError
from zonedrive.formatting import count, saved
from zonedrive.fuse import mountpoint
from zonedrive.paths import quoted

STUCK = 10  # failed attempts of one upload while the service responds; this takes some minutes
LONG = 86_400.0  # seconds; a change that waits longer is a problem
SHOWN = "findmnt -t fuse.zonedrive shows where"


def point(facts: DoctorFacts) -> CheckResult | None:
    """Check that zonedrive can mount on the folder that the user asked about."""
    if facts.folder is None or mountpoint.at(facts.folder) is not None:
        return None  # `mounted` checks mounts
    try:
        mountpoint.check(os.fspath(facts.folder))
    except MountError as wrong:
        return bad(
            "nothing can be mounted on that folder",
            "name an existing, empty folder that you own",
            here=wrong.line(),
        )
    return good("yours, and empty")


def mounted(facts: DoctorFacts) -> CheckResult | None:
    """Check that the user's mounts of the service respond.

    The result also tells whether the account is mounted.
    """
    account = facts.account
    if account is None:
        return None
    last = facts.holder.mountpoint if facts.holder else None
    found = [
        each
        for each in mountpoint.mounts()
        if each.ours and each.source == account.base_url and each.user in (None, os.getuid())
    ]
    # A check of the other account reports its mounts, with its remedies.
    elsewhere = facts.other_mountpoints - {last}
    for each in [each for each in found if each.path not in elsewhere]:
        place = quoted(each.path)
        try:
            dead = mountpoint.dead(each.path)
        except MountError:
            return bad("a mount does not answer", "run 'zonedrive unmount --now DIR'", DIR=place)
        if dead:
            remedy = "run 'zonedrive mount DIR' again, or 'zonedrive unmount DIR'"
            detail = f"{'a mount has lost its daemon'} ({SHOWN})"
            return bad(detail, remedy, DIR=place)
    holder = facts.holder
    if facts.running and holder is not None and holder.control and not holder.is_mounted:
        return bad(
            "it was unmounted, but a program or a container still uses it, or its daemon hangs",
            "run 'zonedrive unmount DIR', which ends it, and mount again",
        )
    if not found:
        return good("not mounted")
    own = [each for each in found if facts.running and each.path == last]
    others = len(found) - len(own)
    if not own:
        return good(
            "not mounted; a mount of the same service belongs to another daemon of yours (of"
            " another account or XDG_STATE_HOME)",
            SHOWN,
        )
    if others:
        detail = f"mounted, and it answers; {others} more mount(s) of the same service are yours"
        return good(detail, SHOWN)
    return good("mounted, and it answers")


def answering(facts: DoctorFacts) -> CheckResult | None:
    """Check that the running daemon responds, is logged on, and matches this command's version."""
    if not facts.running:
        return None
    vitals = facts.vitals
    if vitals is None:
        return bad(
            "it is running and does not answer",
            "run 'zonedrive unmount --now DIR', which ends it, and mount again; saved data is kept",
        )
    if vitals["state"] == "logon-required":
        return bad("the logon has ended", "run 'zonedrive logon URL' again")
    version = str(vitals.get("version", "older"))
    if version != __version__:
        return bad(
            f"it is of another version ({version}) than this command ({__version__})",
            "run 'zonedrive unmount DIR' and 'zonedrive mount DIR' when nothing uses it",
        )
    return good(f"it answers, and is {vitals['state']}")


def background(facts: DoctorFacts) -> CheckResult | None:
    """Check that no background task of the daemon is failing."""
    if facts.vitals is None:
        return None
    failing = [str(each) for each in facts.vitals.get("failing", ())]
    if not failing:
        return good("all of them work")
    return bad(
        f"failing, and retried automatically: {', '.join(failing)}",
        "see daemon.log, and send 'zonedrive doctor --report FILE' with a bug report; unmounting"
        " and mounting again may help",
    )


def downloads(facts: DoctorFacts) -> CheckResult | None:
    """Check that no file download has failed recently."""
    if facts.vitals is None:
        return None
    if not (unfetched := int(facts.vitals.get("unfetched", 0))):
        return good("none failed in the last minutes")
    return bad(
        f"{unfetched} file(s) could not be fetched in the last minutes",
        "see 'zonedrive status' for which and why, and read them again",
    )


def last_end(facts: DoctorFacts) -> CheckResult | None:
    """Return a failed result if no daemon runs and the last daemon did not unmount, else None."""
    died = last_run.death(facts.paths)
    if facts.account is None or died is None:
        return None
    command = f"zonedrive mount {quoted(died.mountpoint)}{facts.paths.option}"
    again = "if it happens again, send 'zonedrive doctor --report FILE' with a bug report"
    return bad(
        f"the daemon died without unmounting: {died.public}",
        f"run 'zonedrive mount DIR'; {again}",
        here=f"{died.line}; run '{command}'; {again}",
    )


def outbox(facts: DoctorFacts) -> CheckResult | None:
    """Check that no pending change has failed or has been waiting too long.

    Pending changes are changes that the service does not have yet. The result also mentions
    conflict copies to review.
    """
    try:
        if facts.account is None:
            return _ownerless(facts)
    except ConfigError:
        return _ownerless(facts)
    vitals = facts.vitals
    if vitals is None:
        return None if facts.running else _at_rest(facts)
    waiting, failed = int(vitals["waiting"]), int(vitals["failed"])
    pending = count(waiting, "pending change")
    see = "see 'zonedrive status'"
    if failed:
        counts = vitals.get("causes") or {}
        if counts.get("refused") == failed:
            return bad(f"{failed} of {pending} refused by the service", see)
        return bad(f"{failed} of {pending} failed: {causes.summary(counts, failed)}", see)
    if vitals["state"] == "online" and int(vitals["tries"]) >= STUCK:
        return bad(f"an upload failed {vitals['tries']} times, although the service answers", see)
    since = _oldest(facts) if waiting > int(vitals.get("held", 0)) else 0.0
    if waiting and vitals.get("paused"):
        detail, resume = f"{pending}; uploads are paused", "run 'zonedrive resume'"
        if since > LONG:
            return bad(f"{detail}, and the oldest waits for {age(since)}", resume)
        return good(detail, resume)
    if since > LONG:
        return bad(
            f"{pending}, the oldest for {age(since)}",
            f"{see}; a file that a program has open waits until it is closed",
        )
    if copies := int(vitals.get("conflicts", 0)):
        word = f"{pending}; " if waiting else ""
        return good(
            f"{word}{count(copies, 'conflict copy', 'conflict copies')} to review",
            "see 'zonedrive conflicts'",
        )
    return good(pending if waiting else "empty")


def _ownerless(facts: DoctorFacts) -> CheckResult | None:
    """Return a failed result if an account that cannot be loaded has pending changes.

    Return a failed result also if the changes cannot be counted. Return None if no change is
    pending.
    """
    try:
        left = local_data.backlog(facts.paths)
    except StoreError as wrong:
        return _uncounted(wrong)
    if not left.files:
        return None
    detail = f"{left} wait here, of a logon whose account.json cannot be read"
    remedy = "restore FILE from a backup; pending changes are kept"
    here = remedy.replace("FILE", quoted(facts.paths.account_file))
    return bad(detail, remedy.replace("FILE", "account.json"), here)


def _at_rest(facts: DoctorFacts) -> CheckResult:
    try:
        here = local_data.only_here(facts.paths)
    except StoreError as wrong:
        return _uncounted(wrong)
    left, lost = here.backlog, here.lost
    if not left.files and not lost:
        return good("empty")
    if not left.files:
        return bad(saved(lost), "run 'zonedrive mount DIR', and copy what you need from there")
    if facts.key in ("gone", "another"):
        return bad(f"{left} wait, and cannot be sent without the data key", "see key")
    if facts.forbidden:
        return bad(f"{left} wait, and a policy forbids the mount", "see organization")
    since = _oldest(facts)
    told = f", the oldest for {age(since)}" if since > LONG else ""
    detail = f"{left} wait until the next mount{told}"
    return CheckResult(since <= LONG, detail, "run 'zonedrive mount DIR'")


def _uncounted(wrong: StoreError) -> CheckResult:
    return bad(
        "pending changes cannot be counted: the database cannot be read now",
        "they are kept; first fix the problem of the state folder or its disk, see above",
        here=f"{wrong.message}; the changes are kept; first fix the problem, see above",
    )


def _oldest(facts: DoctorFacts) -> float:
    """Return the age in seconds of the oldest content that waits for upload.

    Return 0 if no content waits, or if the database cannot be read.
    """
    try:
        saved_s = local_data.outbox(facts.paths)["oldest"]
    except StoreError:
        return 0.0
    return 0.0 if saved_s is None else time.time() - float(saved_s)


def lost_found(facts: DoctorFacts) -> CheckResult | None:
    """Check that the database is not damaged, and that lost+found is empty."""
    if facts.vitals is None:
        return None
    if facts.vitals.get("damaged"):  # an older daemon does not tell
        return bad(
            "the database of names is damaged",
            "run 'zonedrive unmount DIR' and 'zonedrive mount DIR', which repairs a damaged one;"
            " pending changes are kept",
        )
    if facts.vitals["lost"]:
        return bad(
            "files lost their names when the database was damaged",
            "copy what you need from lost+found, then delete it there",
        )
    return good("nothing is lost")
