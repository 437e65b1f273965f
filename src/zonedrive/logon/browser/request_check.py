"""Access control of a server on the loopback address: origin of a request, owner of a connection.

Every page in a browser on this machine and every local user can reach such a server. The Origin
header shows whether a request comes from a foreign page, and the kernel reports the user who owns
the other end of a connection.

INVARIANT: a connection with an unknown owner is rejected. Connections of root are rejected too:
programs that run as root forward the traffic of other users (proxies, container port forwarders),
so a connection of root may come from any user.

A server calls `require_owners` before it starts. Without this check, a server on a system whose
kernel names no owner would reject the user's own browser without a message.
"""

import os
import socket
import struct
from pathlib import Path
from typing import Final

import trio

from zonedrive.errors import ZonedriveError

# The query for one socket has the same cost whatever the number of sockets. /proc/net/tcp has a
# row for each socket, and another user can make thousands of them. See sock_diag(7).
NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST: Final = 1
HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
# inet_diag_req_v2: family, protocol, extensions, padding, states; then the inet_diag_sockid with
# the ports and addresses of the socket and of its other end, an interface and a cookie.
REQUEST: Final = struct.Struct("=BBBxI 2s2s 16s16s I8s")
ANY_INTERFACE: Final = 0
NO_COOKIE: Final = b"\xff" * 8
ANSWER: Final = struct.Struct("=xB2x 48x 12xII")  # inet_diag_msg: state, owner, inode number
PIECE: Final = 4096
CLOSED: Final = 0  # inode number of a closed socket, for which the kernel may show root as owner
ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT = 1, 4, 5, 8  # states of a TCP socket
CONNECT_SECONDS: Final = 10.0
USERS: Final = Path("/proc/self/uid_map")
ALL_USERS: Final = ["0", "0", "4294967295"]
NOBODY: Final = Path("/proc/sys/kernel/overflowuid")

Address = tuple[str, int]


def is_own_page(headers: dict[bytes, bytes], host: str) -> bool:
    """Return True if a page of the server at `host` sent the request; `host` includes the port."""
    site = headers.get(b"sec-fetch-site", b"same-origin")
    return headers.get(b"origin") == f"http://{host}".encode() and site == b"same-origin"


def require_owners(*, remedy: str) -> None:
    """Raise ZonedriveError with `remedy` if the kernel does not name the owner of a connection.

    The kernel names no owner if a kernel module is missing, for example after an upgrade without a
    restart, and in some sandboxes and user namespaces.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), CONNECT_SECONDS) as browser,
    ):
        if owner(browser.getsockname(), browser.getpeername()) is None:
            raise ZonedriveError(
                "the kernel does not tell which user a connection belongs to, so that other users"
                " cannot be kept out",
                remedy=remedy,
            )


def is_this_user(connection: trio.socket.SocketType) -> bool:
    """Return True if the program at the other end of an IPv4 connection runs as this user.

    The state of the connection is checked after the owner. If the connection is no longer open,
    return False, because the kernel may have reported the owner of a later connection with the same
    addresses. Raises OSError if the connection had already ended before the call.
    """
    return owner(connection.getpeername(), connection.getsockname()) == os.geteuid() and (
        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        in (ESTABLISHED, CLOSE_WAIT)
    )


def owner(peer: Address, here: Address) -> int | None:
    """Return the user id that owns the socket at `peer`, or None if the user id is unknown.

    `here` is the address of the socket at the other end of the connection. The kernel finds IPv6
    sockets with IPv4 connections, too.
    """
    wanted = REQUEST.pack(
        socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _port(peer), _port(here),
        socket.inet_aton(peer[0]), socket.inet_aton(here[0]), ANY_INTERFACE, NO_COOKIE,
    )  # fmt: skip
    length = HEADER.size + len(wanted)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0) + wanted)
            answer = kernel.recv(PIECE, socket.MSG_DONTWAIT)  # send() returns after the answer
    except OSError:  # this kernel or sandbox has no such query
        return None
    if HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:  # an error: there is no such socket
        return None
    state, user, inode = ANSWER.unpack_from(answer, HEADER.size)
    # The kernel may return a listening socket instead, or one that is not connected to `here` yet.
    if state not in (ESTABLISHED, FIN_WAIT1, FIN_WAIT2) or inode == CLOSED:
        return None
    return None if _is_anybody(user) else user


def _port(address: Address) -> bytes:
    return address[1].to_bytes(2, "big")


def _is_anybody(user: int) -> bool:
    """Return True if `user` may stand for any user outside of this process's user namespace.

    The kernel shows such a user as the overflow uid, unless the namespace maps all users. Also
    return True if the overflow uid or the mapping of the user namespace cannot be read.
    """
    try:
        if USERS.read_text("ascii").split() == ALL_USERS:
            return False
        return int(NOBODY.read_text("ascii")) == user
    except OSError:
        return True
