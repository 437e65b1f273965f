"""Whether a password or a code is right, with failures counted and blocked names refused.

Must not know what the credentials are for.  INVARIANT: while a name is blocked nothing shown for
it is right, also where the check was under way when the block began.
"""

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool

from zonedrive.sandbox import passwords
from zonedrive.sandbox.attempts import Attempts
from zonedrive.sandbox.codes import Codes
from zonedrive.sandbox.users import User, Users

# Checked where the user is unknown, so that the answer takes as long.
_NOBODY = passwords.digest("")


class Blocked(Exception):
    """Too many failures for this name lately."""


class Verification:
    """Checks credentials."""

    def __init__(self, users: Users, codes: Codes, attempts: Attempts) -> None:
        self._users = users
        self._codes = codes
        self._attempts = attempts

    def refuse_blocked(self, name: str) -> None:
        """Raises Blocked."""
        if self._attempts.blocked(name):
            raise Blocked

    async def password(self, name: str, password: str) -> User | None:
        """The user whose password it is, or None.  Raises Blocked."""
        self.refuse_blocked(name)
        user = self._users.find(name)
        stored = _NOBODY if user is None else user.password
        fits = await run_in_threadpool(passwords.matches, password, stored)
        self.refuse_blocked(name)
        if user is None or not fits:
            self._attempts.failed(name)
            return None
        if not self._codes.required():
            # With codes, the count ends with the right code: the password is half of it.
            self._attempts.succeeded(name)
        return user

    async def anybodys_password(self, password: str, asker: str) -> User | None:
        """The one user whose password it is; None where none or several have it.

        Failures are counted for `asker`, since nobody was named; blocked users are passed over.
        Raises Blocked.
        """
        self.refuse_blocked(asker)
        fitting = await self._fitting(password, self._users.all())
        self.refuse_blocked(asker)
        if len(fitting) != 1 or self._attempts.blocked(fitting[0].id):
            self._attempts.failed(asker)
            return None
        # Nothing is forgiven: who has a password of his own could guess all others beside it.
        return fitting[0]

    def code(self, name: str, code: str) -> bool:
        """Whether a one-time code is right; it is used up.  Raises Blocked."""
        self.refuse_blocked(name)
        if self._users.find(name) is not None and self._codes.accept(name, code):
            self._attempts.succeeded(name)
            return True
        self._attempts.failed(name)
        return False

    async def _fitting(self, password: str, users: Sequence[User]) -> list[User]:
        return [
            user
            for user in users
            if await run_in_threadpool(passwords.matches, password, user.password)
        ]
