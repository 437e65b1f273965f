"""Error messages of the window: the failure, the remedy, and the buttons for the remedy.

A table maps each class of errors to its message; the most specific class decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from zonedrive import errors
from zonedrive.cli import control_client, error_messages
from zonedrive.errors import ZonedriveError
from zonedrive.translation import translated as _
from zonedrive.ui.remedies import AGAIN, HELP, LOG_ON, MOUNT, RESTART, in_window


class NotMounted(ZonedriveError):
    """A page needs the files of an account that is not mounted."""


@dataclass(frozen=True)
class Problem:
    """Error for the page."""

    text: str
    remedy: str = ""
    reason: str = ""  # the message of the error, if `text` has other words
    buttons: tuple[str, ...] = ()
    status: int = 500  # of HTTP
    account: str = ""  # "": that of the page


def of(error: Exception) -> Problem:
    """Return the problem for an error."""
    found = _known()
    known = next((found[kind] for kind in type(error).__mro__ if kind in found), None)
    if known is None or not known.text:  # the words of the error are more precise
        return worded(error_messages.line(error), known or Problem(""))
    if isinstance(error, errors.Unreachable | errors.Unavailable):
        return replace(known, reason=error.message)
    return known


def worded(text: str, known: Problem = Problem("")) -> Problem:
    """Return the problem for a message, which may name commands; `known` has further parts."""
    said, buttons = in_window(text)
    return replace(known, text=said, buttons=tuple(dict.fromkeys((*buttons, *known.buttons))))


def line(error: Exception) -> str:
    """Return an error in one line without commands, for a place without buttons."""
    return worded(error_messages.line(error)).text


def of_check(check: Mapping[str, str]) -> Problem:
    """Return the problem for a failed check of doctor."""
    remedy, buttons = in_window(check["remedy"])
    return Problem(check["detail"], remedy, buttons=buttons)


def _known() -> Mapping[type[Exception], Problem]:
    """Return the problems by the class of their error."""
    kept = _("What you have saved is kept on this computer.")
    ended = Problem(_("Your logon has ended."), _("Log on again.") + f" {kept}", "", (LOG_ON,), 403)
    unreachable = Problem(
        _("The service cannot be reached."),
        _("Check the network connection, then try again.") + f" {kept}", "", (AGAIN, HELP), 503,
    )  # fmt: skip
    unavailable = Problem(
        _("The service cannot answer at the moment."), _("Try again later.") + f" {kept}", "",
        (AGAIN,), 503,
    )  # fmt: skip
    not_mounted = Problem(
        _("This account is not mounted."), _("Mount it to see your files."), "", (MOUNT,), 409
    )
    silent = Problem(
        _("zonedrive does not answer for this account."), _("Start it again.") + f" {kept}", "",
        (RESTART,), 503,
    )  # fmt: skip
    busy = Problem(
        _("zonedrive is busy and has not answered yet."), _("Try again later."), "", (AGAIN,), 503
    )
    earlier = Problem(
        _("zonedrive was updated, and this account still runs the former version."),
        _("Start it again.") + f" {kept}", "", (RESTART,), 409,
    )  # fmt: skip
    return {
        errors.NotLoggedOn: ended,
        errors.Unreachable: unreachable,
        errors.Untrusted: Problem("", buttons=(AGAIN, HELP), status=502),
        errors.ProxyFailed: Problem("", buttons=(AGAIN, HELP), status=502),
        errors.NoTls: Problem("", buttons=(AGAIN, HELP), status=502),
        errors.Unavailable: unavailable,
        errors.NotSupported: Problem("", status=501),
        errors.Forbidden: Problem("", status=403),
        errors.NotFound: Problem("", status=404),
        NotMounted: not_mounted,
        control_client.NoDaemon: not_mounted,
        control_client.NotResponding: silent,
        control_client.Unconnectable: silent,
        control_client.DaemonExited: silent,
        control_client.DaemonTimeout: busy,
        control_client.EarlierDaemon: earlier,
    }
