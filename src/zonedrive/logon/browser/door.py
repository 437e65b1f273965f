"""Who may speak to the listener, told from the request and its connection alone.

Must not know what a request is for.

The listener is reachable for every page that a browser on this machine shows and for every user of
it.  A foreign page is kept out by names that it cannot guess, by the Host header (a name that was
made to resolve to 127.0.0.1) and by Origin; another user by the owner of the connection, which the
kernel tells.
"""

import os
from pathlib import Path

TABLE = Path("/proc/net/tcp")
ROOT = 0  # relays of virtual machines and of ssh run as root


def is_ours(headers: dict[bytes, bytes], host: str) -> bool:
    """Whether the request names us by our own address."""
    return headers.get(b"host", b"").decode("latin-1") == host


def is_own_page(headers: dict[bytes, bytes], host: str) -> bool:
    """Whether a page that we served ourselves sends the request."""
    site = headers.get(b"sec-fetch-site", b"same-origin")
    return headers.get(b"origin") == f"http://{host}".encode() and site == b"same-origin"


def is_this_user(peer: int, here: int, table: Path = TABLE) -> bool:
    """Whether the connection from port `peer` of 127.0.0.1 to port `here` is ours or root's.

    Where the kernel does not tell, what cannot be guessed has to do.
    """
    mine, other = f"0100007F:{here:04X}", f"0100007F:{peer:04X}"
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except OSError:
        return True
    for line in lines:
        fields = line.split()
        if len(fields) > 7 and fields[1] == other and fields[2] == mine:
            return int(fields[7]) in (ROOT, os.getuid())
    return True
