"""Access control of a server on the loopback address: origin of a request, owner of a connection.

Every page in a browser on this machine and every local user can reach such a server. The Origin
header shows whether a request comes from a foreign page, and the kernel reports the user who owns
the other end of a connection.

INVARIANT: a connection with an unknown owner is rejected. Connections of root are rejected too:
programs that run as root forward the traffic of other users (proxies, container port forwarders),
so a connection of root may come from any user.
"""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trio

IPV4_TABLE: Final = Path("/proc/net/tcp")
IPV6_TABLE: Final = Path("/proc/net/tcp6")  # also has the IPv6 sockets with IPv4 connections
MAPPED: Final = bytes(10) + b"\xff\xff"  # prefix of an IPv4 address in IPv6 form
# Inode number of a closed socket, for which the kernel may show root instead of the owner.
CLOSED: Final = "0"
LOCAL, REMOTE, OWNER, INODE = 1, 2, 7, 9  # columns
ESTABLISHED, CLOSE_WAIT = 1, 8  # states in which the other side has not given up its port
LOOKS: Final = 2  # reads of the tables: a table that changes during a read may lack a row
USERS: Final = Path("/proc/self/uid_map")
ALL_USERS: Final = ["0", "0", "4294967295"]
NOBODY: Final = Path("/proc/sys/kernel/overflowuid")

Address = tuple[str, int]


def is_own_page(headers: dict[bytes, bytes], host: str) -> bool:
    """Return True if a page of the server at `host` sent the request; `host` includes the port."""
    site = headers.get(b"sec-fetch-site", b"same-origin")
    return headers.get(b"origin") == f"http://{host}".encode() and site == b"same-origin"


def is_this_user(connection: trio.socket.SocketType) -> bool:
    """Return True if the program at the other end of an IPv4 connection runs as this user.

    The connection must still be open after /proc/net/tcp was read. Otherwise, the row with the
    connection's addresses could belong to a later connection.
    """
    return owner(connection.getpeername(), connection.getsockname()) == os.geteuid() and (
        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        in (ESTABLISHED, CLOSE_WAIT)
    )


def owner(peer: Address, here: Address) -> int | None:
    """Return the user id that owns the socket at `peer`, or None if the user id is unknown.

    `here` is the address of the socket at the other end of the connection.
    """
    for _ in range(LOOKS):
        found = {*_owners(IPV4_TABLE, peer, here), *_owners(IPV6_TABLE, peer, here)}
        if found:
            return found.pop() if len(found) == 1 and not _is_anybody(found) else None
    return None


def _owners(table: Path, peer: Address, here: Address) -> Iterator[int]:
    """Yield the user ids of the open sockets from `peer` to `here` in one kernel table."""
    mapped = table == IPV6_TABLE
    wanted = [_written(peer, mapped=mapped), _written(here, mapped=mapped)]
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except OSError:  # a machine without IPv6 has no such table
        return
    for line in lines:
        fields = line.split()
        if fields[LOCAL : REMOTE + 1] == wanted and fields[INODE] != CLOSED:
            yield int(fields[OWNER])


def _written(address: Address, *, mapped: bool) -> str:
    number = (MAPPED if mapped else b"") + socket.inet_aton(address[0])
    words = struct.unpack(f"={len(number) // 4}I", number)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def _is_anybody(found: set[int]) -> bool:
    """Return True if `found` has the overflow uid, which stands for users outside the namespace.

    Also return True if the overflow uid or the mapping of the user namespace cannot be read.
    """
    try:
        if USERS.read_text("ascii").split() == ALL_USERS:
            return False
        return int(NOBODY.read_text("ascii")) in found
    except OSError:
        return True
