"""Logon flows under way: what was shown so far by someone who logs on in several steps.

Must not know passwords.  INVARIANT: a flow that ended, well or badly, is gone for good.  Flows do
not outlive a restart.
"""

import secrets
import time
from typing import Literal, NamedTuple

State = Literal["PASSWORDPENDING", "VERIFICATIONCODEPENDING"]

LIFE_SECONDS = 300
MOST = 10_000


class Flow(NamedTuple):
    """Where a logon stands."""

    username: str
    state: State
    code: str | None  # a code that came before the password
    begun: float


class Flows:
    """The flows under way, by the session id of their 202 answer."""

    def __init__(self) -> None:
        self._flows: dict[str, Flow] = {}

    def begin(
        self, username: str, state: State, code: str | None = None, flow_id: str | None = None
    ) -> str:
        """Start a flow, or its next state; returns what the client sends as logonSessionId."""
        self._forget_old()
        flow_id = flow_id or secrets.token_urlsafe(24)
        self._flows[flow_id] = Flow(username, state, code, time.monotonic())
        return flow_id

    def find(self, flow_id: str) -> Flow | None:
        """The flow, if it is still under way."""
        self._forget_old()
        return self._flows.get(flow_id)

    def end(self, flow_id: str) -> None:
        """The flow is over."""
        self._flows.pop(flow_id, None)

    def _forget_old(self) -> None:
        oldest = time.monotonic() - LIFE_SECONDS
        # Flows are kept in order of their beginning.
        for flow_id, flow in list(self._flows.items()):
            if flow.begun > oldest and len(self._flows) < MOST:
                break
            del self._flows[flow_id]
