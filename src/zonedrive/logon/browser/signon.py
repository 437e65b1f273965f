"""Browser sign-on: choice of the method, the sign-on itself, and evaluation of the answer.

Only the `Person` that the caller passes uses a terminal or starts a browser.

INVARIANT: no browser is opened unless the profile names the fields that a browser returns.
INVARIANT: the returned fields are sent to the service once, as the profile specifies. No message to
the user contains the value of a field, except for the reason of a failed sign-on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import trio

from zonedrive.config import unless_policy
from zonedrive.errors import (
    BadAnswer,
    CredentialsRefused,
    NotSupported,
    SignOnNotOffered,
    ZonedriveError,
)
from zonedrive.logon import wire
from zonedrive.logon.api import LogonApi
from zonedrive.logon.browser.listener import Listener, listening
from zonedrive.logon.browser.page import Verdict
from zonedrive.logon.browser.request_check import require_owners
from zonedrive.logon.wire import Offer, Outcome, Requirements
from zonedrive.remedies import message_in_window
from zonedrive.remote.profiles.operations import SignOn

Fields = Mapping[str, str | bool]
LONGEST_REASON = 200  # characters
STRANGER = (
    "a connection to this sign-on was refused, as it does not belong to this user; if the browser"
    " runs on another machine or in a container, use --no-browser"
)
STRANGER_ELSEWHERE = (
    "a connection to this sign-on was refused, as it does not belong to this user or its owner is"
    " unknown; if it was your browser, paste the address that the browser ends at"
)

Take = Callable[[str], str]
"""Function that receives the URL to which the provider has redirected the browser.

Returns "" if the URL is accepted, else an error message.
"""


class Person(Protocol):
    """Interface to the user, who may have a terminal, and a browser on this or another machine."""

    seconds: float  # maximum wait for the sign-on
    requested: Offer | None  # method that the user requested; its description may be empty
    here: bool  # a browser can be opened on this machine

    def username(self) -> str:
        """Ask the user for the user name, and return it.

        Called if the user name is not known and no browser sign-on is used.
        """

    def choose(self, offers: Sequence[Offer]) -> Offer:
        """Ask the user to choose one of `offers`, and return the choice.

        Raises an error if the user cannot be asked; the type depends on the user interface.
        """

    def prefers(self, offers: Sequence[Offer]) -> Offer | None:
        """Ask the user to choose one of `offers`, or user name and password; return the offer.

        Return None for user name and password, or if the user cannot be asked.
        """

    @property
    def can_confirm(self) -> bool:
        """True if `confirm` can ask the user."""

    async def confirm(self, user: str, expected: str) -> bool:
        """Ask whether to accept a sign-on as `user` instead of `expected`; return True for yes.

        `user` is the name of the user who signed on in the browser, "" if unknown.
        """

    def warn(self, text: str) -> None:
        """Show a line of text to the user."""

    async def show(self, name: str, start: str, led: Callable[[], Awaitable[None]]) -> None:
        """Open the URL `start` in a local browser to sign on with the provider `name`.

        `led` waits until a browser has requested `start`. This method returns when `led` returns.
        """

    async def guide(self, name: str, address: str, back: str, take: Take) -> None:
        """Ask the user to open the URL `address` in any browser and sign on with `name`.

        After the sign-on, the browser's address bar shows a URL that begins with `back`. The user
        may paste this URL into the user interface. Each pasted text is passed to `take`, until
        `take` accepts a text.
        """


class Browser:
    """Browser sign-on for one logon."""

    def __init__(self, profile: str, way: SignOn | None, person: Person) -> None:
        """Prepare the sign-on of `person`; `way` is the table [sign_on] of the profile, if any."""
        self._profile, self._sign_on, self.person = profile, way, person

    def offer(self, needs: Requirements, named: bool) -> Offer | None:
        """Return the requested or required sign-on method; None for user name and password.

        If the service requires an identity provider and offers several, the user chooses one. The
        user is also asked to choose if no provider is required, no password is required, the
        profile defines a sign-on, and the user name is unknown (`named` is False). Raises
        SignOnNotOffered if the service does not offer the requested method, and the errors of
        `Person.choose`.
        """
        if requested := self.person.requested:
            return _offered(requested, needs)
        providers = [offer for offer in needs.offers if offer.kind == "idp"]
        if not needs.idp or not providers:
            open_to_all = self._sign_on and needs.offers and not needs.password
            return self.person.prefers(needs.offers) if open_to_all and not named else None
        return providers[0] if len(providers) == 1 else self.person.choose(providers)

    async def sign_on(
        self,
        access: LogonApi,
        needs: Requirements,
        where: Offer | str,
        logon: Callable[[Fields], Awaitable[Outcome]],
    ) -> Outcome:
        """Let the user sign on, pass the returned fields to `logon`, and return the outcome.

        `where` is the chosen method, or a URL from the service. Raises NotSupported if the
        profile does not define this sign-on, CredentialsRefused if the sign-on fails or takes too
        long, BadAnswer if the returned fields are not usable, ZonedriveError if requests of other
        users of this machine cannot be rejected, and the errors of `logon` and
        `LogonApi.sign_on_uri`.
        """
        way = self._way(where)
        if isinstance(where, Offer) and not needs.organization:
            raise BadAnswer("the service does not name its organization, which a sign-on needs")
        if self.person.here:
            require_owners(
                remedy="restart the computer if its kernel was upgraded; otherwise use --no-browser"
            )
        stranger = STRANGER if self.person.here else STRANGER_ELSEWHERE
        async with listening(partial(self.person.warn, stranger)) as listener:
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
        profile, way = self._profile, self._sign_on
        if way is None:
            raise NotSupported(
                f"the profile {profile!r} does not define the answer of a sign-on in a browser",
                remedy=unless_policy(
                    "profile", "log on with a --profile that has a table [sign_on]"
                ),
            )
        if isinstance(where, str) and not way.redirect:
            raise NotSupported(
                "the service sends this user to a sign-on in a browser, and the profile"
                f" {profile!r} does not define how the browser returns",
                remedy="name the provider with --idp, or use a --profile whose [sign_on] has"
                " redirect",
            )
        return way

    async def _address(
        self, access: LogonApi, needs: Requirements, where: Offer | str, way: SignOn, redirect: str
    ) -> str:
        if isinstance(where, Offer):
            # A form post cannot arrive from another device, but the user can copy a URL.
            fragment = way.fragment or not self.person.here
            return await access.sign_on_uri(where, needs.organization, redirect, fragment=fragment)
        parts = urlsplit(wire.browser_address(where, "logging on"))
        query = [*parse_qsl(parts.query, keep_blank_values=True), (way.redirect, redirect)]
        return urlunsplit(parts._replace(query=urlencode(query)))

    async def _answer(self, listener: Listener, name: str, address: str) -> Mapping[str, str]:
        person, back = self.person, listener.start.rpartition("/")[0] + "/"
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


def _offered(requested: Offer, needs: Requirements) -> Offer:
    alike = [offer for offer in needs.offers if offer.kind == requested.kind]
    for offer in alike:
        if offer.name == requested.name:
            return offer
    others = ", ".join(offer.name for offer in alike)
    if requested.kind == "idp":
        missing = f"the service offers no identity provider {requested.name!r}"
    else:
        missing = f"the service offers no personal identification {requested.name!r}"
    if others:
        raise SignOnNotOffered(f"{missing}; there is {others}")
    raise SignOnNotOffered(missing, remedy="log on with user name and password")


def _fields(way: SignOn, answer: Mapping[str, str], organization: str) -> Fields:
    if reason := answer.get(way.error, ""):
        shown = "".join(char if char.isprintable() else "?" for char in reason[:LONGEST_REASON])
        raise CredentialsRefused(
            f"the sign-on in the browser ended without success ({shown})", remedy="log on again"
        )
    if missing := way.missing(answer):
        # Show the names only: a value may be a credential.
        there = ", ".join(sorted(name for name in answer if name.isidentifier())) or "nothing known"
        raise BadAnswer(
            f"the answer of the sign-on lacks {' or '.join(missing)} (it has {there})",
            remedy="the [sign_on] of the profile does not fit this deployment",
        )
    return way.logon(answer, organization)


def _good(outcome: Outcome) -> Verdict:
    if not outcome.logged_on:
        return Verdict("mild", "One more step", "Continue where you began the logon.")
    if outcome.user_id:
        return Verdict("good", f"Signed on as {outcome.user_id}")
    return Verdict("good", "Signed on")


def _sentence(message: str) -> str:
    said = message_in_window(message)
    if message.startswith("logging on: "):  # the page shows that already
        said = said.partition(": ")[2]
    return said[:1].upper() + said[1:] + "."
