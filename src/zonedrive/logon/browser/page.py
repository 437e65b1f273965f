"""Pages that the browser shows after it returns from a sign-on.

This module handles no requests. No page contains any part of the provider's answer, except for the
reason of a failed sign-on.

INVARIANT: a page loads no other resource, and runs only the script below; the content security
policy lists the digests of the script and the style sheet.
INVARIANT: an answer in the fragment of the URL is removed from the address bar and from the "back"
history before anything else happens. The browser's list of visited URLs still contains the answer,
because the browser records a URL before any script of the page can run, whatever the HTTP status of
the page (tested in Chromium). Therefore, a form post is requested if there is a choice.
"""

import base64
import hashlib
from html import escape
from typing import Final

import msgspec

from zonedrive.remedies import message_in_window
from zonedrive.translation import marked, translated

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d5dbe3;--back:#eef1f5;
--card:#fff;--good:#1d7a46;--bad:#b3261e;--mild:#2257c9}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b6;--line:#38424f;--back:#12161c;
--card:#1b2129;--good:#5fd08f;--bad:#ff8f86;--mild:#7aa5ff}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;display:grid;place-items:center;padding:1.5rem;
background:var(--back);color:var(--ink);font:1.05rem/1.55 system-ui,sans-serif}
main{width:100%;max-width:28rem;background:var(--card);border:1px solid var(--line);
border-radius:14px;padding:2.25rem 2rem;text-align:center}
svg{width:56px;height:56px;fill:none;stroke:currentColor;stroke-width:2.5;stroke-linecap:round;
stroke-linejoin:round}
.good svg{color:var(--good)}.bad svg{color:var(--bad)}.mild svg{color:var(--mild)}
h1{font-size:1.4rem;line-height:1.25;margin:.9rem 0 .6rem}
p{margin:0 0 .6rem;overflow-wrap:anywhere}
small{color:var(--soft)}
[hidden]{display:none}
@media(prefers-reduced-motion:no-preference){.turning{animation:t 1s linear infinite;
transform-origin:50% 50%}@keyframes t{to{transform:rotate(1turn)}}}
"""

# Removes the fragment from the address at once, posts it, and replaces this page by the
# outcome, so that "back" skips both.
SCRIPT: Final = """
"use strict";
const main = document.querySelector("main"), answer = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
const show = id => { for (const one of main.children) one.hidden = one.id !== id; };
if (!answer) show("nothing");
else fetch(main.dataset.to, {method: "POST", body: answer, credentials: "omit", cache: "no-store",
  headers: {"Content-Type": "application/x-www-form-urlencoded", "X-Page": main.dataset.page}})
  .then(said => said.ok ? location.replace(main.dataset.then) : show("nothing"))
  .catch(() => show("gone"));
"""

_SIGNS: Final = {
    "good": '<path d="M17 29l7.5 7.5L40 21"/>',
    "bad": '<path d="M20 20l16 16M36 20L20 36"/>',
    "mild": '<path d="M28 18v13M28 38v.1"/>',
}


class Verdict(msgspec.Struct, frozen=True):
    """Message that a page shows to the user, for example the result of a sign-on."""

    kind: str  # good, bad, mild
    title: str
    text: str = ""


NEEDS_SCRIPT: Final = marked(
    "This page needs JavaScript: it passes the result of your sign-on to zonedrive on this machine."
)
NOTHING: Final = Verdict(
    "mild", "Nothing came back", "No answer came with this page; zonedrive still waits for one."
)
GONE: Final = Verdict("mild", "zonedrive is not waiting any more", "Begin the logon again.")
OVER: Final = Verdict("mild", "This sign-on is over", "Each of its addresses works once.")
REFUSED: Final = Verdict("bad", marked("Refused"), "This request does not belong to a sign-on.")


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY: Final = (
    f"default-src 'none'; script-src {_digest(SCRIPT)}; style-src {_digest(STYLE)};"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)

HEADERS: Final = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", POLICY),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def relay(to: str, then: str, page: str) -> bytes:
    """Return the page that posts the fragment of its URL to `to`, and then loads `then`.

    `to` and `then` are paths. The page sends the secret `page` as proof of its origin.
    """
    waiting = (
        '<section id="waiting"><div class="mild"><svg viewBox="0 0 56 56" aria-hidden="true">'
        '<circle class="turning" cx="28" cy="28" r="22" stroke-dasharray="90 50"/></svg></div>'
        f"<h1>{_shown(marked('Signing on…'))}</h1><noscript>"
        f"<p>{_shown(NEEDS_SCRIPT)}</p></noscript></section>"
    )
    main = (
        f'<main data-to="{escape(to)}" data-then="{escape(then)}" data-page="{escape(page)}">'
        f"{waiting}{_section(NOTHING, 'nothing', hidden=True)}{_section(GONE, 'gone', hidden=True)}"
        "</main>"
    )
    return _document(marked("Signing on"), main, SCRIPT)


def outcome(verdict: Verdict) -> bytes:
    """Return the last page of a sign-on, which shows `verdict`."""
    return _document(verdict.title, f"<main>{_section(verdict, 'outcome')}</main>")


def _section(verdict: Verdict, name: str, *, hidden: bool = False) -> str:
    return (
        f'<section id="{name}" class="{verdict.kind}"{" hidden" if hidden else ""}>'
        '<svg viewBox="0 0 56 56" aria-hidden="true"><circle cx="28" cy="28" r="24"/>'
        f"{_SIGNS[verdict.kind]}</svg><h1>{_shown(verdict.title)}</h1><p>{_shown(verdict.text)}</p>"
        f"<small>{_shown(marked('You can close this page.'))}</small></section>"
    )


def _shown(text: str) -> str:
    return escape(message_in_window(text))


def _document(title: str, main: str, script: str = "") -> bytes:
    return (
        f'<!doctype html><html lang="{translated("en")}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<title>{_shown(title)} – zonedrive</title><style>{STYLE}</style>{main}"
        f"{f'<script>{script}</script>' if script else ''}</html>"
    ).encode()
