"""Write debian/control and debian/changelog: metadata.py REPOSITORY SOURCES DEBIAN.

The maintainer is the author of the last commit, or the person in DEBFULLNAME and DEBEMAIL. Special
characters in the name or address cannot change the meaning of the files: neither a shell nor sed
reads them, line breaks are removed, and dpkg replaces no variable in them.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

FORMAT = "%an%x00%ae%x00%h%x00%aD%x00%cd"


def main() -> None:
    """Write both files, and print the version of the package."""
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
    # With the commit time, because apt does not replace an installed package of the same version.
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
    """Return the text on one line, without angle brackets, which would end a name or an address."""
    printable = (c if c.isprintable() else " " for c in text if c not in "<>")
    return " ".join("".join(printable).split())


if __name__ == "__main__":
    main()
