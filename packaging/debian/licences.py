"""Print a paragraph of debian/copyright for each library in a folder: licences.py FOLDER."""

import sys
from importlib.metadata import Distribution
from pathlib import Path


def paragraph(folder: Path, one: Distribution) -> str:
    """Return the paragraph of a library, with the authors and the licence from its metadata.

    `folder` is the library's .dist-info folder.
    """
    about = one.metadata
    who = about.get("Author") or about.get("Author-email") or f"the authors of {one.name}"
    kinds = [
        text.split(" :: ")[-1] for text in about.get_all("Classifier") or [] if "License" in text
    ]
    licence = about.get("License-Expression") or ", ".join(kinds) or about.get("License") or ""
    name = folder.name.partition("-")[0]  # normalized, so it may differ from the library's own
    return "\n".join(
        [
            "",
            f"Files: usr/lib/zonedrive/lib/python3.11/site-packages/{name}*",
            f"Copyright: {' '.join(who.split())}",
            f"License: {one.name}",
            f" {one.name} {one.version}: {' '.join(licence.split())[:200]}",
            " .",
            f" The whole text is in the folder {folder.name} there.",
        ]
    )


def main() -> None:
    """Print the paragraphs of all libraries except zonedrive, ordered by name."""
    folders = {path: Distribution.at(path) for path in Path(sys.argv[1]).glob("*.dist-info")}
    for folder, one in sorted(folders.items(), key=lambda item: item[1].name.lower()):
        if one.name != "zonedrive":
            print(paragraph(folder, one))


main()
