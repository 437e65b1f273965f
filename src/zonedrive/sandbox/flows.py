"""Unfinished logon flows, in which a user sends the credentials in several requests.

This module neither stores nor checks passwords. INVARIANT: a flow that has ended, successfully or
not, cannot continue. A restart ends all flows.
"""

import secrets
import time
from typing import Literal, NamedTuple

from zonedrive.sandbox.sessions import Scope

State = Literal["PASSWORDPENDING", "VERIFICATIONCODEPENDING"]

LIFE_SECONDS = 300
MOST = 10_000


class SessionOptions(NamedTuple):
    """Requested properties of a session. None means the default. `timeout` is in milliseconds."""

    scope: Scope | None = None
    set_cookie: bool | None = None
    same_site_policy: str | None = None
    timeout: int | None = None
    timeout_in_seconds: int | None = None

    def or_else(self, others: "SessionOptions") -> "SessionOptions":
        """Return a copy in which None values are replaced with the values of `others`."""
        mine = {name: value for name, value in self._asdict().items() if value is not None}
        return others._replace(**mine)


class Flow(NamedTuple):
    """Unfinished logon flow."""

    username: str
    state: State
    code: str | None  # a code that was received before the password
    options: SessionOptions
    begun: float


class Flows:
    """Unfinished logon flows by flow id, and the ids of recently successful flows.

    A 202 response contains the flow id as `sessionId`.
    """

    def __init__(self) -> None:
        self._flows: dict[str, Flow] = {}
        self._done: dict[str, float] = {}  # id of a successful flow -> its end time

    def begin(
        self,
        username: str,
        state: State,
        options: SessionOptions,
        code: str | None = None,
        flow_id: str | None = None,
    ) -> str:
        """Start a flow, or continue `flow_id` with a new state; return the flow's id.

        The client sends the id as logonSessionId with its next request. `code` is a one-time code
        that was received before the password.
        """
        self._forget_old()
        flow_id = flow_id or secrets.token_urlsafe(24)
        self._flows[flow_id] = Flow(username, state, code, options, time.monotonic())
        return flow_id

    def find(self, flow_id: str) -> Flow | None:
        """Return the flow, or None if it has ended or expired."""
        self._forget_old()
        return self._flows.get(flow_id)

    def ended_well(self, flow_id: str) -> bool:
        """Return True if the flow led to a successful logon within the last LIFE_SECONDS."""
        self._forget_old()
        return flow_id in self._done

    def end(self, flow_id: str) -> None:
        """End the flow; the flow counts as failed unless `succeed` is called afterwards."""
        self._flows.pop(flow_id, None)

    def succeed(self, flow_id: str) -> None:
        """Record that the flow led to a successful logon."""
        self._done[flow_id] = time.monotonic()

    def _forget_old(self) -> None:
        oldest = time.monotonic() - LIFE_SECONDS
        # Both dictionaries are in chronological order.
        for flow_id, flow in list(self._flows.items()):
            if flow.begun > oldest and len(self._flows) < MOST:
                break
            del self._flows[flow_id]
        for flow_id, since in list(self._done.items()):
            if since > oldest and len(self._done) < MOST:
                break
            del self._done[flow_id]
