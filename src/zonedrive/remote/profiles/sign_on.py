"""Mapping from the result of a browser sign-on to a logon request: the profile's [sign_on] table.

The published interface shows how to get the address of a sign-on, and that the provider's answer
comes in a fragment or as a form. It names no field of that answer, so the names are data in the
profile.

Knows nothing about browsers, requests or files.

INVARIANT: a value of an answer gets into the logon as text, and nowhere else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zonedrive.remote.urls import PLACEHOLDER

FORMS: Final = ("form", "fragment")
ANSWER: Final = "answer."
ORGANIZATION: Final = "organization"
KEYS: Final = ("body", "error", "response", "redirect")
# Members of a logon request that zonedrive sets itself, or that are not text.
_OURS: Final = frozenset({"acceptSessions", "logonSessionId", "password", "scope"})
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


class WrongTable(Exception):
    """Error in a table of a profile.

    `where` is the path of keys to the faulty value, `needle` a text in its line.
    """

    def __init__(
        self, message: str, *where: str, needle: str = "", remedy: str = "correct it"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.needle = needle
        self.remedy = remedy or "correct it"


class MissingFields(Exception):
    """Error for an answer that lacks required fields; `names` lists them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


@dataclass(frozen=True)
class SignOn:
    """Rules for reading a provider's answer."""

    body: Mapping[str, str | bool]  # fields of the logon request, as templates
    error: str = ""  # the answer's field with the reason of a failed sign-on
    # The requested form, if there is a choice: a form post, which leaves no trace of the
    # answer in the browser's history and sessions; or the fragment, which stays in the history.
    fragment: bool = False
    redirect: str = ""  # the parameter of a logon's idpURI for the return address

    def logon(self, answer: Mapping[str, str], organization: str) -> dict[str, str | bool]:
        """Return the fields of a logon request. Raises MissingFields."""
        wanted = [
            name.removeprefix(ANSWER)
            for text in self.body.values()
            if isinstance(text, str)
            for name in PLACEHOLDER.findall(text)
            if name.startswith(ANSWER)
        ]
        if missing := [name for name in dict.fromkeys(wanted) if not answer.get(name)]:
            raise MissingFields(missing)

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return organization if name == ORGANIZATION else answer[name.removeprefix(ANSWER)]

        return {
            key: PLACEHOLDER.sub(value, text) if isinstance(text, str) else text
            for key, text in self.body.items()
        }


def parse(table: Mapping[str, object]) -> SignOn:
    """Return the validated table. Raises WrongTable."""
    for key in table:
        if key not in KEYS:
            raise WrongTable(f"unknown key {key!r}, the keys are {', '.join(KEYS)}", key)
    response = table.get("response", "form")
    if response not in FORMS:
        raise WrongTable(f"response must be one of {', '.join(FORMS)}", "response")
    return SignOn(
        _body(table.get("body")),
        _name(table, "error"),
        response == "fragment",
        _name(table, "redirect"),
    )


def _name(table: Mapping[str, object], key: str) -> str:
    value = table.get(key, "")
    if key in table and not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise WrongTable(f"{key} must be the name of a field", key)
    return str(value)


def _body(body: object) -> dict[str, str | bool]:
    if not isinstance(body, dict) or not body:
        raise WrongTable(
            "body must say which fields of a logon the answer goes into,"
            ' such as { token = "{answer.token}" }',
            "body",
        )
    names: list[str] = []
    for key, value in body.items():
        problem = ""
        found = PLACEHOLDER.findall(value) if isinstance(value, str) else []
        names += found
        unknown = [name for name in found if not _is_known(name)]
        if key in _OURS or not _NAME.fullmatch(key):
            problem = f"body cannot set {key!r}"
        elif not isinstance(value, str | bool):
            problem = f"body: {key} must be a text, or true or false"
        elif unknown:
            problem = (
                f"body: unknown placeholder {{{unknown[0]}}}, there are"
                f" {{{ANSWER}NAME}} and {{{ORGANIZATION}}}"
            )
        elif isinstance(value, str) and re.search(r"[{}]", PLACEHOLDER.sub("", value)):
            problem = f"body: {key} has a brace without its other half"
        if problem:
            raise WrongTable(problem, "body", key)
    if not any(name.startswith(ANSWER) for name in names):
        raise WrongTable(f"body uses nothing of the answer (no {{{ANSWER}NAME}})", "body")
    return body


def _is_known(name: str) -> bool:
    if name == ORGANIZATION:
        return True
    field = name.removeprefix(ANSWER)
    return field != name and _NAME.fullmatch(field) is not None
