"""The catalogues have every text of the window, the menus and the notifications, translated."""

import io
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from babel.messages import mofile, pofile

from zonedrive import translation

ROOT = Path(__file__).parents[2]
CATALOGUES = sorted(translation.LOCALE.glob("*/LC_MESSAGES/zonedrive.po"))
PLACEHOLDER = re.compile(r"%\(\w+\)s|\{\w*\}")


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
    place = tmp_path / "found.pot"
    subprocess.run(
        [*command, "-F", "pyproject.toml", *keywords, "-o", place, "src/zonedrive"],
        cwd=ROOT, check=True,
    )  # fmt: skip
    texts = catalogue(place).keys()
    assert len(texts) > 100
    for file in CATALOGUES:
        assert catalogue(file).keys() == texts, "run packaging/translate"


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
