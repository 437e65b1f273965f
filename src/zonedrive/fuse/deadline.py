"""Decorator that gives FUSE handlers a deadline and converts their exceptions to FUSEError.

The conversion is necessary because any other exception from a handler would end the mount.
"""

import errno
import functools
import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, Protocol, TypeVar, cast

import trio
from pyfuse3 import FUSEError

from zonedrive.fuse.errno_table import errno_of

log = logging.getLogger(__name__)

DEADLINE = 60.0
"""Seconds after which an operation fails with ETIMEDOUT.

The package `vfs` has shorter limits for waiting for the service, so this deadline is the last
resort. A deadline is needed because a process cannot be killed while its request is unanswered.
"""

LONG_DEADLINE = 3600.0
"""Deadline in seconds for operations that may transfer a whole file.

`flush` and `fsync` can be configured to wait for an upload. The first `write` to a file, and a
`setattr` that changes its size, download the previous content. A download that stalls ends earlier.
"""


class Gate:
    """Set of waiting file system operations, which are cancelled when the mount ends.

    INVARIANT: after `shut`, every waiting or new operation is answered at once with ENOTCONN,
    because the kernel keeps pages locked until an operation is answered, and programs that need
    these pages hang.
    """

    def __init__(self) -> None:
        self.waiting: set[trio.CancelScope] = set()
        self.is_shut = False

    def shut(self) -> None:
        """Answer all waiting and future operations with ENOTCONN."""
        self.is_shut = True
        for scope in self.waiting:
            scope.cancel()


class Guarded(Protocol):
    """Object whose FUSE handlers are decorated with `guarded`."""

    gate: Gate


_R = TypeVar("_R")
_Handler = TypeVar("_Handler", bound=Callable[..., Coroutine[Any, Any, Any]])


def guarded(seconds: float | None = DEADLINE) -> Callable[[_Handler], _Handler]:
    """Return a decorator that makes a handler end within `seconds`, with a result or FUSEError.

    If `seconds` is None, the handler gets no deadline; use None only for handlers that never wait.
    """

    def decorate(handler: _Handler) -> _Handler:
        @functools.wraps(handler)
        async def wrapper(self: Guarded, /, *args: object, **kwargs: object) -> object:
            if self.gate.is_shut:
                raise FUSEError(errno.ENOTCONN)
            try:
                work = handler(self, *args, **kwargs)
                if seconds is None:
                    return await work
                return await _limited(handler.__name__, work, self.gate, seconds)
            except FUSEError:
                raise
            except Exception as error:
                number = errno_of(error)
                log.debug("%s: %s (%r)", handler.__name__, errno.errorcode.get(number), error)
                raise FUSEError(number) from None

        return cast(_Handler, wrapper)

    return decorate


@coroutine
def _limited(
    name: str, work: Coroutine[Any, Any, _R], gate: Gate, seconds: float
) -> Generator[Any, Any, _R]:
    """Run the operation `work`, and return its result; `name` is for the log.

    Each wait of the operation has a cancel scope of its own, which is cancelled when `gate` is shut
    or after `seconds`. A scope around the whole operation would cost as much as a lookup, and most
    operations never wait. The scopes that `work` opens stay nested, because none of them is opened
    or closed during a wait. Raises FUSEError with ENOTCONN if the gate is shut, and with ETIMEDOUT
    after `seconds`.
    """
    deadline = 0.0  # deadline of the whole operation, set at its first wait
    cancelled = False
    resume: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            wait = resume()
        except StopIteration as done:
            result: _R = done.value
            return result
        except trio.Cancelled:
            if not cancelled:
                raise
            break
        except BaseExceptionGroup as group:
            ordinary, rest = group.split(Exception)
            if rest is None:
                raise
            if ordinary is not None:
                errno_of(ordinary)  # only logs an unexpected error
            if not cancelled:
                raise rest from None
            break
        deadline = deadline or trio.current_time() + seconds
        scope = trio.CancelScope(deadline=deadline)
        if gate.is_shut:
            scope.cancel()
        gate.waiting.add(scope)
        with scope:
            try:
                resume = partial(work.send, (yield wait))
            except BaseException as raised:
                resume = partial(work.throw, raised)
        gate.waiting.discard(scope)
        cancelled = cancelled or scope.cancel_called
    if gate.is_shut:
        raise FUSEError(errno.ENOTCONN)
    log.warning("%s took longer than %d s", name, seconds)
    raise FUSEError(errno.ETIMEDOUT)
