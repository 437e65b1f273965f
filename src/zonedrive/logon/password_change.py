"""A password that the service wants changed before it lets the user do anything else.

Must not know terminals: the new one comes from whoever can be asked.

INVARIANT: the new password goes to the service once; whether it took it is found out, not assumed.
"""

from collections.abc import Callable

from zonedrive.errors import CredentialsRefused, NotLoggedOn
from zonedrive.logon.access import Access
from zonedrive.logon.secrets import Secret
from zonedrive.remote.profiles.operations import Operation


class PasswordChange:
    """How a password is changed here."""

    def __init__(
        self, operation: Operation, ask: Callable[[], Secret], tell: Callable[[str], None]
    ) -> None:
        """`operation` is the profile's; `ask` gives the new password, `tell` takes lines."""
        self._operation, self._ask, self._tell = operation, ask, tell

    async def carry_out(self, access: Access, user: str, old: Secret) -> Secret:
        """The new password, with which the session that `access` carries goes on.

        Raises CredentialsRefused where the session ended with the old one, or `old` is wrong.
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
