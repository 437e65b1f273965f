"""Write debian/control and debian/changelog: metadata.py REPOSITORY SOURCES DEBIAN.

Names come from the repository's history and from DEBFULLNAME and DEBEMAIL.  They are data: no shell
and no sed reads them, a line stays one line, and dpkg replaces nothing in them.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

FORMAT = "%an%x00%ae%x00%h%x00%aD%x00%cd"


def main() -> None:
    """Write both files."""
    repository, sources, debian = sys.argv[1:]
    command = ["git", "-C", repository, "log", "-1", "--no-show-signature", f"--format={FORMAT}"]
    command.append("--date=format-local:%Y%m%d%H%M%S")
    said = subprocess.run(  # noqa: S603
        command, stdout=subprocess.PIPE, check=True, env=os.environ | {"TZ": "UTC"}
    ).stdout
    author, email, commit, date, committed = (
        said.decode("utf-8", "replace").rstrip("\n").split("\0")
    )
    if mine := os.environ.get("DEBEMAIL"):
        author, email = os.environ.get("DEBFULLNAME") or mine, mine
    maintainer = f"{plain(author) or plain(email)} <{plain(email)}>"
    project = tomllib.loads((Path(sources) / "pyproject.toml").read_text("utf-8"))["project"]
    # With the time of the commit, as apt keeps what is installed if the version is the same.
    version = f"{project['version']}-1+{committed}~deb{debian}"
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+~-]*", version):
        sys.exit(f"metadata.py: {version!r} is no version of a Debian package")
    template = Path(sources) / "packaging" / "debian" / f"control.{debian}"
    text = template.read_text("utf-8")
    # dpkg-gencontrol replaces ${NAME} in this file, and ${} by a plain $.
    text = text.replace("@MAINTAINER@", maintainer.replace("$", "${}"))
    folder = Path(sources) / "debian"
    (folder / "control").write_text(text, "utf-8")
    (folder / "changelog").write_text(
        f"zonedrive ({version}) unstable; urgency=medium\n\n  * As of {commit}.\n\n"
        f" -- {maintainer}  {date}\n",
        "utf-8",
    )
    print(version)


def plain(text: str) -> str:
    """Return the text on one line, without what would end a name or an address."""
    printable = (c if c.isprintable() else " " for c in text if c not in "<>")
    return " ".join("".join(printable).split())


if __name__ == "__main__":
    main()
