"""Documents as data: pages with their blocks of code, spans of code, links and headings.

Knows nothing of commands.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zonedrive.cli.reference import manual

ROOT = Path(__file__).parents[2]

# Where people look for documents; the example world of the sandbox is somebody's documents.
FOLDERS = ("src", "packaging", "systemd", "tests")
NOT_OURS = "src/zonedrive/sandbox/world/"

# Code within a sentence: between backquotes, also over the end of a line, not of a paragraph.
CODE = re.compile(r"(?<!`)`(?!`)((?:[^`\n]|\n(?!\s*\n))+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """Block of code; `line` is that of its first line."""

    page: str
    line: int
    section: str
    language: str  # "" for a block that is only indented
    text: str

    @property
    def where(self) -> str:
        """Place of the line, for messages."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Span:
    """Span of code within a sentence, with white space collapsed."""

    page: str
    line: int
    section: str
    text: str

    @property
    def where(self) -> str:
        """Return the place for messages."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """Single document; `text` has the prose with the blocks blanked out."""

    name: str  # its path from the top
    text: str
    blocks: tuple[Block, ...]
    spans: tuple[Span, ...]
    links: tuple[tuple[int, str], ...]
    headings: tuple[tuple[int, str], ...]  # with their level

    @property
    def slugs(self) -> frozenset[str]:
        """Return the targets for links to parts of the page."""
        plain = (re.sub(r"[^\w\- ]", "", title.lower()) for _, title in self.headings)
        return frozenset(title.replace(" ", "-") for title in plain)


def pages() -> tuple[Page, ...]:
    """Return all documents."""
    return (*written(), *units(), *manuals())


def written() -> tuple[Page, ...]:
    """Return the Markdown files."""
    found = [*ROOT.glob("*.md"), *(file for name in FOLDERS for file in _below(ROOT / name))]
    names = sorted(file.relative_to(ROOT).as_posix() for file in found)
    return tuple(
        page(name, (ROOT / name).read_text("utf-8"))
        for name in names
        if not name.startswith(NOT_OURS)
    )


def _below(folder: Path) -> Iterator[Path]:
    yield from folder.rglob("*.md")


def units() -> tuple[Page, ...]:
    """Return the comments of systemd's units, which are written like pages."""
    files = sorted(each for each in (ROOT / "systemd").iterdir() if each.suffix != ".md")
    return tuple(page(f"systemd/{file.name}", _comments(file.read_text("utf-8"))) for file in files)


def _comments(text: str) -> str:
    lines = (line.removeprefix("#").removeprefix(" ") for line in text.splitlines())
    kept = (line.startswith("#") for line in text.splitlines())
    return "\n".join(
        line if is_comment else "" for line, is_comment in zip(lines, kept, strict=True)
    )


def manuals() -> tuple[Page, ...]:
    """Return the manual pages, of which only the examples are used."""
    names = ("zonedrive.1", "zonedrive.toml.5")
    return tuple(page(name, _examples(manual(name))) for name in names)


def _examples(text: str) -> str:
    """Return the text between .nf and .fi, and the examples of a help, as indented blocks."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("    zonedrive "):
            lines += ["", f"    {_unquoted(line.strip())}", ""]
            continue
        if line in (".nf", ".fi"):
            inside = line == ".nf"
            lines.append("")
        else:
            lines.append(f"    {_unquoted(line)}" if inside else "prose")
    return "\n".join(lines)


def _unquoted(line: str) -> str:
    for sign, plain in ((r"\-", "-"), (r"\(ti", "~"), (r"\(ha", "^"), (r"\(aq", "'"), (r"\&", "")):
        line = line.replace(sign, plain)
    return line.replace(r"\e", "\\")


def page(name: str, text: str) -> Page:
    """Parse a text in Markdown."""
    prose: list[str] = []
    blocks: list[Block] = []
    headings: list[tuple[int, str]] = []
    sections: list[str] = []
    section, fence, language, begun = "", "", "", 0
    held: list[str] = []

    def close() -> None:
        if any(line.strip() for line in held):
            body = "\n".join(held).rstrip() + "\n"
            blocks.append(Block(name, begun, section, language, body))
        held.clear()

    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+)\s*(\S*)", line)
        shown = ""
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2]:
                close()
                fence = ""
            else:
                held.append(line)
        elif mark:
            close()
            fence, language, begun = mark[1], mark[2], number + 1
        elif (
            line.startswith("    ") and line.strip() and (held or not (prose and prose[-1].strip()))
        ):
            if not held:
                language, begun = "", number
            held.append(line[4:])
        elif held and not line.strip():
            held.append("")
        else:
            close()
            shown = line
            if found := re.match(r"(#{1,6}) +(.*)", line):
                section = found[2].strip()
                headings.append((len(found[1]), section))
        prose.append(shown)
        sections.append(section)
    close()
    joined = "\n".join(prose)
    return Page(
        name, joined, tuple(blocks), tuple(_spans(name, joined, sections)),
        tuple(_links(joined)), tuple(headings),
    )  # fmt: skip


def _spans(name: str, text: str, sections: list[str]) -> Iterator[Span]:
    """Yield the text between backquotes."""
    for found in CODE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Span(name, line, sections[line - 1], " ".join(found[1].split()))


def _links(text: str) -> Iterator[tuple[int, str]]:
    """Yield the link targets, including those of images."""
    bare = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for found in re.finditer(r"\]\(([^()\s]+)\)", bare):
        yield bare.count("\n", 0, found.start()) + 1, found[1]
