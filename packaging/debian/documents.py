"""Copy README.md and what it leads to: documents.py FOLDER.

The files keep their places, so that a link from one to another leads there in the package as well.
Only what lies in the checkout, and only pages, pictures and units; all else stays there.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST = ROOT / "README.md"
SHIPPED = {".md", ".png", ".svg", ".toml", ".service"}
LINK = re.compile(r"""(?:\]\(|\bsrc=["'])([^)\s"'#:]+)""")


def reachable() -> list[Path]:
    """All of them, the first one first."""
    found = [FIRST]
    for page in found:
        if page.suffix != ".md":
            continue
        for link in LINK.findall(page.read_text("utf-8")):
            path = (page.parent / link).resolve()
            if path.is_file() and path.is_relative_to(ROOT) and path.suffix in SHIPPED:
                found += [] if path in found else [path]
    return found


def main() -> None:
    """Copy them."""
    for path in reachable():
        target = Path(sys.argv[1]) / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o644)


if __name__ == "__main__":
    main()
