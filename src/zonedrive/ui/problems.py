"""Error messages of the web interface, each with a remedy and the buttons for the remedy.

`_known` maps each error class to its message; the most specific class decides.
"""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from zonedrive import errors
from zonedrive.causes import REFUSAL_REMEDY
from zonedrive.cli import control_client, error_messages
from zonedrive.errors import ZonedriveError
from zonedrive.logon.flow import WRONG_WITH_CODE
from zonedrive.paths import NO_ROOM
from zonedrive.remedies import (
    AGAIN,
    HELP,
    LOG_ON,
    MOUNT,
    RESTART,
    in_window,
    message_in_window,
    remedy_in_window,
)
from zonedrive.remote.wire.error_mapping import BLOCKED, REFUSAL_REMEDIES
from zonedrive.translation import translated as _
from zonedrive.translation import translated_line


class NotMounted(ZonedriveError):
    """Error for an account that is not mounted, although a page needs its files."""


SAID = (
    NotMounted, control_client.NoDaemon, control_client.NotResponding, control_client.Unconnectable,
    control_client.DaemonExited, control_client.DaemonTimeout, control_client.EarlierDaemon,
)  # fmt: skip
"""Errors whose own message adds nothing to the message of the page."""


@dataclass(frozen=True)
class Problem:
    """Error, as a page shows it to the user."""

    text: str
    remedy: str = ""
    buttons: tuple[str, ...] = ()
    status: int = 500  # HTTP status of the page
    reason: str = ""  # the message of the error, if `text` has other words
    account: str = ""  # account that the buttons concern; "": the account of the page


def of(error: Exception) -> Problem:
    """Return the problem that a page shows for an error."""
    found = _known()
    if isinstance(error, OSError):
        known = _of_system(found).get(error.errno or 0)
        if known is None:
            return worded(error)
        return replace(known, reason=worded(error).text)
    known = next((found[kind] for kind in type(error).__mro__ if kind in found), None)
    if known is None:
        return worded(error)
    if type(error) is errors.CredentialsRefused:
        if not error.status:  # zonedrive or the user ended the logon, not the service
            text, remedy = message_in_window(error.message), remedy_in_window(error.remedy)[0]
            remedy = _sentence(remedy) or known.remedy
            return replace(known, text=_sentence(text), remedy=remedy)
        text = _of_code().get(error.code, known.text)
        if error.message == WRONG_WITH_CODE:
            text = _("The user name, the password or the one-time code is wrong.")
        known = replace(known, text=text)
    if isinstance(error, ZonedriveError) and not isinstance(error, SAID):
        remedy, more = remedy_in_window(error.remedy)
        return replace(
            known, remedy=known.remedy or _sentence(remedy),
            reason=message_in_window(error.message),
            buttons=tuple(dict.fromkeys((*known.buttons, *more))),
        )  # fmt: skip
    return known


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def worded(error: Exception) -> Problem:
    """Return the problem whose text consists of the message and the remedy of an error.

    Shell commands in the message and in the remedy are replaced with text and buttons.
    """
    text, buttons = in_window(*error_messages.parts(error))
    return Problem(text, buttons=buttons)


def of_check(check: Mapping[str, str]) -> Problem:
    """Return the problem for a failed check of `zonedrive doctor`."""
    remedy, buttons = remedy_in_window(check["remedy"])
    detail = re.sub(r" \(findmnt [^)]*\)", "", check["detail"])
    return Problem(message_in_window(detail), remedy, buttons=buttons)


def of_upload(upload: Mapping[str, str | None]) -> Problem | None:
    """Return the problem that prevents an upload, or None if the upload has no error."""
    error, cause = upload["error"] or "", upload.get("cause") or ""
    refused = _("The service refuses it.")
    if error.endswith(REFUSAL_REMEDY):
        refused = _("The service refuses it. Another name or folder may help.")
    elif cause == "refused" and (
        remedy := next((one for one in REFUSAL_REMEDIES if error.endswith(f"; {one}")), "")
    ):
        error = error.removesuffix(f"; {remedy}")
        advice = translated_line(remedy)
        refused = f"{refused} {advice[0].upper()}{advice[1:]}."
    said = {
        "refused": refused,
        "local": _("A problem of this computer keeps it from being sent."),
        "service": _("It is sent when the service is available again."),
        "unclear": _("The service gave no clear answer. It is tried again."),
        "unexpected": _(
            "An error in zonedrive keeps it from being sent. Save a report under Help."
        ),
    }.get(cause, "")
    reason = message_in_window(error)
    return Problem(said or reason, reason=reason if said else "") if reason else None


def _known() -> Mapping[type[Exception], Problem]:
    kept = _("What you have saved is kept on this computer.")
    ended = Problem(_("Your logon has ended."), _("Log on again.") + f" {kept}", (LOG_ON,), 403)
    unreachable = Problem(
        _("The service cannot be reached."),
        _("Check the network connection, then try again.") + f" {kept}", (AGAIN, HELP), 503,
    )  # fmt: skip
    unavailable = Problem(
        _("The service cannot answer at the moment."), _("Try again later.") + f" {kept}",
        (AGAIN,), 503,
    )  # fmt: skip
    not_mounted = Problem(
        _("This account is not mounted."), _("Mount it to see your files."), (MOUNT,), 409
    )
    silent = Problem(
        _("zonedrive does not answer for this account."), _("Start it again.") + f" {kept}",
        (RESTART,), 503,
    )  # fmt: skip
    busy = Problem(
        _("zonedrive is busy and has not answered yet."), _("Try again later."), (AGAIN,), 503
    )
    earlier = Problem(
        _("zonedrive was updated, and this account still runs the former version."),
        _("Start it again.") + f" {kept}", (RESTART,), 409,
    )  # fmt: skip
    try_again = _("Check the address and the network, then try again.")
    return {
        errors.NotLoggedOn: ended,
        errors.CredentialsRefused: Problem(
            _("The service did not accept the logon."),
            _("Check user name, password and code."),
            (LOG_ON,),
            403,
        ),
        errors.PasswordChangeRequired: Problem(
            _("The service wants a new password first."),
            _("Change it in the web application of the service, then log on again."),
            (LOG_ON,),
            403,
        ),
        errors.Unreachable: unreachable,
        errors.Untrusted: Problem(
            _("This computer does not trust the certificate of the service."),
            _("Check the clock of this computer, and ask your IT department."),
            (AGAIN, HELP),
            502,
        ),
        errors.OtherHost: Problem(
            _("The certificate is for another service."), try_again, (AGAIN, HELP), 502
        ),
        errors.ProxyFailed: Problem(
            _("The proxy of this computer does not connect to the service."),
            _("Ask your IT department."),
            (AGAIN, HELP),
            502,
        ),
        errors.NoTls: Problem(
            _("The server does not use a secure connection."), try_again, (AGAIN, HELP), 502
        ),
        errors.Unavailable: unavailable,
        errors.NotSupported: Problem(
            _("The service of your organization does not offer this here."), status=501
        ),
        errors.Forbidden: Problem(
            _("You do not have the right for this."),
            _("Ask a manager of the zone for the right."),
            status=403,
        ),
        errors.NotFound: Problem(_("This does not exist on the service."), status=404),
        errors.AlreadyExists: Problem(_("It exists already."), status=409),
        errors.Locked: Problem(
            _("Somebody else has locked it."),
            _("Wait until the lock is released."),
            (AGAIN,),
            409,
        ),
        errors.TooLarge: Problem(
            _("It is larger than the service accepts."),
            _("Make it smaller, or ask your administrator."),
            status=413,
        ),
        errors.Rejected: Problem(_("The service refuses it."), status=400),
        errors.BadAnswer: Problem(
            _("The service gave no clear answer."), try_again, (AGAIN, HELP), 502
        ),
        errors.ConfigError: Problem(_("What was entered or set cannot be used."), status=400),
        errors.MountError: Problem(_("The account cannot be mounted there."), "", (HELP,), 409),
        errors.AlreadyRunning: Problem(
            _("Another command works with this account."), _("Try again later."), (AGAIN,), 409
        ),
        errors.StoreError: Problem(_("The data on this computer cannot be used."), kept, (HELP,)),
        NotMounted: not_mounted,
        control_client.NoDaemon: not_mounted,
        control_client.NotResponding: silent,
        control_client.Unconnectable: silent,
        control_client.DaemonExited: silent,
        control_client.DaemonTimeout: busy,
        control_client.EarlierDaemon: earlier,
    }


def _of_code() -> Mapping[str, str]:
    """Return sentences about a rejected logon, keyed by the service's error code."""
    blocked = _("The user is blocked for a while, after too many failures.")
    return {
        "AUTHORIZATION_FAILED": _("The user name or the password is wrong."),
        "PASSWORD_FAILURE": _("The password is wrong."),
        "VERIFICATIONCODE_FAILURE": _("The one-time code is wrong or was used before."),
        "NOT_ALLOWED": _("The user may not log on this way."),
        **dict.fromkeys(BLOCKED, blocked),
    }


def _of_system(known: Mapping[type[Exception], Problem]) -> Mapping[int, Problem]:
    """Return the problems for instances of OSError, keyed by errno.

    `known` is the result of `_known`.
    """
    full = Problem(_("The disk is full."), _("Free up space on it, then try again."))
    denied = Problem(
        _("This is not allowed."), _("Perhaps you lack the right, or your logon has ended."),
        (HELP,), 403,
    )  # fmt: skip
    unreachable = known[errors.Unreachable]
    return {
        **dict.fromkeys(NO_ROOM, full),
        **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), denied),
        **dict.fromkeys((errno.ENETUNREACH, errno.ETIMEDOUT), unreachable),
        errno.EREMOTEIO: known[errors.Unavailable],
        errno.ENOENT: Problem(_("This file or folder does not exist any more."), status=404),
        errno.EIO: Problem(_("It cannot be read or written."), "", (HELP,)),
        errno.ENOTCONN: known[control_client.NotResponding],
    }


def check_name(name: str) -> str:
    """Return the translated title of the check `name` of `zonedrive doctor`."""
    return {
        "fuse device": _("FUSE device"),
        "user": _("User"),
        "home folder": _("Home folder"),
        "settings": _("Settings"),
        "organization": _("Settings of the organization"),
        "state folder": _("Folder for unsent changes"),
        "runtime folder": _("Folder for connections"),
        "cache folder": _("Folder for downloaded files"),
        "database": _("Database"),
        "logon": _("Logon"),
        "profile": _("Profile"),
        "encryption": _("Encryption"),
        "key": _("Key"),
        "service": _("Service"),
        "certificate": _("Certificate"),
        "clock": _("Clock"),
        "token": _("Acceptance of the logon"),
        "mount point": _("Folder to mount on"),
        "mount": _("Mounted folder"),
        "daemon": _("Background process"),
        "last daemon": _("Last end of the background process"),
        "background tasks": _("Background tasks"),
        "downloads": _("Downloads"),
        "outbox": _("Uploads"),
        "lost and found": _("Lost and found files"),
    }.get(name, name)
