"""One connection's bytes, plain or within TLS, taken in large pieces.

Must not know requests, timeouts or what a peer may take its time for: nothing here waits.

Not `ssl.SSLSocket`: that makes two system calls for each record of 16 KiB, and between any two
of them this thread may lose Python's lock to another one.  Here the system is asked for as much
as it has, and the records are opened one after the other.
"""

import contextlib
import socket
import ssl
from typing import Protocol, cast

_RAW = 64 * 1024  # bytes asked of the system at once; who wants more reads a body
_RAW_BULK = 256 * 1024  # the same while a body flows; also what is sealed at once


class Channel(Protocol):
    """Bytes of one connection."""

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of it, if any."""

    def take(self, into: memoryview) -> int | None:
        """Some bytes, 0 at the end, None where nothing is there yet.  Raises OSError."""

    def give(self, data: memoryview) -> int:
        """How many of `data` were taken over; `flush` sees to the rest.  Raises OSError."""

    def flush(self) -> bool:
        """Send what was taken over; False where the system takes no more for now."""


class Plain:
    """The socket itself."""

    tls = None

    def __init__(self, raw: socket.socket) -> None:
        """From here on `raw` does not block."""
        self._raw = raw
        raw.setblocking(False)

    def take(self, into: memoryview) -> int | None:
        """See Channel."""
        try:
            return self._raw.recv_into(into)
        except BlockingIOError:
            return None

    def give(self, data: memoryview) -> int:
        """See Channel."""
        with contextlib.suppress(BlockingIOError):
            return self._raw.send(data)
        return 0

    def flush(self) -> bool:
        """Nothing is held back."""
        return True


class Tls:
    """TLS over another channel."""

    def __init__(
        self, below: Channel, context: ssl.SSLContext, server_hostname: str | None
    ) -> None:
        """`shake` comes first."""
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._buffer = memoryview(bytearray(_RAW))
        self._unsent = memoryview(b"")

    def shake(self) -> bool:
        """Go on with the handshake; whether it is done.  Raises OSError, ssl.SSLError."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                if not (self.flush() and self._refill()):
                    return False
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self.flush()  # the peer shall know why
                raise
            else:
                self.flush()
                return True

    def take(self, into: memoryview) -> int | None:
        """See Channel; at most one record."""
        if len(into) > _RAW == len(self._buffer):
            self._buffer = memoryview(bytearray(_RAW_BULK))
        while True:
            try:
                # The annotation is that of a read without a buffer.
                return cast(int, self.tls.read(len(into), into))
            except ssl.SSLWantReadError:
                pass
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0  # who expects more finds it missing
            self.flush()  # the answer to a change of keys
            if not self._refill():
                return None

    def give(self, data: memoryview) -> int:
        """See Channel."""
        if not self.flush():
            return 0
        try:
            taken = self.tls.write(data[:_RAW_BULK])
        except ssl.SSLWantReadError:  # TLS 1.2, renegotiating
            return 0
        self.flush()
        return taken

    def flush(self) -> bool:
        """See Channel."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            sent = self._below.give(self._unsent)
            if not sent:
                return False
            self._unsent = self._unsent[sent:]
        return self._below.flush()

    def _refill(self) -> bool:
        count = self._below.take(self._buffer)
        if count is None:
            return False
        if count:
            self._incoming.write(self._buffer[:count])
        else:
            self._incoming.write_eof()
        return True
