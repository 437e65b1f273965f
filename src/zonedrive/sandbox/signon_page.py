"""Web pages of the simulated sign-on provider: form, redirect to the client, final message.

This module checks no permissions. INVARIANT: a page loads no external resource, and runs no script
except SUBMIT, which the content security policy allows by its digest.
"""

import base64
import hashlib
from collections.abc import Mapping
from html import escape

from starlette.responses import HTMLResponse

STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d5dbe3;--back:#eef1f5;
--card:#fff;--go:#2257c9;--on:#fff;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b6;--line:#38424f;--back:#12161c;
--card:#1b2129;--go:#7aa5ff;--on:#0c1320;--bad:#ff8f86}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;display:grid;place-items:center;padding:1.5rem;background:var(--back);
color:var(--ink);font:1rem/1.5 system-ui,sans-serif}
main{width:100%;max-width:24rem;background:var(--card);border:1px solid var(--line);
border-radius:12px;padding:2rem}
small{color:var(--soft)}
h1{font-size:1.35rem;line-height:1.25;margin:.25rem 0 1.25rem}
label{display:block;margin:0 0 1rem;font-size:.9rem;color:var(--soft)}
input{display:block;width:100%;margin-top:.3rem;padding:.6rem .7rem;font:inherit;color:var(--ink);
background:transparent;border:1px solid var(--line);border-radius:8px}
button{padding:.6rem 1.1rem;font:inherit;border-radius:8px;border:1px solid var(--line);
background:transparent;color:inherit;cursor:pointer}
button.go{background:var(--go);border-color:var(--go);color:var(--on);font-weight:600}
:focus-visible{outline:2px solid var(--go);outline-offset:2px}
nav{display:flex;gap:.6rem;margin-top:1.5rem}
.wrong{color:var(--bad);margin:0 0 1rem}
"""
SUBMIT = "document.forms[0].submit()"


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def form(
    *, organization: str, title: str, hint: str, username: str, wrong: str, back: str
) -> HTMLResponse:
    """Return the page with the sign-on form.

    `wrong` explains the last failure; "" means that there was none. `back` is the client's origin,
    or "" if the client's URL is unknown.
    """
    complaint = f'<p class="wrong" role="alert">{escape(wrong)}</p>' if wrong else ""
    focus = ("", " autofocus") if username else (" autofocus", "")
    body = f"""<small>{escape(organization)} · sandbox</small><h1>{escape(title)}</h1>{complaint}
<form method="post"><label>User name<input name="username" value="{escape(username)}"
autocomplete="username" autocapitalize="none" spellcheck="false"{focus[0]}></label>
<label>Password<input name="password" type="password" autocomplete="current-password"{focus[1]}>
</label><small>{escape(hint)}</small><nav>
<button class="go" name="do" value="sign-on">Sign on</button>
<button name="do" value="cancel">Cancel</button></nav></form>"""
    return _page(title, body, 401 if wrong else 200, f"form-action 'self' {back}")


def forward(target: str, fields: Mapping[str, str], back: str) -> HTMLResponse:
    """Return a page that automatically posts `fields` to the client's URL `target`.

    The page is for a client that did not request the result in a URL fragment. `back` is the
    client's origin.
    """
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in fields.items()
    )
    body = f"""<h1>Going back…</h1><form method="post" action="{escape(target)}">{hidden}
<nav><button class="go">Back to the program</button></nav></form><script>{SUBMIT}</script>"""
    return _page("Going back", body, 200, f"form-action {back}; script-src {_digest(SUBMIT)}")


def end(title: str, text: str, status: int) -> HTMLResponse:
    """Return a final page with a title and a message."""
    return _page(title, f"<h1>{escape(title)}</h1><p>{escape(text)}</p>", status, "")


def page(title: str, body: str) -> HTMLResponse:
    """Return a page without a form; `body` is HTML."""
    return _page(title, body, 200, "")


def _page(title: str, body: str, status: int, policy: str) -> HTMLResponse:
    allowed = f"default-src 'none'; style-src {_digest(STYLE)}; base-uri 'none'"
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><main>{body}</main></html>",
        status,
        headers={
            "Content-Security-Policy": f"{allowed}; frame-ancestors 'none'; {policy}".rstrip("; "),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        },
    )
