"""One request to the service for an account, with or without a mount.

Knows nothing about the request.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from zonedrive.remote import Client, Directory

AnswerT = TypeVar("AnswerT")


def ask_directory(account: str, question: "Callable[[Directory], Awaitable[AnswerT]]") -> AnswerT:
    """Return the result of `question`.

    Raises the errors of `question`, and NotLoggedOn if there was no logon.
    """
    return ask_service(account, lambda client: question(client.directory))


def ask_service(account: str, question: "Callable[[Client], Awaitable[AnswerT]]") -> AnswerT:
    """Return the result of `question`, which gets the whole client. Raises as `ask_directory`."""
    import trio

    from zonedrive.logon import stored
    from zonedrive.remote import Client

    async def ask() -> AnswerT:
        async with Client(stored(account)) as client:
            return await question(client)

    return trio.run(ask)
