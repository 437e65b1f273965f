"""Conversion of errors and their remedies to text and buttons for the window and notifications.

The window is the web page that `zonedrive ui` opens. A clause of a remedy that names a command or
an option is replaced by a sentence. If the window can do the same as the command, there is also a
button.

`_rows` has these sentences. A clause may contain the name of a file, in which the patterns
must not find a command.

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

_END = r"(?![-/\w]|\.\w)"  # of a word

_MESSAGES = (
    "there is no room for it: cache_size or the disk is too small",
    "a program still has it open for writing",
    "a program still reads the removed file",
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
    texts, buttons, is_replaced = [message_in_window(message)], list[str](), False
    for clause in remedy.split("; "):
        if found := replaced(clause):
            is_replaced = True
            texts.append(found[0])
            buttons += found[1:]
        else:
            texts.append(translated_line(clause))
    texts = [text for text in texts if text]
    if not is_replaced:
        return "; ".join(texts), ()
    # The first text is the message, which may begin with the name of a file.
    first, *rest = (text if text.endswith(".") else f"{text}." for text in texts)
    sentences = [first, *(text[0].upper() + text[1:] for text in rest)]
    return " ".join(sentences), tuple(dict.fromkeys(filter(None, buttons)))


def replaced(clause: str) -> tuple[str, str] | None:
    """Return the sentence that replaces a clause of a remedy, and the sentence's button, or "".

    Return None if no sentence replaces the clause.
    """
    return next((row[1:] for row in _rows() if re.search(row[0], clause)), None)


def _command(names: str) -> str:
    """Return a pattern for the commands `names`, in quotes or after a word such as "run".

    `names` are alternatives, separated by "|".
    """
    return rf"(^|'|(run:?|see|with) )zonedrive ({names}){_END}"


def _option(names: str) -> str:
    """Return a pattern for the options `names`, separated by "|"; each must be a separate word."""
    return rf"(?<!\S)--({names}){_END}"


def _rows() -> list[tuple[str, str, str]]:
    """Return the rows (pattern, sentence, button or "").

    The sentence of the first row whose pattern matches a clause of a remedy replaces the clause.
    """
    discard = _option("discard")
    or_discard = " " + _("Or delete what is only on this computer.")
    log_on = _("Log on again.")
    return [
        # clauses with words that no other clause has
        (r"^ask the administrator .* from the policies in .* copied elsewhere$",
         _("Ask the administrator of this computer to lift this policy until you have copied what"
           " you need elsewhere."), ""),
        (r"^ask the administrator .* from the policies in ",
         _("Ask the administrator of this computer to lift this policy until everything is uploaded"
           " and you have logged off."), ""),
        (r"^to change it,",
         _("To change it, wait until everything is on the service, log off, change it and log on"
           " again."), LOG_OFF),
        (r"^or end the mount with --now", "", ""),  # the window has no such button
        (r"^check the address that was given",
         _("Check the address that you gave for the logon."), ""),
        (r"^there is no room for it: cache_size",
         _("There is no room for it. Allow more in the settings, or free space on the disk."), ""),
        (r"^a program still has it open", _("A program still has it open for writing."), ""),
        (r"^a program still reads the removed file", _("A program still reads it."), ""),
        (r"^correct that line",
         _("Correct that line of the file, or move the file away."), EDIT),
        (r"^if you cannot, use another --account",
         _("If you cannot, give the account another name."), ""),
        (r"'timedatectl ", _("Turn on the automatic time of this computer."), ""),
        (r"'zonedrive unmount .* first$", _("Unmount it first."), OVERVIEW),
        (r"'zonedrive status', and try again", _("Try again."), AGAIN),
        (r"'zonedrive status'( for which.*)?$", _("The overview shows which and why."), OVERVIEW),
        (r"'zonedrive status', or write to another file$",
         _("The overview shows why it is not uploaded yet. If the service refuses it, save a copy"
           " of the version, or keep both."), OVERVIEW),
        (r"'zonedrive doctor --report", _("Save a report, and send it to your support."), REPORT),
        # what to do before --discard, or instead
        (rf"^if that service is gone,.*{discard}",
         _("If that service is gone, copy what you need, then log off and delete what is only on"
           " this computer."), LOG_OFF),
        (rf"resume.*{discard}", _("Let the uploads continue.") + or_discard, RESUME),
        (rf"logon.*{discard}", log_on + or_discard, LOG_ON),
        (rf"mount (it|and).*{discard}",
         _("Mount it, and copy what you need or wait until it is uploaded.") + or_discard, MOUNT),
        (rf"(logoff|off with) {discard}",
         _("Log off, and log on again; what was not uploaded is then lost."), LOG_OFF),
        (discard, _("Wait until everything is on the service.") + or_discard, OVERVIEW),
        # options of the logon
        (_option("ca-file"),
         _("Ask your IT department for its certificate file, log on again, and choose the file"
           " under “More choices”."), LOG_ON),
        (_option("profile"),
         _("Ask your administrator for the profile of this service, and log on again with it, under"
           " “More choices”."), LOG_ON),
        (_option("idp"), _("Give the name of the identity provider under “More choices”."), ""),
        (_option("timeout|session-only"), log_on, LOG_ON),
        # commands; their order matters for clauses that name several
        (_command("logoff"),
         _("Wait until everything is on the service, then log off and log on again."), LOG_OFF),
        (_command("unmount") + r"|(?<!\S)unmount(ing)? and mount(ing)? again",
         _("Start it again."), RESTART),
        (_command("mount"), _("Mount it."), MOUNT),
        (_command("resume"), _("Let the uploads continue."), RESUME),
        (_command("logon|tokens"), log_on, LOG_ON),
        (_command("conflicts"), _("Decide about the conflicts."), CONFLICTS),
        (_command("trash"), _("The page of the trash shows what is in it."), TRASH),
        (_command("zones"), _("The page of the zones shows their names."), ZONES),
        (_command("members"), _("The page of the members shows who is in it."), ""),
        (_command("status|sync|send"), _("The overview shows more."), OVERVIEW),
        (_command("doctor"), _("The page Help finds the cause."), HELP),
        # last, because many commands have this option
        (r"(another|with) " + _option("account"), _("Give the account another name."), ""),
    ]  # fmt: skip
