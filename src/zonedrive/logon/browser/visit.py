"""A sign-on in a browser: which one, the way there, and what is made of the answer.

Must not know terminals, nor how a browser is started: whoever sits there is a `Person`.

INVARIANT: without a profile that names what comes back, no browser is opened.
INVARIANT: what came back is sent to the service once, as the profile says, and is in no message.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import trio

from zonedrive.errors import (
    BadAnswer,
    ConfigError,
    CredentialsRefused,
    NotSupported,
    ZonedriveError,
)
from zonedrive.logon import wire
from zonedrive.logon.access import Access
from zonedrive.logon.browser.listener import Listener, listening
from zonedrive.logon.browser.page import Verdict
from zonedrive.logon.wire import Offer, Outcome, Requirements
from zonedrive.remote.profiles.sign_on import MissingFields, SignOn

Fields = Mapping[str, str | bool]
LONGEST_REASON = 200  # characters
STRANGER = (
    "a connection to this sign-on was refused, as it does not belong to this user; if the browser"
    " runs on another machine or in a container, use --no-browser"
)

Take = Callable[[str], str]
"""Takes an address; gives what is wrong with it, or ""."""


class Person(Protocol):
    """Whoever sits at the terminal, and at a browser on this machine or on another."""

    @property
    def seconds(self) -> float:
        """How long to wait for the sign-on."""

    @property
    def wish(self) -> Offer | None:
        """The way that was asked for by name (without a description)."""

    @property
    def here(self) -> bool:
        """Whether a browser can be opened on this machine."""

    def username(self) -> str:
        """Who logs on, where that was not said and nothing in a browser is wanted."""

    def choose(self, offers: Sequence[Offer]) -> Offer:
        """One of several.  Raises what a program understands where nobody can choose."""

    def prefers(self, offers: Sequence[Offer]) -> Offer | None:
        """One of these, or None for user name and password, or where nobody can choose."""

    @property
    def can_confirm(self) -> bool:
        """Whether somebody is at a terminal, who can be asked."""

    async def confirm(self, user: str, expected: str) -> bool:
        """Ask whether to go on as `user`, whom the browser signed on ("": not told).

        `expected` is the user that was meant.
        """

    def warn(self, text: str) -> None:
        """Show a line."""

    async def show(self, name: str, start: str, led: Callable[[], Awaitable[None]]) -> None:
        """Open `start` in a browser here, to sign on with `name`; `led` waits until it came."""

    async def guide(self, name: str, address: str, back: str, take: Take) -> None:
        """Have `address` opened in any browser, which then ends at an address below `back`.

        That one may be pasted: it goes to `take`, again until it is right.
        """


class Settings(msgspec.Struct, frozen=True):
    """What the deployment's profile says; `sign_on` is None where it says nothing."""

    profile: str
    sign_on: SignOn | None


class Browser:
    """The sign-on in a browser of one logon."""

    def __init__(self, settings: Settings, person: Person) -> None:
        self._settings, self._person = settings, person

    def username(self) -> str:
        """The user name, asked for."""
        return self._person.username()

    @property
    def can_confirm(self) -> bool:
        """Whether somebody can be asked who they are."""
        return self._person.can_confirm

    async def confirm(self, user: str, expected: str) -> bool:
        """Whether a person says that this is the right user, see `Person.confirm`."""
        return await self._person.confirm(user, expected)

    def offer(self, needs: Requirements, named: bool) -> Offer | None:
        """The way to sign on that is wished or required, None for user name and password.

        `named`: whether it is known who logs on; who is not, and needs no password, may choose.
        Raises ConfigError for a wish that the service does not offer.
        """
        if wish := self._person.wish:
            return _offered(wish, needs)
        providers = [offer for offer in needs.offers if offer.kind == "idp"]
        if not needs.idp or not providers:
            open_to_all = self._settings.sign_on and needs.offers and not needs.password
            return self._person.prefers(needs.offers) if open_to_all and not named else None
        return providers[0] if len(providers) == 1 else self._person.choose(providers)

    async def sign_on(
        self,
        access: Access,
        needs: Requirements,
        where: Offer | str,
        logon: Callable[[Fields], Awaitable[Outcome]],
    ) -> Outcome:
        """Have the person sign on, and log on by `logon` with what came back.

        `where` is the way that was chosen, or the address that a logon was answered with.  Raises
        NotSupported without a profile, CredentialsRefused for a no, and what `logon` raises.
        """
        way = self._way(where)
        if isinstance(where, Offer) and not needs.organization:
            raise BadAnswer("the service does not name its organization, which a sign-on needs")
        async with listening(partial(self._person.warn, STRANGER)) as listener:
            try:
                address = await self._address(access, needs, where, way, listener.redirect)
                listener.lead_to(address)
                name = where.name if isinstance(where, Offer) else urlsplit(where).netloc
                answer = await self._answer(listener, name, address)
                fields = _fields(way, answer, needs.organization)
                outcome = await logon(fields)
            except ZonedriveError as wrong:
                listener.conclude(Verdict("bad", "Not signed on", _sentence(wrong.message)))
                await listener.farewell()
                raise
            listener.conclude(_good(outcome))
            await listener.farewell()
            return outcome

    def _way(self, where: Offer | str) -> SignOn:
        profile, way = self._settings.profile, self._settings.sign_on
        if way is None:
            raise NotSupported(
                f"the profile {profile!r} does not say what a sign-on in a browser brings back",
                remedy="log on with a --profile that has a table [sign_on]",
            )
        if isinstance(where, str) and not way.redirect:
            raise NotSupported(
                "the service sends this user to a sign-on in a browser, and the profile"
                f" {profile!r} does not say how that finds its way back",
                remedy="name the provider with --idp, or use a --profile whose [sign_on] has"
                " redirect",
            )
        return way

    async def _address(
        self, access: Access, needs: Requirements, where: Offer | str, way: SignOn, redirect: str
    ) -> str:
        if isinstance(where, Offer):
            # A form goes nowhere from another device, while an address can be copied.
            fragment = way.fragment or not self._person.here
            return await access.sign_on_uri(where, needs.organization, redirect, fragment=fragment)
        parts = urlsplit(wire.browser_address(where, "logging on"))
        query = [*parse_qsl(parts.query, keep_blank_values=True), (way.redirect, redirect)]
        return urlunsplit(parts._replace(query=urlencode(query)))

    async def _answer(self, listener: Listener, name: str, address: str) -> Mapping[str, str]:
        """What came back.  Raises CredentialsRefused where nothing does."""
        person, back = self._person, listener.start.rpartition("/")[0] + "/"
        answer: Mapping[str, str] | None = None
        with trio.move_on_after(person.seconds):
            async with trio.open_nursery() as nursery:
                if person.here:
                    nursery.start_soon(person.show, name, listener.start, listener.led)
                else:
                    nursery.start_soon(person.guide, name, address, back, listener.take_address)
                answer = await listener.answer()
                nursery.cancel_scope.cancel()
        if answer is None:
            raise CredentialsRefused(
                f"nobody signed on in the browser within {person.seconds:g} seconds",
                remedy="log on again, with a longer --timeout if need be",
            )
        return answer


def _offered(wish: Offer, needs: Requirements) -> Offer:
    alike = [offer for offer in needs.offers if offer.kind == wish.kind]
    for offer in alike:
        if offer.name == wish.name:
            return offer
    what = {"idp": "identity provider", "personal-id": "personal identification"}[wish.kind]
    others = ", ".join(offer.name for offer in alike)
    raise ConfigError(
        f"the service offers no {what} {wish.name!r}",
        remedy=f"there is {others}" if others else "log on with user name and password",
    )


def _fields(way: SignOn, answer: Mapping[str, str], organization: str) -> Fields:
    """The fields of the logon.  Raises CredentialsRefused, BadAnswer for an answer without them."""
    if reason := answer.get(way.error, ""):
        shown = "".join(char if char.isprintable() else "?" for char in reason[:LONGEST_REASON])
        raise CredentialsRefused(
            f"the sign-on in the browser ended without success ({shown})", remedy="log on again"
        )
    try:
        return way.logon(answer, organization)
    except MissingFields as missing:
        # The names alone: a value may be what logs one on.
        there = ", ".join(sorted(name for name in answer if name.isidentifier())) or "nothing known"
        raise BadAnswer(
            f"the answer of the sign-on holds no {' or '.join(missing.names)} (it holds {there})",
            remedy="the [sign_on] of the profile does not fit this deployment",
        ) from None


def _good(outcome: Outcome) -> Verdict:
    if not outcome.logged_on:
        return Verdict("mild", "One more step", "Go on in the terminal, where zonedrive runs.")
    who = f" as {outcome.user_id}" if outcome.user_id else ""
    return Verdict("good", f"Signed on{who}", "zonedrive goes on in the terminal.")


def _sentence(message: str) -> str:
    message = message.removeprefix("logging on: ")
    return message[:1].upper() + message[1:] + "."
