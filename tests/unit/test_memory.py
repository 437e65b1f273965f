"""Memory for content."""

import weakref

import pytest

from zonedrive import memory


def test_unused_buffers_are_freed_and_used_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeing memory drops the buffers that nobody uses; a borrowed one keeps its bytes."""
    monkeypatch.setattr(memory, "_all_buffers", [])
    buffers = memory.Buffers(1000)
    with buffers.lend() as first, buffers.lend() as second:
        assert min(len(first), len(second)) >= 1000
        first[:4] = b"kept"
        unused = weakref.ref(second.obj)
        memory.give_back()
        assert bytes(first[:4]) == b"kept"
    with buffers.lend() as again:
        assert again is first or again is second
    del first, second, again
    memory.give_back()
    assert unused() is None
