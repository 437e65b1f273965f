"""How far an upload is: never farther than what has been let through."""

from typing import cast

import pytest

from zonedrive.content.file import ContentFile
from zonedrive.vfs.delivery.uploads import LEAST_PIECE, PIECE, Body


class Bytes:
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, offset: int, size: int) -> bytes:
        """As a ContentFile does."""
        return self._data[offset : offset + size]


@pytest.mark.parametrize(
    ("limit", "piece"), [(0, PIECE), (10 * LEAST_PIECE, 5 * LEAST_PIECE // 4), (1, LEAST_PIECE)]
)
def test_a_piece_counts_once_it_is_through(limit: int, piece: int) -> None:
    """Not while a limit holds it back or the connection takes it: with a limit that is an eighth of
    a second's worth, and the last one counts when the body is at its end."""
    data = bytes(5 * piece // 2)
    body = Body(cast("ContentFile", Bytes(data)), len(data), limit)
    pieces = iter(body)
    assert len(next(pieces)) == piece
    assert body.sent == 0
    assert len(next(pieces)) == piece
    assert body.sent == piece
    assert len(next(pieces)) == piece // 2
    assert body.sent == 2 * piece
    assert list(pieces) == []
    assert body.sent == len(data)
    next(iter(body))
    assert body.sent == 0, "it is sent anew"
