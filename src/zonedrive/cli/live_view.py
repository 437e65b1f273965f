"""Terminal view that is redrawn while the user watches.

Knows nothing about the content.

INVARIANT: however the view ends (Ctrl-C, a signal, an error, a closed terminal), the terminal is
restored: the cursor is visible, and the previous lines are back.
INVARIANT: without a terminal, or on one without cursor control, nothing is overwritten.
"""

import select
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self

from zonedrive.cli import text_output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


class View:
    """View that is drawn repeatedly; without a terminal each version is printed."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._looked_at = select.poll()

    @property
    def size(self) -> tuple[int, int] | None:
        """Columns and lines of the terminal; None if nothing is overwritten."""
        return shutil.get_terminal_size((80, 24)) if self._live else None

    @contextmanager
    def open(self) -> Iterator[Self]:
        """Use the terminal's alternate screen, so that the previous content is restored."""
        # A reader that has gone is noticed at once, not at the next change.
        self._looked_at.register(sys.stdout.fileno(), 0)
        if not text_output.can_redraw(sys.stdout):
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
        """Draw `parts` one below the other, in place of the previous view."""
        if self._live is None:
            for part in [*parts, ""]:
                text_output.put(part)
            return
        from rich.console import Group

        self._live.update(Group(*parts), refresh=True)

    def pause(self, seconds: float) -> bool:
        """Wait up to `seconds`; return False if the output was closed."""
        return not self._looked_at.poll(1000 * seconds)


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit with the signal's status after cleanup."""
    sys.exit(128 + number)
