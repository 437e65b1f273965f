"""Password change that the service requires before any other request.

Knows nothing about terminals: a callback provides the new password.

INVARIANT: the new password is sent to the service once. Whether the service accepted it is checked,
not assumed.
"""

from collections.abc import Callable

from zonedrive.errors import CredentialsRefused, NotLoggedOn
from zonedrive.logon.api import LogonApi
from zonedrive.logon.secrets import Secret
from zonedrive.remote.profiles.operations import Operation


class PasswordChange:
    """Required password change."""

    def __init__(
        self, operation: Operation, ask: Callable[[], Secret], tell: Callable[[str], None]
    ) -> None:
        """Set the profile's `operation`; `ask` returns the new password, `tell` prints lines."""
        self._operation, self._ask, self._tell = operation, ask, tell

    async def carry_out(self, access: LogonApi, user: str, old: Secret) -> Secret:
        """Change the password and return the new one; the session of `access` continues.

        Raises CredentialsRefused if the session ended with the old password, or `old` is wrong.
        """
        self._tell("the service wants the password to be changed first")
        new = self._ask()
        await access.change_password(self._operation, user, old, new)
        try:
            await access.check()
        except NotLoggedOn as ended:
            raise CredentialsRefused(
                "logging on: the password is changed, and the session ended with the old one",
                remedy="log on again with the new password",
            ) from ended
        self._tell("the password is changed")
        return new
