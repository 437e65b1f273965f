"""Pending requests whose answer shows, or does not show, that nothing was done."""

from types import SimpleNamespace
from typing import cast

import pytest

from zonedrive.config import Settings
from zonedrive.errors import Forbidden, RemoteError, ReplyLost, Unavailable
from zonedrive.remote.service import Service
from zonedrive.remote.wire.error_mapping import refusal
from zonedrive.state.local_state import LocalState
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.reconcile import Reconciler

SENT = PendingRequest(
    ino=7, bytes_ino=7, generation=1, size=3, zone="z", folder="p", name="n", remote_id=None
)


class State:
    """Pending requests of one inode."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.requests = SimpleNamespace(present=lambda sent: sent)
        self.ended: list[PendingRequest] = []

    def resolved(self, doubt: PendingRequest) -> None:
        """Note the end of a pending request."""
        self.ended.append(doubt)


def is_ended(error: RemoteError) -> bool:
    """Return True if a request with that answer is not pending any more."""
    state = State()
    reconciler = Reconciler(
        cast(LocalState, state), cast(Service, SimpleNamespace()), cast(DirectoryCache, None)
    )
    with pytest.raises(type(error)), reconciler.asking(SENT):
        raise error
    assert state.ended in ([], [SENT])
    return bool(state.ended)


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (refusal(429, b"", "uploading"), True),
        (refusal(503, b'{"error": "NOT_AVAILABLE"}', "uploading"), False),
        (refusal(503, b"", "uploading", retry_after=1.0, early=True), True),
        (refusal(503, b"<html>", "uploading"), False),
        (refusal(500, b"", "uploading"), False),
        (Unavailable("x", status=503), False),
        (ReplyLost("x"), False),
        (Forbidden("x", status=403), True),
    ],
)
def test_a_request_stays_pending_unless_it_certainly_had_no_effect(
    error: RemoteError, ended: bool
) -> None:
    """Only a pending request costs a look at the service before the next attempt."""
    assert is_ended(error) == ended


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("status", [401, 423, 429])
def test_a_request_stays_pending_if_an_earlier_one_of_the_operation_had_an_effect(
    status: int, is_partial: bool
) -> None:
    """The effect is looked up, also if the change is undone here before the next attempt."""
    error = refusal(status, b"", "renaming or moving")
    error.is_partial = is_partial
    assert is_ended(error) != is_partial
