"""Wrong answers to requests for content: the reader gets the right bytes or an error."""

import errno
import os
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

BIG = world.SEED["big.bin"]


def pieces(path: Path, offsets: list[int], size: int = 4096) -> list[bytes]:
    """Read parts of a file in the given order, without the kernel's readahead."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return [os.pread(descriptor, size, offset) for offset in offsets]
    finally:
        os.close(descriptor)


def shifted(answer: Answer) -> None:
    """Send another range than the requested one, with its correct header."""
    if answer.status == 206:
        first, rest = answer.headers["content-range"].removeprefix("bytes ").split("-", 1)
        last, total = rest.split("/")
        answer.headers["content-range"] = f"bytes {int(first) + 1}-{int(last) + 1}/{total}"


def beginning(answer: Answer) -> None:
    """Send the beginning of the file for each range, with its correct header."""
    if answer.status == 206:
        total = answer.headers["content-range"].split("/")[1]
        answer.headers["content-range"] = f"bytes 0-{len(answer.body) - 1}/{total}"


def without_range(answer: Answer) -> None:
    """Send a range without the Content-Range header."""
    answer.headers.pop("content-range", None)


def too_long(answer: Answer) -> None:
    """Announce more bytes than are sent."""
    answer.length += 1000
    answer.cut = True


def too_short(answer: Answer) -> None:
    """Announce fewer bytes than are sent."""
    answer.length = max(0, answer.length - 1000)
    answer.cut = True


def other_total(answer: Answer) -> None:
    """Announce a different size of the file."""
    if answer.status == 206:
        answer.headers["content-range"] = answer.headers["content-range"].split("/")[0] + "/99"


def planted(proxied: Mounted, name: str) -> Path:
    """Create another file with the bytes of `BIG`, of which nothing is cached."""
    proxied.zone.write(name, BIG)
    path = proxied.root / name
    eventually(path.exists, what="it shows here")
    return path


def test_a_service_that_sends_wrong_ranges_or_lengths(proxied: Mounted, proxy: FaultProxy) -> None:
    """Content with wrong ranges or lengths is never accepted; once the answers are right, it is
    read."""
    proxied.allow("range|announced|bytes|answer|reached|conflict copy|broke|refused|changed")
    for alter in (shifted, beginning, without_range, too_long, too_short, other_total):
        path = planted(proxied, f"{alter.__name__}.bin")
        proxy.alter = alter
        for at in (1_000_003, 2_500_000, 0):
            try:
                (found,) = pieces(path, [at])
            except OSError as wrong:
                allowed = (errno.EREMOTEIO, errno.EIO, errno.ESTALE, errno.ENETUNREACH)
                assert wrong.errno in allowed, path
            else:
                assert found == BIG[at : at + 4096], path
        proxy.alter = honest
        await_content(path, BIG)


def longer(answer: Answer) -> None:
    """Announce that the content is longer than the file."""
    if answer.status == 206:
        span, total = answer.headers["content-range"].split("/")
        answer.headers["content-range"] = f"{span}/{int(total) + 5}"
    else:
        answer.body += b"extra"
        answer.length += 5


def test_a_wrong_answer_is_requested_again_at_the_next_open(
    proxied: Mounted, proxy: FaultProxy
) -> None:
    """A file is requested again when a program opens it, even if another one still has it open."""
    proxied.allow("range|announced|bytes|answer|reached|conflict copy|broke|refused|changed")
    path = planted(proxied, "open.bin")
    proxy.alter = longer
    held = os.open(path, os.O_RDWR)  # the open for reading would fail
    try:
        for _ in range(3):
            before = len(proxy.asked)
            with pytest.raises(OSError, match="Input/output"):
                path.read_bytes()
            assert len(proxy.asked) > before
        with pytest.raises(OSError, match="Input/output"):
            os.pread(held, 4096, 2_000_000)
        proxy.alter = honest
        await_content(path, BIG)
        try:
            assert os.pread(held, 4096, 1_000_000) == BIG[1_000_000:1_004_096]
        except OSError as wrong:
            assert wrong.errno == errno.ESTALE
    finally:
        os.close(held)


def await_content(path: Path, content: bytes) -> None:
    """Wait until the whole content can be read."""

    def there() -> bool:
        try:
            return path.read_bytes() == content
        except OSError:
            return False

    eventually(there, what=f"{path.name} can be read")


def honest(answer: Answer) -> None:
    """Leave all answers unchanged."""


def anonymous(answer: Answer) -> None:
    """Remove the headers that distinguish versions."""
    for name in ("etag", "last-modified"):
        answer.headers.pop(name, None)


def test_a_file_that_changes_while_it_is_read(proxied: Mounted, proxy: FaultProxy) -> None:
    """A reader that has the file open gets the old version or ESTALE, never parts of two versions.

    A new open gets the new version.  The new version has the same size or is longer, with and
    without validators.
    """
    proxied.allow("changed|another version|conflict copy")
    for number, (alter, more) in enumerate(product((honest, anonymous), (b"", b"x" * 5000))):
        path = planted(proxied, f"{number}.bin")
        proxy.alter = alter
        new = bytes(byte ^ 0xFF for byte in BIG) + more
        read_while_it_changes(path, partial(proxied.zone.write, path.name, new))
        await_content(path, new)
        assert path.stat().st_size == len(new)


def read_while_it_changes(path: Path, change: Callable[[], object]) -> None:
    """Read parts of an open file, two of them before the change."""
    offsets = [2_900_000, 0, 1_500_000, 600_000, 2_200_000]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for number, at in enumerate(offsets):
            if number == 2:
                change()
            try:
                found = os.pread(descriptor, 4096, at)
            except OSError as wrong:
                assert number >= 2
                assert wrong.errno == errno.ESTALE
            else:
                assert found == BIG[at : at + 4096]
    finally:
        os.close(descriptor)
