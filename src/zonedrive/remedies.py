"""Conversion of errors and their remedies to text and buttons for the window and notifications.

The window is the web page that `zonedrive ui` opens. A clause of a remedy that names a command or
an option is replaced by a sentence. If the window can do the same as the command, there is also a
button.

`_rows` returns the patterns of such clauses with their sentences; the first match is used. If a
clause contains the name of a file, the patterns must not find a command in that name.

INVARIANT: only remedies are searched for commands. A message is compared only with fixed texts
(`_MESSAGES`, `_ENDINGS`), because it may contain text from the service or from another user.
"""

import re

from zonedrive.translation import translated as _
from zonedrive.translation import translated_line

LOG_ON, LOG_OFF, MOUNT, RESTART, RESUME = "log-on", "log-off", "mount", "restart", "resume"
OVERVIEW, CONFLICTS, TRASH, ZONES = "overview", "conflicts", "trash", "zones"
AGAIN, HELP, REPORT, EDIT = "again", "help", "report", "edit-settings"
"""Names of the buttons; the template `problem.html` has their forms and links."""

Row = tuple[str, str, tuple[str, ...]]
"""Pattern of a clause, the sentence that replaces a matching clause, and the sentence's buttons."""

_END = r"(?![-/\w]|\.\w)"  # of a word


_MESSAGES = (
    "there is no room for it: cache_size or the disk is too small",
    "a program still has it open for writing",
)
"""Messages without placeholders that name a command or a setting; replaced like a remedy."""

_ENDINGS = (
    "rename it, or see 'zonedrive doctor'",
    "run 'zonedrive doctor'",
    "'zonedrive doctor --profile PROFILE' tells whether the service has such a request",
    "log on with a --profile that has it",
)
"""Remedies, without placeholders, that the stored reason of a failed upload can end with.

Another user or the service may have written the reason, so the sentences that replace these
remedies never suggest an action that loses data.
"""


def message_in_window(text: str) -> str:
    """Translate a message, which may have several lines, to the language of the session."""
    if text in _MESSAGES:
        return remedy_in_window(text)[0]
    for remedy in _ENDINGS:
        if text.endswith(f"; {remedy}"):
            message = _translated(text.removesuffix(f"; {remedy}")).removesuffix(".")
            return f"{message}. {remedy_in_window(remedy)[0]}"
    return _translated(text)


def _translated(text: str) -> str:
    return "".join(map(translated_line, re.split("(; |\n)", text)))


def remedy_in_window(remedy: str) -> tuple[str, tuple[str, ...]]:
    """Replace commands and options in a remedy by sentences; return the text and its buttons."""
    return in_window("", remedy)


def in_window(message: str, remedy: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a message and its remedy, and the names of the buttons for the remedy.

    The text tells what to do in the web page, and names no commands or options. `remedy` must not
    contain text from the service.
    """
    clauses, buttons = remedy.split("; "), list[str]()
    is_changed = False
    for number, clause in enumerate(clauses):
        if row := replaced(clause):
            is_changed = True
            clauses[number] = row[1]
            buttons += [each for each in row[2] if each not in buttons]
        else:
            clauses[number] = translated_line(clause)
    clauses = [clause for clause in (message_in_window(message), *clauses) if clause]
    if not is_changed:
        return "; ".join(clauses), ()
    sentences = [clause if clause.endswith(".") else f"{clause}." for clause in clauses]
    # The first clause is the message, which may begin with the name of a file.
    first, *rest = sentences
    return " ".join([first, *(each[0].upper() + each[1:] for each in rest)]), tuple(buttons)


def replaced(clause: str) -> Row | None:
    """Return the first row of `_rows` whose pattern matches the clause, or None."""
    return next((row for row in _rows() if re.search(row[0], clause)), None)


def _command(names: str) -> str:
    """Return the pattern of a command, in quotes or after a word such as "run"."""
    return rf"(^|'|(run:?|see|with) )zonedrive ({names}){_END}"


def _option(names: str) -> str:
    """Return the pattern of an option that is a separate word."""
    return rf"(?<!\S)--({names}){_END}"


def _rows() -> list[Row]:
    discard = _option("discard")
    rest = _("Or delete what is only on this computer.")
    log_on = _("Log on again.")
    return [
        (r"^ask the administrator .* from the policies in .* copied elsewhere$",
         _("Ask the administrator of this computer to lift this policy until you have copied what"
           " you need elsewhere."), ()),
        (r"^ask the administrator .* from the policies in ",
         _("Ask the administrator of this computer to lift this policy until everything is uploaded"
           " and you have logged off."), ()),
        (rf"^if that service is gone,.*{discard}",
         _("If that service is gone, copy what you need, then log off and delete what is only on"
           " this computer."), (LOG_OFF,)),
        (rf"resume.*{discard}", _("Let the uploads continue.") + f" {rest}", (RESUME,)),
        (rf"logon.*{discard}", f"{log_on} {rest}", (LOG_ON,)),
        (rf"mount (it|and).*{discard}",
         _("Mount it, and copy what you need or wait until it is uploaded.") + f" {rest}",
         (MOUNT,)),
        (rf"(logoff|off with) {discard}",
         _("Log off, and log on again; what was not uploaded is then lost."), (LOG_OFF,)),
        (discard, _("Wait until everything is on the service.") + f" {rest}", (OVERVIEW,)),
        (r"^to change it,",
         _("To change it, wait until everything is on the service, log off, change it and log on"
           " again."), (LOG_OFF,)),
        (_option("ca-file"),
         _("Ask your IT department for its certificate file, log on again, and choose the file"
           " under “More choices”."), (LOG_ON,)),
        (_option("profile"),
         _("Ask your administrator for the profile of this service, and log on again with it, under"
           " “More choices”."), (LOG_ON,)),
        (_option("idp"), _("Give the name of the identity provider under “More choices”."), ()),
        (_option("timeout|session-only"), log_on, (LOG_ON,)),
        (_command("logoff"),
         _("Wait until everything is on the service, then log off and log on again."), (LOG_OFF,)),
        (r"^or end the mount with --now", "", ()),  # the window has no such button
        (r"'zonedrive unmount .* first$", _("Unmount it first."), (OVERVIEW,)),
        (_command("unmount") + r"|(?<!\S)unmount(ing)? and mount(ing)? again",
         _("Start it again."), (RESTART,)),
        (_command("mount"), _("Mount it."), (MOUNT,)),
        (_command("resume"), _("Let the uploads continue."), (RESUME,)),
        (r"^check the address that was given",
         _("Check the address that you gave for the logon."), ()),
        (_command("logon|tokens"), log_on, (LOG_ON,)),
        (_command("conflicts"), _("Decide about the conflicts."), (CONFLICTS,)),
        (_command("trash"), _("The page of the trash shows what is in it."), (TRASH,)),
        (_command("zones"), _("The page of the zones shows their names."), (ZONES,)),
        (_command("members"), _("The page of the members shows who is in it."), ()),
        (r"'zonedrive status', and try again", _("Try again."), (AGAIN,)),
        (r"'zonedrive status'( for which.*)?$",
         _("The overview shows which and why."), (OVERVIEW,)),
        (r"'zonedrive status', or write to another file$",
         _("The overview shows why it is not uploaded yet. If the service refuses it, save a copy"
           " of the version, or keep both."), (OVERVIEW,)),
        (_command("status|sync|send"), _("The overview shows more."), (OVERVIEW,)),
        (r"'zonedrive doctor --report",
         _("Save a report, and send it to your support."), (REPORT,)),
        (_command("doctor"), _("The page Help finds the cause."), (HELP,)),
        (r"^there is no room for it: cache_size",
         _("There is no room for it. Allow more in the settings, or free space on the disk."), ()),
        (r"^a program still has it open", _("A program still has it open for writing."), ()),
        (r"'timedatectl ", _("Turn on the automatic time of this computer."), ()),
        (r"^correct that line", _("Correct that line of the file, or move the file away."),
         (EDIT,)),
        (r"^if you cannot, use another " + _option("account"),
         _("If you cannot, give the account another name."), ()),
        (r"(another|with) " + _option("account"), _("Give the account another name."), ()),
    ]  # fmt: skip
