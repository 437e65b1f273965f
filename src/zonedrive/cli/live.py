"""A picture on the terminal that changes while somebody looks.

Must not know what is shown.

INVARIANT: however it ends (Ctrl-C, a signal, an error, a terminal that is closed), the terminal
is as it was: the cursor visible, the former lines in their place.
INVARIANT: where there is no terminal, or one that cannot move its cursor, nothing is drawn over.
"""

import select
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self

from zonedrive.cli import show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


class View:
    """A picture that is drawn again and again; without a terminal each one is printed."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._looked_at = select.poll()

    @property
    def size(self) -> tuple[int, int] | None:
        """Columns and lines of the terminal; None: nothing is drawn over."""
        return shutil.get_terminal_size((80, 24)) if self._live else None

    @contextmanager
    def open(self) -> Iterator[Self]:
        """On the terminal's other screen, so that what was there before comes back."""
        # A reader that has gone is noticed at once, not at the next change.
        self._looked_at.register(sys.stdout.fileno(), 0)
        if not show.can_redraw(sys.stdout):
            yield self
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False, markup=False, emoji=False)
        live = Live(
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        former = {one: signal.signal(one, _leave) for one in (signal.SIGTERM, signal.SIGHUP)}
        try:
            with live:
                self._live = live
                yield self
        finally:
            self._live = None
            for one, handler in former.items():
                signal.signal(one, handler)

    def show(self, parts: Sequence["RenderableType"]) -> None:
        """Draw them, one below the other, in place of the former picture."""
        if self._live is None:
            for part in [*parts, ""]:
                show.put(part)
            return
        from rich.console import Group

        self._live.update(Group(*parts), refresh=True)

    def pause(self, seconds: float) -> bool:
        """Wait; False where nobody looks any more."""
        return not self._looked_at.poll(1000 * seconds)


def _leave(number: int, frame: FrameType | None) -> None:
    """End as the signal would, after putting things in order."""
    sys.exit(128 + number)
