"""Guard of all handlers: a deadline, and a filter that only FUSEError passes.

Knows nothing about what the handlers do.  Any other exception from a handler would end the mount.
"""

import errno
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import trio
from pyfuse3 import FUSEError

from zonedrive.fuse.errno_table import errno_of

log = logging.getLogger(__name__)

DEADLINE = 60.0
"""Seconds after which an operation fails with ETIMEDOUT.

`vfs` has shorter limits for waits on the service; this one is the last resort.  The calling process
cannot be killed while its request is unanswered.
"""

LONG_DEADLINE = 3600.0
"""Deadline in seconds for `flush` and `fsync`, which can be configured to wait for an upload."""


class Gate:
    """Set of running file system operations, which is shut when the mount ends.

    INVARIANT: after `shut`, every running or new operation is answered at once with ENOTCONN.
    Without an answer the kernel keeps pages locked, and programs that need them hang.
    """

    def __init__(self) -> None:
        self.running: set[trio.CancelScope] = set()
        self.is_shut = False

    def shut(self) -> None:
        """Answer all running and future operations with ENOTCONN."""
        self.is_shut = True
        for scope in self.running:
            scope.cancel()


class Guarded(Protocol):
    """Object with handlers to guard."""

    gate: Gate


_S = TypeVar("_S", bound=Guarded)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def guarded(
    seconds: float | None = DEADLINE,
) -> Callable[
    [Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]]],
    Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]],
]:
    """Make the handler end within `seconds`, with a result or a FUSEError.

    None is for handlers that never wait; a deadline costs a tenth of their time.
    """

    def decorate(
        handler: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]],
    ) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]]:
        @functools.wraps(handler)
        async def wrapper(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            gate = self.gate
            if gate.is_shut:
                raise FUSEError(errno.ENOTCONN)
            scope = None
            try:
                if seconds is None:
                    return await handler(self, *args, **kwargs)
                scope = trio.CancelScope(deadline=trio.current_time() + seconds)
                gate.running.add(scope)
                with scope:
                    return await handler(self, *args, **kwargs)
            except FUSEError:
                raise
            except Exception as error:
                number = errno_of(error)
                log.debug("%s: %s (%r)", handler.__name__, errno.errorcode.get(number), error)
                raise FUSEError(number) from None
            except BaseExceptionGroup as group:
                raise _only_cancelled(group) from None
            finally:
                if scope is not None:
                    gate.running.discard(scope)
            # This point is reached only if the scope has caught its own Cancelled.
            if gate.is_shut:
                raise FUSEError(errno.ENOTCONN)
            log.warning("%s took longer than %d s", handler.__name__, seconds)
            raise FUSEError(errno.ETIMEDOUT)

        return wrapper

    return decorate


def _only_cancelled(group: BaseExceptionGroup[Any]) -> BaseException:
    """Return the cancellation of a group to raise again; log its other errors."""
    ordinary, rest = group.split(Exception)
    if ordinary is not None:
        errno_of(ordinary)
    return rest if rest is not None else FUSEError(errno.EIO)
