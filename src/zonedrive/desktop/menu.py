"""Translated texts, names of emblems, and menu items.

This module does not depend on a file manager.
"""

import gettext
import os
from collections.abc import Collection, Sequence
from typing import NamedTuple

from .client import Entry

LOCALES = os.environ.get("ZONEDRIVE_LOCALES")
"""Folder of the translations; None means the system's default folder."""

_TEXTS = gettext.translation("zonedrive", LOCALES, fallback=True)
_ = _TEXTS.gettext

MARKED = ("failed", "conflict", "uploading", "pending")


def plural(one: str, many: str, count: int) -> str:
    """Return the translated text for `count`, with `{count}` replaced by the number."""
    return _TEXTS.ngettext(one, many, count).format(count=count)


class Item(NamedTuple):
    """Menu item for any of the file managers."""

    action: str  # name in `actions.ACTIONS`
    label: str
    icon: str


def emblem(entry: Entry) -> str:
    """Return the name of an entry's emblem, or "" for an entry that never leaves this machine.

    There is no emblem for read-only entries, because file managers mark them by their permissions.
    """
    if entry.state in MARKED:
        return f"emblem-zonedrive-{entry.state}"
    if entry.state != "synced":
        return ""
    is_here = entry.kept and not entry.missing
    return "emblem-zonedrive-kept" if is_here else "emblem-zonedrive-synced"


def top_items(paused: bool) -> list[Item]:
    """Return the menu items for a whole mount; `paused` is True while its uploads are paused."""
    if paused:
        return [Item("resume", _("Resume uploads"), "media-playback-start")]
    return [Item("pause", _("Pause uploads"), "media-playback-pause")]


def items(entries: Sequence[Entry], can: Collection[str], is_single: bool) -> list[Item]:
    """Return the menu items for a selection, or [] if `entries` is empty.

    `entries` are the states of some or all selected entries. `can` contains the operations that the
    service's profile defines. `is_single` is True if exactly one entry is selected.
    """
    if not entries:
        return []
    states = {entry.state for entry in entries}
    sent = states != {"local"}
    is_file = is_single and not entries[0].folder
    found = []
    if "conflict" in states and is_single:
        found.append(Item("conflict", _("Decide the conflict…"), "dialog-question"))
    if states & {"pending", "failed"}:
        found.append(Item("send", _("Send now"), "go-up"))
    if sent and not all(entry.kept for entry in entries):
        found.append(Item("keep", _("Keep on this computer"), "emblem-zonedrive-kept"))
    if any(entry.kept for entry in entries):
        found.append(Item("stop-keeping", _("Stop keeping on this computer"), "edit-clear"))
    if sent and is_file and "versions" in can:
        found.append(Item("versions", _("Versions…"), "document-open-recent"))
    if sent and ((is_file and "versions" in can) or (is_single and "zone_log" in can)):
        found.append(Item("log", _("Who changed this…"), "system-users"))
    if sent and is_single and "member_link" in can:
        found.append(Item("link", _("Copy link for members"), "edit-copy"))
    if sent and is_single and "share" in can:
        found.append(Item("share", _("Share…"), "emblem-shared"))
    return found
