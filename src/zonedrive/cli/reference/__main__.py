"""`python -m zonedrive.cli.reference FOLDER`: write all pages and scripts to a `share` folder.

In ~/.local/share, for example, man, bash and fish find them by themselves.
"""

import sys
from pathlib import Path

from zonedrive.cli.reference import commands, completions, manual


def main() -> None:
    """Write all files and print their paths."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m zonedrive.cli.reference FOLDER")
    root = commands.read()
    texts = {path: make(root) for path, make in completions.SHELLS.items()}
    texts["man/man1/zonedrive.1"] = manual.zonedrive_1(root)
    texts["man/man5/zonedrive.toml.5"] = manual.zonedrive_toml_5()
    for name, text in texts.items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(path)


if __name__ == "__main__":
    main()
