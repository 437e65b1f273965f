"""Copy README.md and the files that it links to, directly or indirectly: documents.py FOLDER.

The files keep their relative paths, so that links between them also work in the package. Only files
of the checkout with a suffix in SHIPPED are copied.
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
    """Return the paths of the files to copy, README.md first."""
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
    """Copy the files to the folder in the first argument."""
    for path in reachable():
        target = Path(sys.argv[1]) / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o644)


if __name__ == "__main__":
    main()
