"""Verification of passwords and one-time codes, with temporary blocks after failures.

This module does not depend on the purpose of the credentials. INVARIANT: while a user name is
blocked, no credential is accepted for this name, even a credential whose check began earlier.
"""

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool

from zonedrive.sandbox import passwords
from zonedrive.sandbox.attempts import Attempts
from zonedrive.sandbox.codes import Codes
from zonedrive.sandbox.users import User, Users

# Checked if the user is unknown, so that the response takes the same time.
_NOBODY = passwords.digest("")


class Blocked(Exception):
    """Error for a name that is blocked because of too many recent failures."""


class Verification:
    """Verifier of credentials."""

    def __init__(self, users: Users, codes: Codes, attempts: Attempts) -> None:
        self._users = users
        self._codes = codes
        self._attempts = attempts

    def refuse_blocked(self, name: str) -> None:
        """Raise Blocked if the name is blocked."""
        if self._attempts.blocked(name):
            raise Blocked

    async def password(self, name: str, password: str) -> User | None:
        """Return the user if the password is right; otherwise count a failure and return None.

        Raises Blocked if the name is blocked.
        """
        self.refuse_blocked(name)
        user = self._users.find(name)
        stored = _NOBODY if user is None else user.password
        fits = await run_in_threadpool(passwords.matches, password, stored)
        self.refuse_blocked(name)
        # Another request may have changed the password while the thread checked the old one.
        if user is None or not fits or self._users.find(name) != user:
            self._attempts.failed(name)
            return None
        if not self._codes.required():
            # If codes are required, only a valid code resets the failure count.
            self._attempts.succeeded(name)
        return user

    async def anybodys_password(self, password: str, asker: str) -> User | None:
        """Return the only user with this password; None if no user or several users have it.

        Failures are counted for `asker`, a text with the client's address, because the request
        names no user. A blocked user is not returned. Raises Blocked if `asker` is blocked.
        """
        self.refuse_blocked(asker)
        fitting = await self._fitting(password, self._users.all())
        self.refuse_blocked(asker)
        if len(fitting) != 1 or self._attempts.blocked(fitting[0].id):
            self._attempts.failed(asker)
            return None
        # Do not reset the failure count of `asker`: a user could otherwise log on with their own
        # password between guesses of other users' passwords, and would never be blocked.
        return fitting[0]

    def code(self, name: str, code: str) -> bool:
        """Return True if a one-time code is valid, and mark the code as used.

        Otherwise count a failure and return False. Raises Blocked if the name is blocked.
        """
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
