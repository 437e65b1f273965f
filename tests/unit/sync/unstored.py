"""Database for a journal of intents whose rows nobody reads again."""

from contextlib import AbstractContextManager, nullcontext


class Unstored:
    """Database that stores nothing, because the journal keeps its rows in memory anyway."""

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def execute(self, *_: object) -> "Unstored":
        return self

    def fetchall(self) -> list[object]:
        return []

    def on_rollback(self, step: object) -> None:
        """Ignore the callback, because no transaction fails."""
