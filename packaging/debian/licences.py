"""Print a paragraph of debian/copyright for each library in a folder: licences.py FOLDER."""

import sys
from importlib.metadata import Distribution, distributions


def paragraph(one: Distribution) -> str:
    """Who made it, and under which licence, in its own words."""
    about = one.metadata
    who = about.get("Author") or about.get("Author-email") or f"the authors of {one.name}"
    kinds = [
        text.split(" :: ")[-1] for text in about.get_all("Classifier") or [] if "License" in text
    ]
    licence = about.get("License-Expression") or ", ".join(kinds) or about.get("License") or ""
    name = one.name.replace("-", "_")
    return "\n".join(
        [
            "",
            f"Files: usr/lib/zonedrive/lib/python3.11/site-packages/{name}*",
            f"Copyright: {' '.join(who.split())}",
            f"License: {one.name}",
            f" {one.name} {one.version}: {' '.join(licence.split())[:200]}",
            " .",
            f" The whole text is in the folder {name}-{one.version}.dist-info there.",
        ]
    )


def main() -> None:
    """One after the other, by name."""
    for one in sorted(distributions(path=[sys.argv[1]]), key=lambda one: one.name.lower()):
        if one.name != "zonedrive":
            print(paragraph(one))


main()
