"""The catalogues have every text of the window, the menus and the notifications, translated."""

import asyncio
import contextlib
import errno
import html
import importlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from babel.messages import mofile, pofile

from zonedrive import translation
from zonedrive.daemon import control_server
from zonedrive.logon.browser import signon
from zonedrive.remedies import message_in_window, remedy_in_window, replaced
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.error_mapping import broken
from zonedrive.ui import accounts, commands, pages
from zonedrive.ui.accounts import AccountView

ROOT = Path(__file__).parents[2]
CATALOGUES = sorted(translation.LOCALE.glob("*/LC_MESSAGES/zonedrive.po"))
PLACEHOLDER = re.compile(r"%\(\w+\)s|\{\w*\}")


@pytest.fixture
def german(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Set the language to German, and return the German catalogue without plurals."""
    monkeypatch.setenv("LANGUAGE", "de")
    translation._catalogue.cache_clear()
    yield {ids[0]: texts[0] for ids, texts in catalogue(CATALOGUES[0]).items() if len(ids) == 1}
    translation._catalogue.cache_clear()


@pytest.fixture
def command_texts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that finds the texts of commands."""
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    return importlib.import_module("command_texts")


def filled(text: str, verb: str = "is") -> str:
    """Return a text with a value for each placeholder, as a command prints the text."""
    values = {"n": "7", "verb": verb}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], f"<{found[1]}>"), text)


def catalogue(file: Path) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return texts, with their plurals, and their translations; a doubtful one is empty."""
    with file.open("rb") as opened:
        found = pofile.read_po(opened)
    return {
        forms(message.id): () if message.fuzzy else forms(message.string)
        for message in found
        if message.id
    }


def forms(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return singular and plural, or the only form."""
    return (text or "",) if isinstance(text, str | None) else tuple(text)


def test_every_text_is_in_the_catalogues(tmp_path: Path) -> None:
    """`packaging/translate` has been run since the last change of a text."""
    names = re.findall(r"-k (\S+)", (ROOT / "packaging/translate").read_text())
    keywords = [word for name in names for word in ("-k", name)]
    command = [sys.executable, "-m", "babel.messages.frontend", "-q", "extract"]
    environment = {**os.environ, "PYTHONPATH": "packaging"}
    place = tmp_path / "found.pot"
    subprocess.run(
        [*command, "-F", "pyproject.toml", *keywords, "-o", place, "src/zonedrive"],
        cwd=ROOT, env=environment, check=True,
    )  # fmt: skip
    texts = catalogue(place).keys()
    assert len(texts) > 100
    for file in CATALOGUES:
        assert catalogue(file).keys() == texts, "run packaging/translate"


def test_texts_of_commands_are_found(command_texts: Any) -> None:
    """Variables, f-strings, counts and the clauses of a remedy are texts; commands are not."""
    source = b"""
said = f"{name!r} is of {count(number, 'user')} {', now' if now else ''}"
raise NotFound(said, remedy="run 'zonedrive sync'; try again", status=404)
raise KeyError("no text of a command")
"""
    found = {"{name} is of {number} {value}", ", now", "{n} user", "{n} users", "try again"}
    assert {*command_texts.texts(source)} == found


@pytest.mark.parametrize("file", CATALOGUES, ids=lambda file: file.parents[1].name)
def test_every_text_is_translated(file: Path) -> None:
    """No translation is missing, doubtful or without a value that the text shows."""
    for ids, texts in catalogue(file).items():
        assert texts and all(texts), ids
        for text in texts:
            assert set(PLACEHOLDER.findall(text)) == set(PLACEHOLDER.findall(ids[-1])), text


@pytest.mark.parametrize("file", CATALOGUES, ids=lambda file: file.parents[1].name)
def test_the_compiled_catalogue_is_that_of_the_texts(file: Path) -> None:
    """The compiled catalogue matches the texts in the source catalogue."""
    compiled = io.BytesIO()
    with file.open("rb") as opened:
        mofile.write_mo(compiled, pofile.read_po(opened))
    assert file.with_suffix(".mo").read_bytes() == compiled.getvalue()


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [("de_AT.UTF-8", "Einstellungen", "2 Uploads sind"), ("C", "Settings", "2 uploads failed")],
)
def test_texts_are_in_the_language_of_the_session(
    language: str, text: str, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A country without a catalogue of its own has that of its language; others have English."""
    monkeypatch.delenv("LANGUAGE", raising=False)
    monkeypatch.setenv("LC_ALL", language)
    translation._catalogue.cache_clear()
    try:
        assert translation.translated("Settings") == text
        many = translation.translated_count("{count} upload failed.", "{count} uploads failed.", 2)
        assert many.format(count=2).startswith(count)
    finally:
        translation._catalogue.cache_clear()


def test_a_line_with_values_is_translated(german: dict[str, str]) -> None:
    """The translation has the values of the line."""
    texts = [text for text in german if re.search(r"\{\w+\}", text)]
    assert len(texts) > 200
    for text in texts:
        said = (
            filled(german[text]).replace("is", "ist") if "{verb}" in text else filled(german[text])
        )
        assert translation.translated_line(filled(text)) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", ""),
        ("no such text", "no such text"),
        ("a b/failed: no such text", "a b/failed: no such text"),
        ("a b/failed: the name is taken", "a b/failed: der Name ist vergeben"),
        ("restored conflict", "wiederhergestellt: conflict"),
        ("1 file is not on the service yet; kept here, uploads continue at the next mount",
         "1 Datei ist noch nicht auf dem Dienst; hier aufbewahrt, Uploads gehen beim nächsten"
         " Einhängen weiter"),
        ("3 pending changes, the oldest for 1 day", "3 nicht gesendete Änderungen, die älteste seit"
         " 1 Tag"),
        ("uploading: the name is taken (HTTP 409 X: exists); use another name here or there",
         "Hochladen: der Name ist vergeben (HTTP 409 X: exists); verwenden Sie hier oder dort einen"
         " anderen Namen"),
        ("the service offers no identity provider 'x'; there is corp, other",
         "der Dienst bietet den Identitätsanbieter 'x' nicht an; es gibt corp, other"),
        ("logging on: the service asks again for the one-time code",
         "Anmelden: der Dienst verlangt noch einmal den Einmalcode"),
        ("the browser signed on as a user whom the service does not name, not as bob, which was not"
         " confirmed",
         "der Browser hat sich angemeldet als jemand, dessen Namen der Dienst nicht nennt, nicht"
         " als bob, und das wurde nicht bestätigt"),
        ("run 'zonedrive sync'", "führen Sie 'zonedrive sync' aus"),
        *((line, line) for line in (
            "run 'zonedrive logoff', then 'zonedrive logon https://x'",
            "run 'zonedrive mount DIR' and 'zonedrive sync' first, or keep both apart; if that"
            " service is gone, copy what you need, then run 'zonedrive logoff --discard'",
        )),
        ("a second signal (SIGTERM) ended it before it was unmounted",
         "ein zweites Signal (SIGTERM) beendete ihn vor dem Aushängen"),
        ("2 of 5 pending changes failed: 1 refused by the service, 1 failed",
         "5 nicht gesendete Änderungen, davon 2 fehlgeschlagen: 1 vom Dienst abgelehnt, 1"
         " fehlgeschlagen"),
    ],
)  # fmt: skip
def test_a_line_of_several_texts_is_translated(
    line: str, said: str, german: dict[str, str]
) -> None:
    """Each part that the catalogue has is translated; names and other texts stay."""
    assert translation.translated_line(line) == said


def test_the_page_after_a_sign_on_is_german(german: dict[str, str]) -> None:
    """A reason that the catalogue has with its context is translated, and shown without it."""
    said = signon._sentence("logging on: the service refuses, without a reason")
    assert (
        f"Anmelden: {said[0].lower()}{said[1:-1]}"
        == german["logging on: the service refuses, without a reason"]
    )


def test_a_long_line_takes_little_time(german: dict[str, str]) -> None:
    """Names and messages may be made of separators: lines are translated to a limited depth."""
    assert "the name is taken" in german
    for line in ("7 " * 5000, "a b: " * 20 + "the name is taken"):
        assert translation.translated_line(line) == line
    assert translation.translated_line("a b: the name is taken") == "a b: der Name ist vergeben"


def test_a_page_of_failed_checks_is_german(
    german: dict[str, str], command_texts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No detail and no remedy of a failed check is English, and none names a command."""
    files = [file for file in (ROOT / "src/zonedrive/doctor").glob("*.py")
             if not command_texts.TERMINAL.search(file.as_posix())]  # fmt: skip
    texts = {text for file in files for text in command_texts.texts(file.read_bytes(), {"bad"})}
    assert len(texts) > 100
    shown = help_page([(filled(text), filled(text)) for text in sorted(texts)], monkeypatch)
    for text in texts:
        assert shown.count(filled(german[text])) >= 3, text  # detail, remedy and list of all
        assert filled(text) not in shown
    assert not re.search(r"\bzonedrive (mount|unmount|status|logon|logoff|doctor|sync)\b", shown)


def help_page(checks: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the text of the page Help for failed checks, given as details and remedies."""
    view = AccountView("default", "Acme", "https://x", "me", "", {"state": "online", "pid": 1})
    found = [{"name": "user", "ok": False, "detail": one, "remedy": two} for one, two in checks]
    monkeypatch.setattr(accounts, "view", lambda name: view)
    monkeypatch.setattr(accounts, "names", lambda: ["default"])
    monkeypatch.setattr(commands, "listed", lambda *words, **_: {"checks": found})

    async def ask() -> str:
        transport = httpx.ASGITransport(app=pages.Window(contextlib.nullcontext).app)
        async with httpx.AsyncClient(transport=transport, base_url="http://window") as client:
            return html.unescape((await client.get("/a/default/help")).text)

    return asyncio.run(ask())


def test_a_remedy_with_a_command_is_a_german_sentence(
    german: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clause of the command is replaced, and the other clauses are translated."""
    check = "it cannot be read", "run 'zonedrive mount DIR', which repairs it; they are kept"
    shown = help_page([check], monkeypatch)
    assert "sie kann nicht gelesen werden" in shown
    assert "Hängen Sie es ein. Sie bleiben erhalten." in shown


def test_a_notice_of_the_connection_is_german(german: dict[str, str]) -> None:
    """The reason and the remedy of a lost connection are translated."""
    refused = httpx.ConnectError("refused")
    refused.__cause__ = OSError(errno.EHOSTUNREACH, "no route")
    error = broken(refused, "zones.example", "listing the zones")
    status = {"state": "offline", "pid": 1, "reason": f"{error.bare}; {error.remedy}"}
    (notice,) = AccountView("default", "", "", "", "", status).notices
    assert notice.text.startswith("zones.example ist nicht erreichbar (")
    assert notice.text.endswith("; prüfen Sie das Netzwerk und die Adresse des Dienstes")


def test_every_message_of_the_mapping_is_german(german: dict[str, str]) -> None:
    """Each answer of the service has a message and a remedy in German."""
    codes = {code for row in error_mapping.TABLE for code in row.codes.split()}
    statuses = {int(each) for row in error_mapping.TABLE for each in row.statuses.split()}
    pairs = [(400, code) for code in codes | error_mapping.WORDS.keys()]
    for status, code in [*pairs, *((each, "") for each in statuses | {507})]:
        body = json.dumps({"error": code}).encode()
        error = error_mapping.refusal(status, body, "listing a folder")
        message, _, detail = error.message.removeprefix("listing a folder: ").partition(" (HTTP")
        said = f"{german['listing a folder']}: {german[message]} (HTTP{detail}"
        assert message_in_window(error.message) == said
        for clause in filter(None, error.remedy.split("; ")):
            assert replaced(clause) or remedy_in_window(clause)[0] == german[clause]


def test_an_answer_for_a_notification_is_german(german: dict[str, str]) -> None:
    """A client that asks for it gets the texts of an answer without commands, in German."""
    answer = {
        "error": "a is not in the mount b",
        "remedy": "run 'zonedrive status'",
        "failed": [{"path": "a", "error": "the name is taken"}],
    }
    assert control_server.for_notification(answer) == {
        "error": "a ist nicht im eingehängten Ordner b. Die Übersicht zeigt, was es ist und warum.",
        "remedy": "",
        "failed": [{"path": "a", "error": "der Name ist vergeben"}],
    }
    assert control_server.for_notification({"done": True}) == {"done": True}
