"""Decision about an upload, and its progress: never more than what was really sent."""

import random
from typing import cast

import pytest
from msgspec.structs import replace

from zonedrive.content.content_file import ContentFile
from zonedrive.model import Entry, Revision
from zonedrive.sync.upload import LEAST_PIECE, PIECE, Body, Decision, decide

FOUND = Entry("1", "z", "root", "a", folder=False, size=3, revision=Revision("2"))


class Bytes:
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_into(self, offset: int, into: memoryview) -> int:
        """Read as a ContentFile does."""
        piece = self._data[offset : offset + len(into)]
        into[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize(
    ("limit", "piece"), [(0, PIECE), (10 * LEAST_PIECE, 5 * LEAST_PIECE // 4), (1, LEAST_PIECE)]
)
def test_a_piece_counts_once_it_is_through(limit: int, piece: int) -> None:
    """A piece does not count while a limit delays it or the connection accepts it.

    With a limit, a piece is an eighth of a second's worth; the last one counts at the end of the
    body.
    """
    data = random.Random(piece).randbytes(5 * piece // 2)
    body = Body(cast("ContentFile", Bytes(data)), len(data), limit)
    assert body.sent == 0, "it waits for a connection"
    pieces = iter(body)
    given = [next(pieces)]
    assert body.sent == 0
    given.append(next(pieces))
    assert body.sent == piece
    given.append(next(pieces))
    assert body.sent == 2 * piece
    assert list(pieces) == []
    assert body.sent == len(data)
    assert [len(each) for each in given] == [piece, piece, piece // 2]
    assert b"".join(given) == data, "a piece keeps its bytes while the next one is read"
    next(iter(body))
    assert body.sent == 0, "it is sent anew"


def test_bytes_after_the_size_are_not_sent() -> None:
    """A file may have more bytes than the program has saved."""
    data = random.Random(1).randbytes(3 * PIECE)
    size = 5 * PIECE // 2
    body = Body(cast("ContentFile", Bytes(data)), size, 0)
    assert b"".join(body) == data[:size]
    assert body.sent == size


@pytest.mark.parametrize(
    ("found", "is_new", "decision"),
    [
        (None, True, Decision.SEND),
        (None, False, Decision.LOST),
        (FOUND, True, Decision.COMPARE),
        (FOUND, False, Decision.COMPARE),
        (replace(FOUND, revision=Revision("1")), False, Decision.SEND),
        (replace(FOUND, revision=Revision("1")), True, Decision.COMPARE),
        (replace(FOUND, size=4), True, Decision.CONFLICT),
        (replace(FOUND, size=4), False, Decision.CONFLICT),
        (replace(FOUND, folder=True), True, Decision.CONFLICT),
        (replace(FOUND, unsure=True), True, Decision.CONFLICT),
        (replace(FOUND, unsure=True), False, Decision.COMPARE),
    ],
)
def test_the_entry_on_the_service_decides_about_an_upload(
    found: Entry | None, is_new: bool, decision: Decision
) -> None:
    """Contents of equal size are compared, unless the entry of the new file's name is no file."""
    assert decide(3, found, is_new=is_new, base=Revision("1")) is decision
