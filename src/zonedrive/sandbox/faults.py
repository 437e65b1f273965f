"""Fault injection, with the active faults, the requests they match, and their remaining uses.

The modules `traffic` and `server` apply the faults. Each effect in a `fault` command becomes a
fault with its own use count. Faults accumulate until they are cleared.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from zonedrive.sandbox.errors import NAMES, code_of

Kind = Literal["latency", "status", "cut", "drop", "stall"]

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS")


class FaultOrder(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """JSON object of a `fault` command; see README.md in this folder."""

    latency_ms: float | None = None
    status: int | None = None
    error: str | None = None
    cut_after: int | None = None
    drop_reply: bool = False
    stall: float | None = None
    down: bool | None = None
    method: str | None = None
    path: str | None = None
    times: int | None = None


@dataclass(eq=False, slots=True)
class Fault:
    """Injected fault for matching requests; `left` counts the remaining uses (None: no limit).

    The meaning of `amount` depends on `kind`: milliseconds (latency), seconds (stall), an HTTP
    status (status), or a number of body bytes (cut).
    """

    kind: Kind
    amount: float
    error: str
    method: str | None
    path: re.Pattern[str] | None
    left: int | None

    def meets(self, method: str, path: str) -> bool:
        """Return True if the fault matches the request and has uses left."""
        return (
            self.left != 0
            and (self.method is None or self.method == method)
            and (self.path is None or self.path.search(path) is not None)
        )

    def use(self) -> bool:
        """Consume one use; return False if none is left."""
        if self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True


class Faults:
    """Active faults; `down` is True while all connections are refused."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.down = False
        # Set when the faults are cleared; delayed requests then continue.
        self.cleared = asyncio.Event()

    def order(self, order: FaultOrder | None) -> None:
        """Add the faults that `order` describes; None clears all faults.

        Raises ValueError for an invalid order.
        """
        if order is None:
            self._clear()
            return
        effects = _effects(order)
        _check(order, effects)
        try:
            path = None if order.path is None else re.compile(order.path)
        except re.error as wrong:
            raise ValueError(f"path is not a regular expression: {wrong}") from wrong
        method = None if order.method is None else order.method.upper()
        for kind, amount in effects:
            error = order.error or code_of(int(amount))
            self._faults.append(Fault(kind, amount, error, method, path, order.times))
        if order.down is not None:
            self.down = order.down

    def _clear(self) -> None:
        """End all faults, including their effect on requests that are being delayed."""
        for fault in self._faults:
            fault.left = 0
        self._faults.clear()
        self.down = False
        self.cleared.set()
        self.cleared = asyncio.Event()

    def meeting(self, method: str, path: str) -> list[Fault]:
        """Return the faults that match a request, without consuming a use."""
        return [fault for fault in self._faults if fault.meets(method, path)]


def _check(order: FaultOrder, effects: list[tuple[Kind, float]]) -> None:
    """Raise ValueError if the fields of an order are invalid or contradict each other."""
    if not effects and order.down is None:
        raise ValueError("a fault needs latency_ms, status, cut_after, drop_reply, stall or down")
    if order.times is not None and order.times < 1:
        raise ValueError("times must be 1 or more")
    if order.down is not None and (order.times, order.method, order.path) != (None, None, None):
        raise ValueError(
            "down does not go with times, method or path: connections are refused before there"
            " is a request to count or to look at; end it with false or null"
        )
    if order.error is not None and order.status is None:
        raise ValueError("error needs a status to come with")
    if order.error is not None and order.error not in NAMES:
        raise ValueError(f"there is no error named {order.error!r} in the interface")
    if order.method is not None and order.method.upper() not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}")


def _effects(order: FaultOrder) -> list[tuple[Kind, float]]:
    amounts: list[tuple[Kind, float | None]] = [
        ("latency", order.latency_ms),
        ("status", order.status),
        ("cut", order.cut_after),
        ("drop", 1 if order.drop_reply else None),
        ("stall", order.stall),
    ]
    effects = [(kind, amount) for kind, amount in amounts if amount is not None]
    if any(amount < 0 for _kind, amount in effects):
        raise ValueError("a fault's amount must not be negative")
    if order.status is not None and not 400 <= order.status <= 599:
        raise ValueError("status must be from 400 to 599")
    return effects
