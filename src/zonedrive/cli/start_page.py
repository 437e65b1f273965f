"""Start page of the browser: a private file that leads to a sign-on.

Knows nothing about the sign-on. All users of a machine can read the arguments of all processes. The
browser therefore gets the name of a file that only this user can read, never the address in it.

The file is in the home folder, under a name without a leading dot, because confined browsers (snap)
cannot read hidden folders, /tmp or the runtime folder.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

from zonedrive.errors import NoHomeDirectory
from zonedrive.paths import home, is_private, private_dir, runtime_dir

PREFIX = "zonedrive-sign-on-"


@contextlib.contextmanager
def leading_to(address: str) -> Iterator[Path | None]:
    """Yield a page that redirects to `address` during the block, or None on failure."""
    folder = _private_folder()
    if folder is None:
        yield None
        return
    try:
        page = folder / "sign-on.html"
        page.touch(0o600, exist_ok=False)
        page.write_bytes(_page(address))
        yield page
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _private_folder() -> Path | None:
    """Create a folder that no other user can enter or replace; return None on failure."""
    for place in (home, runtime_dir):
        with contextlib.suppress(OSError, NoHomeDirectory):
            above = place()
            if place is runtime_dir:
                private_dir(above)
            if is_private(above.resolve()):
                return Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))  # mode 0700
    return None


def _page(address: str) -> bytes:
    shown = escape(address)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>zonedrive</title>'
        '<meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0;url={shown}">'
        f'<p>zonedrive: <a href="{shown}">go on to the sign-on</a>\n'
        "(if you see this text with signs around it, open this file in a browser).</html>\n"
    ).encode()
