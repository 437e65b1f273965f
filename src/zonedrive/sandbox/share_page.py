"""HTML page of a file, or of a folder with its entries, for share links and for members.

This module checks no permissions. INVARIANT: a page loads no external resource and runs no script.
"""

from collections.abc import Sequence
from html import escape

from starlette.responses import HTMLResponse

from zonedrive.sandbox import signon_page
from zonedrive.sandbox.database import Row


def page(organization: str, name: str, rows: Sequence[Row], address: str) -> HTMLResponse:
    """Return a page titled `name` with a link to `address`/<entry id> for each entry in `rows`."""
    items = "".join(_item(row, address) for row in rows)
    said = f"<ul>{items}</ul>" if items else "<p>There is nothing in it.</p>"
    body = f"<small>{escape(organization)} · sandbox</small><h1>{escape(_plain(name))}</h1>{said}"
    return signon_page.page(_plain(name), body)


def _item(row: Row, address: str) -> str:
    name = escape(_plain(row["name"]) + ("/" if row["folder"] else ""))
    size = "" if row["folder"] else f" <small>{row['size']} bytes</small>"
    return f'<li><a href="{escape(address)}/{escape(row["id"])}">{name}</a>{size}</li>'


def _plain(name: str) -> str:
    """Return the name with lone surrogates replaced, so that UTF-8 can encode it."""
    return name.encode("utf-8", "replace").decode()
