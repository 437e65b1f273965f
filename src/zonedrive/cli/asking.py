"""One question to the service as an account, with or without a mount.

Must not know what is asked.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from zonedrive.remote import Client, Directory

AnswerT = TypeVar("AnswerT")


def ask_directory(account: str, question: "Callable[[Directory], Awaitable[AnswerT]]") -> AnswerT:
    """What `question` gives.  Raises what it raises, NotLoggedOn where there was no logon."""
    return ask_service(account, lambda client: question(client.directory))


def ask_service(account: str, question: "Callable[[Client], Awaitable[AnswerT]]") -> AnswerT:
    """As `ask_directory`, with all that a client can."""
    import trio

    from zonedrive.logon import stored
    from zonedrive.remote import Client

    async def ask() -> AnswerT:
        async with Client(stored(account)) as client:
            return await question(client)

    return trio.run(ask)
