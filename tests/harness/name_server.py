"""Name server that holds back answers, on a network that has nothing else.

Knows nothing of zonedrive. A process that is started with `APART` has this network alone, and the
files in /etc that this module replaces.
"""

import fcntl
import socket
import struct
import subprocess
import threading
from collections.abc import Collection
from pathlib import Path

APART = ("unshare", "--mount", "--net", "--propagation", "private")
IPV4, IPV6 = 1, 28  # types of queries: A, AAAA
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_ETC = {
    # The resolver repeats a query after half a minute, its maximum, and then gives up.
    "resolv.conf": "nameserver 127.0.0.1\noptions timeout:30 attempts:2\n",
    "nsswitch.conf": "hosts: dns\n",
}


class NameServer:
    """Name server of this process; every name has the address 127.0.0.1."""

    def __init__(self, folder: Path, *, answered: Collection[int] = ()) -> None:
        """Start it; hold back the answers to all types of queries but those in `answered`."""
        with socket.socket() as any_socket:
            up = struct.pack("16sh", b"lo", _UP_AND_RUNNING)
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, up)
        for name, text in _ETC.items():
            (folder / name).write_text(text)
            if (place := Path("/etc") / name).exists():
                subprocess.run(["mount", "--bind", folder / name, place], check=True)
        self.is_asked = threading.Event()  # a query waits for its answer
        self.is_repeated = False  # a query was sent again: the resolver has waited in vain
        self._answered = answered
        self._waiting: set[tuple[object, bytes]] = set()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(512)
            end = query.index(b"\0", 12) + 5  # of the question: name, type and class
            kind = int.from_bytes(query[end - 4 : end - 2], "big")
            mark = (sender, query[:2])
            if mark in self._waiting:
                self.is_repeated = True
            elif kind not in self._answered:
                self._waiting.add(mark)
                self.is_asked.set()
                continue
            has_address = kind == IPV4
            head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, has_address, 0, 0)
            address = struct.pack(">HHHIH4B", 0xC00C, IPV4, 1, 0, 4, 127, 0, 0, 1)
            self._socket.sendto(head + query[12:end] + address * has_address, sender)
