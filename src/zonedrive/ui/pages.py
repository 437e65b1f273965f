"""Pages of the web interface; most of them show the output of a command, or run a command."""

import asyncio
import atexit
import contextlib
import mimetypes
import os
import re
import secrets
import shutil
import tempfile
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

import anyio
from cachetools import FIFOCache
from jinja2 import DictLoader, Environment, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from zonedrive import config, formatting
from zonedrive.cli import error_messages, text_output
from zonedrive.cli.browser import desktop_openers, opened_by
from zonedrive.cli.files import require_replaceable
from zonedrive.cli.members import LEVELS
from zonedrive.errors import ZonedriveError
from zonedrive.fuse import mountpoint
from zonedrive.logon.logon import LogonRequest
from zonedrive.logon.session_bus import own_environment
from zonedrive.logon.wire import Offer
from zonedrive.paths import DEFAULT_ACCOUNT, LONGEST_NAME, config_file, name_remedy
from zonedrive.remedies import message_in_window
from zonedrive.translation import translated, translated_count, translated_line
from zonedrive.ui import accounts, commands, comparison, logons, problems, session_start
from zonedrive.ui.accounts import AccountView
from zonedrive.ui.logons import Dialogue
from zonedrive.ui.problems import Problem

HERE = Path(__file__).parent
EVENT_SECONDS = 1.0
MOST_LOGONS = 20  # logons that are remembered
MOST_MESSAGES = 50
MOST_STREAMS = 4  # a browser opens at most six connections to a server
MOST_ENTRIES = 1000  # maximum number of entries shown of one folder
MOST_CHANGES = 100  # maximum number of changes shown, until older ones are requested
WEEK = "7d"  # default period of the log of the whole mount
LARGEST_CERTIFICATES = 1 << 20  # bytes
FILE_ACTIONS = ("zone_log", "versions", "share", "member_link")  # operations of the list of files
QUESTION_SECONDS = 15.0  # a page of a logon waits this long for the next question
SEND_SECONDS = "60"  # maximum wait for an upload; then the overview shows its progress
CHOICES = {
    **{name: config.choices(name) for name in config.NAMES if config.choices(name)},
    "encrypt": ("true", "false"),
}
LOGON_FIELDS = (
    "url", "username", "account", "profile", "idp", "personal_id", "save", "attempt",
)  # fmt: skip
LONGEST_FILE_NAME = 255  # bytes
LONGEST_SUFFIX = 20  # characters; a longer one is shortened like the rest of the name
TEMPORARY = ".goutputstream-"  # prefix of names that match the default of `local_only`


def _read(folder: str) -> dict[str, bytes]:
    """Return the content of each file in a folder of this package, keyed by file name.

    The files are read only once, because an upgrade or a removal of zonedrive may replace or delete
    them while this process runs. A template of another version may need other values.
    """
    return {path.name: path.read_bytes() for path in (HERE / folder).iterdir() if path.is_file()}


class Window:
    """Web application with the pages of the web interface, and their state."""

    def __init__(self, present: Callable[[], AbstractContextManager[None]]) -> None:
        """Create the pages; `present` returns a context manager to enter while a page is open."""
        self._present = present
        self._logons: FIFOCache[str, Dialogue] = FIFOCache(MOST_LOGONS)  # by id
        self._at_login: set[str] = set()  # accounts that are mounted at login, at the last overview
        self._said: FIFOCache[str, str | Problem] = FIFOCache(MOST_MESSAGES)  # shown once
        self._streams: list[object] = []  # one object for each open stream of events
        self._static_files = _read("static")
        self._environment = Environment(
            loader=DictLoader({name: text.decode() for name, text in _read("templates").items()}),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.i18n"],
        )
        self._environment.install_gettext_callables(  # type: ignore[attr-defined]
            translated, translated_count, newstyle=True
        )
        self._environment.filters |= {
            "amount": lambda size: translated_line(text_output.amount(size)),
            "when": text_output.when,
            "shown": formatting.plain,
            "in_window": lambda text: message_in_window(text),
        }
        of = "/a/{name}"
        self.app = Starlette(
            routes=[
                Route("/", self._overview),
                Route("/events", self._events),
                Route("/logon", self._logon),
                Route("/logon", self._begin_logon, methods=["POST"]),
                Route("/logon/{key}", self._dialogue),
                _form_route("/logon/{key}", self._answer),
                Route("/logon/{key}/wait", self._waited),
                _form_route(f"{of}/do/{{what}}", self._do),
                Route(f"{of}/conflicts", self._conflicts),
                Route(f"{of}/compare", self._compare),
                _form_route(f"{of}/decide", self._decide),
                Route(f"{of}/files", self._files),
                Route(f"{of}/versions", self._versions),
                _form_route(f"{of}/versions", self._bring_back),
                Route(f"{of}/version", self._version),
                Route(f"{of}/log", self._log),
                Route(f"{of}/share", self._share),
                _form_route(f"{of}/share", self._share_or_end),
                Route(f"{of}/members", self._members),
                _form_route(f"{of}/members", self._change_member),
                Route(f"{of}/trash", self._trash),
                _form_route(f"{of}/trash", self._restore),
                Route(f"{of}/offline", self._offline),
                _form_route(f"{of}/offline", self._keep_offline),
                Route(f"{of}/zones", self._zones),
                Route(f"{of}/settings", self._settings),
                _form_route(f"{of}/settings", self._change_settings),
                Route(f"{of}/help", self._help),
                Route(f"{of}/report", self._report),
                Route(f"{of}/logoff", self._logoff),
                _form_route(f"{of}/logoff", self._log_off),
                Route("/static/{file}", self._static),
            ],
            exception_handlers={
                ZonedriveError: self._wrong,
                OSError: self._wrong,
                404: self._missing,
            },
        )

    # ---- parts of every page ----

    def _page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        said = self._said.pop(request.query_params.get("said", ""), "")
        names = accounts.names()
        values = {"account": None, "said": said, "again": "", **values}
        name = values["account"].name if values["account"] else request.path_params.get("name")
        values["place"] = name if name in names else names[0] if len(names) == 1 else ""
        return HTMLResponse(self._rendered(template, values), status)

    def _rendered(self, template: str, values: dict[str, Any]) -> str:
        """Return the rendered template; "?" replaces each undecodable byte of a path."""
        text = self._environment.get_template(template).render(values)
        return text.encode("utf-8", "replace").decode()

    def _to(self, path: str, said: str | Problem = "") -> Response:
        """Return a redirect to the page at `path`, which shows the message `said` once."""
        if said:
            key = secrets.token_urlsafe(8)
            self._said[key] = said
            path += ("&" if "?" in path else "?") + f"said={key}"
        return RedirectResponse(path, 303)

    def _told(
        self, path: str, outcome: commands.Outcome, well: str = "", account: str = ""
    ) -> Response:
        """Return a redirect to the page at `path`, which shows the message of a command.

        `well` is the message for a command that succeeded without output. `account` is the account
        that a failure concerns.
        """
        if not outcome.ok:
            return self._to(path, replace(problems.of(outcome.failure), account=account))
        lines = f"{outcome.output.strip()}\n{outcome.said}".strip().splitlines()
        return self._to(path, "\n".join(map(translated_line, lines)) or well)

    async def _wrong(self, request: Request, error: Exception) -> Response:
        if request.path_params.get("name", "") not in ("", *accounts.names()):
            return self._to("/", problems.worded(error))
        return self._problem(request, problems.of(error))

    async def _missing(self, request: Request, error: Exception) -> Response:
        return self._problem(request, Problem(translated("There is no such page."), status=404))

    def _problem(self, request: Request, problem: Problem) -> Response:
        again = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return self._page(
            request, "wrong.html", problem.status, problem=problem,
            again=again if request.method == "GET" else "",
        )  # fmt: skip

    async def _static(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name not in self._static_files:
            raise HTTPException(404)
        return Response(self._static_files[name], media_type=mimetypes.guess_type(name)[0])

    # ---- overview ----

    def _overview(self, request: Request) -> Response:
        found = accounts.views()
        if not found:
            said = request.query_params.get("said", "")
            return self._to(f"/logon?said={quote(said)}" if said else "/logon")
        self._at_login = {view.name for view in found if session_start.is_on(view.name)}
        return self._page(request, "overview.html", views=found, at_login=self._at_login)

    async def _events(self, request: Request) -> Response:
        name = request.query_params.get("offline")
        live = self._live if name is None else partial(self._live_offline, name)
        rest = 0.0 if name is None else 4.0  # pins may have millions of files, which are counted
        return StreamingResponse(self._stream(request, live, rest), media_type="text/event-stream")

    async def _stream(
        self, request: Request, live: Callable[[], str], rest: float
    ) -> AsyncIterator[str]:
        """Yield an event with the dynamic part of a page at each change, while the page is open.

        The pause between two updates is at least `rest` times as long as an update takes. The
        iteration also ends if MOST_STREAMS newer streams are open. The page then requests a new
        stream.
        """
        this, former = object(), ""
        with self._present(), contextlib.ExitStack() as at_end:
            self._streams.append(this)
            at_end.callback(self._streams.remove, this)
            while this in self._streams[-MOST_STREAMS:] and not await request.is_disconnected():
                began, text = time.monotonic(), former
                with contextlib.suppress(ZonedriveError, OSError):  # the page stays unchanged
                    text = await anyio.to_thread.run_sync(live, abandon_on_cancel=True)
                if text != former:
                    former = text
                    # A browser ignores an event without a line of data. It knows only these line
                    # ends; `splitlines` knows others, which a name may contain.
                    lines = "".join(f"data: {line}\n" for line in re.split("\r\n|\r|\n", text))
                    yield f"event: live\n{lines}\n"
                else:
                    yield ":\n\n"  # a comment, whose sending detects a closed connection
                await asyncio.sleep(max(EVENT_SECONDS, rest * (time.monotonic() - began)))

    def _live(self) -> str:
        values = {"views": accounts.views(), "at_login": self._at_login}
        return self._rendered("accounts.html", values)

    def _do(self, request: Request, form: FormData) -> Response:
        account, what = self._view(request), request.path_params["what"]
        name = account.name
        if what == "open":
            return self._opened(accounts.inside(account, _text(form, "path", strip=False)))
        if what == "mount":
            done = _mounted(name, accounts.mount_folder(name))
            return self._told("/", done, translated("Mounted."), name)
        if what in ("start", "do-not-start"):
            session_start.choose(name, account.mountpoint, start=what == "start")
            if what == "start":
                return self._to("/", translated("This account is mounted at your next login."))
            if session_start.is_on(name):  # `systemctl --global enable` is not undone by a user
                text = translated("This account is still mounted at each login.")
                remedy = translated("Ask the administrator of this computer, who has chosen it.")
                return self._to("/", Problem(text, remedy))
            never = translated("This account is not mounted at your next login any more.")
            return self._to("/", never)
        if what == "edit-settings":
            return self._opened(config_file())
        if what == "restart":
            return self._told("/", _restarted(name), translated("Started again."), name)
        if what in ("pause", "resume"):
            done = commands.run(what, "--account", name)
            text = translated("Uploads are paused.")
            said = text if what == "pause" else translated("Uploads continue.")
            return self._told("/", replace(done, output=""), said, name)
        if what == "send":
            path = accounts.inside(account, _text(form, "path", strip=False))
            if account.problem is not None:  # without the service, the command waits in vain
                return self._to("/", replace(account.problem, account=name))
            done = commands.run("send", "--timeout", SEND_SECONDS, "--", os.fspath(path))
            return self._told("/", done, translated("Sent."), name)
        if what == "unmount":
            account.require_mount()
            done = commands.run("unmount", account.mountpoint)
            return self._told("/", done, translated("Unmounted."), name)
        return self._to("/", Problem(translated("There is no such page.")))

    def _opened(self, path: Path) -> Response:
        if opened_by(desktop_openers(), os.fspath(path), own_environment()):
            return Response(status_code=204)
        return self._to("/", Problem(translated("No file manager was found.")))

    # ---- logging on and off ----

    def _logon(self, request: Request) -> Response:
        known = accounts.names()
        failed = self._logons.get(request.query_params.get("from", ""))
        name = request.query_params.get("account", "") or (failed.account if failed else "")
        again = accounts.view(name) if name in known else None
        given = dict.fromkeys(LOGON_FIELDS, "") | {"account": name}
        sign_on: tuple[str, ...] = ()
        if failed is not None:
            options = failed.request
            sign_on = failed.requested.option if failed.requested else ()
            given |= {
                "url": options.url,
                "username": options.username,
                "profile": options.profile or "",
                "save": "1" if options.save_password else "",
                "attempt": failed.id if failed.certificates else "",
            }
        elif again is not None and again.account is not None:
            given["save"] = "1" if again.account.keeps_password else ""
            sign_on = again.account.sign_on
        if sign_on:
            given[sign_on[0].removeprefix("--").replace("-", "_")] = sign_on[1]
        return self._page(
            request, "logon.html", given=given, error=failed.error if failed else None,
            again=again, fresh=_fresh(known), shared=config.organization(name or _fresh(known)),
        )  # fmt: skip

    async def _begin_logon(self, request: Request) -> Response:
        async with request.form(max_part_size=LARGEST_CERTIFICATES) as form:
            upload = form.get("certificates")
            pem = await upload.read() if isinstance(upload, UploadFile) and upload.filename else b""
            return await anyio.to_thread.run_sync(self._begun, request, form, pem)

    def _begun(self, request: Request, form: FormData, pem: bytes) -> Response:
        given = {key: _text(form, key) for key in LOGON_FIELDS}
        name = given["account"] or DEFAULT_ACCOUNT
        if not pem and (failed := self._logons.get(given["attempt"])):
            pem = failed.certificates
        elif pem:
            given["attempt"] = ""  # the file of an earlier attempt is not used instead
        again = accounts.view(name) if name in accounts.names() and form.get("again") else None
        ways = [Offer("idp", given["idp"]), Offer("personal-id", given["personal_id"])]
        ways = [way for way in ways if way.name]
        if len(ways) > 1 and again is not None and again.account is not None:
            ways = [way for way in ways if way.option != again.account.sign_on]
        error: Problem | None = None
        if name_remedy(name):
            said = translated(
                "The name of an account has at most {n} lower-case letters, digits and hyphens."
            )
            error = Problem(said.format(n=LONGEST_NAME))
        elif len(ways) > 1:
            text = translated("Enter an identity provider or a personal identification, not both.")
            error = Problem(text)
        shared = config.organization(name)
        url = again.base_url if again else given["url"] or shared.base_url or ""
        if url and "://" not in url:
            url = f"https://{url}"
        if not error:
            certificate = _kept(pem) if pem else None
            options = LogonRequest(
                url=url.rstrip("/"),
                username=given["username"] or (again.username if again else ""),
                ca_file=os.fspath(certificate) if certificate else None,
                profile=given["profile"] or None,
                save_password=bool(given["save"]),
            )
            way = ways[0] if ways else None
            try:
                shared.check_logon(
                    ca_file=options.ca_file,
                    profile=options.profile,
                    save_password=options.save_password,
                )
                shared.check_service(options.url)
                dialogue = Dialogue(name, options.within(shared), way, certificate, pem)
                dialogue.begin()
                self._logons[dialogue.id] = dialogue
                return self._to(f"/logon/{dialogue.id}")
            except ZonedriveError as wrong:
                error = logons.problem_of(wrong)
                if certificate is not None:
                    certificate.unlink(missing_ok=True)
        return self._page(
            request, "logon.html", 400, again=again, fresh=_fresh(accounts.names()), error=error,
            given=given, shared=shared,
        )  # fmt: skip

    def _dialogue(self, request: Request) -> Response:
        dialogue = self._logons.get(request.path_params["key"])
        if dialogue is None:
            return self._to("/logon", Problem(translated("This logon is over; begin again.")))
        dialogue.wait(QUESTION_SECONDS)
        if dialogue.error:
            return self._to(f"/logon?from={dialogue.id}")
        if not dialogue.done:
            return self._page(request, "dialogue.html", dialogue=dialogue)
        if dialogue.shown:  # the browser went back; the account may be unmounted since
            return self._to("/")
        dialogue.shown = True
        said = [dialogue.done, *dialogue.notes]
        if not (account := accounts.view(dialogue.account)).mountpoint:
            done = _mounted(account.name, accounts.default_folder(account.name))
            text = message_in_window(done.said) if done.ok else problems.of(done.failure).text
            said.append(text or translated("Mounted."))
        return self._to("/", "\n".join(said))

    def _waited(self, request: Request) -> Response:
        """Respond as soon as the logon has another question or has ended; the page then reloads.

        Respond after QUESTION_SECONDS seconds in any case.
        """
        dialogue = self._logons.get(request.path_params["key"])
        if dialogue is not None:
            dialogue.wait(QUESTION_SECONDS, request.query_params.get("at", ""))
        return Response(status_code=204)

    def _answer(self, request: Request, form: FormData) -> Response:
        key = request.path_params["key"]
        dialogue = self._logons.get(key)
        if "cancel" in form and (dialogue is None or dialogue.cancel()):
            self._logons.pop(key, None)
            return self._to("/")
        if dialogue is not None:
            dialogue.answer({name: _text(form, name, strip=False) for name in form})
        return self._to(f"/logon/{key}")

    def _logoff(self, request: Request) -> Response:
        return self._page(request, "logoff.html", account=self._view(request), refused=None)

    def _log_off(self, request: Request, form: FormData) -> Response:
        account = self._view(request)
        discard = ["--discard"] if form.get("discard") else []
        done = commands.run("logoff", "--account", account.name, *discard)
        if done.ok:
            return self._told("/", done)
        refused = replace(problems.of(done.failure), account=account.name)
        return self._page(request, "logoff.html", 409, account=account, refused=refused)

    # ---- conflicts ----

    def _conflicts(self, request: Request) -> Response:
        """Show all conflicts, or compare the versions if the query's `path` is a conflict copy."""
        account, path = self._mounted_view(request), request.query_params.get("path", "")
        found = commands.listed("conflicts", "--account", account.name)
        for one in found:
            if one["path"] == path and one["original"] not in ("", path):
                place = urlencode({"path": path, "other": one["original"]})
                return self._to(f"/a/{account.name}/compare?{place}")
        return self._page(request, "conflicts.html", account=account, conflicts=found)

    def _compare(self, request: Request) -> Response:
        account = self._view(request)
        given = request.query_params
        mine, theirs = (accounts.inside(account, given.get(name, "")) for name in ("path", "other"))
        left, right = comparison.text_of(mine), comparison.text_of(theirs)
        rows = None if left is None or right is None else comparison.rows(left, right)
        return self._page(
            request, "compare.html", account=account, path=given["path"], other=given["other"],
            rows=rows, stamp=_stamp(mine, theirs), removes=account.can("delete"),
            renames=account.can("rename"), sizes=[each.stat().st_size for each in (mine, theirs)],
        )  # fmt: skip

    def _decide(self, request: Request, form: FormData) -> Response:
        """Resolve a conflict as the user chose, with ordinary file operations on the mount."""
        account = self._view(request)
        back = f"/a/{account.name}/conflicts"
        paths = [_text(form, key, strip=False) for key in ("path", "other")]
        mine = accounts.inside(account, paths[0])
        theirs = accounts.inside(account, paths[1]) if paths[1] else mine
        found = commands.listed("conflicts", "--account", account.name)
        if paths not in [[one["path"], one["original"]] for one in found]:
            return self._to(back, Problem(translated("This conflict is over.")))
        stamp, decision = _text(form, "stamp"), _text(form, "decision")
        changed = Problem(translated("One of the files has changed meanwhile. Compare them again."))
        if mine != theirs and stamp != _stamp(mine, theirs):
            return self._to(back, changed)
        if decision == "both":
            name = _unused(mine.parent, theirs)
            mine.rename(mine.parent / name)
            return self._to(back, translated("Your version is kept as {}.").format(name))
        require_replaceable(os.fspath(mine), is_copied=True)
        if decision == "mine":
            if not _replace(mine, theirs, stamp):
                return self._to(back, changed)
            said = translated("Your version is the newest version of {} now.").format(theirs.name)
        elif decision == "theirs":
            if commands.listed("status", os.fspath(mine))["uploads"]:
                text = translated(
                    "Your copy is not uploaded yet, and would be lost. Decide later, or keep both."
                )
                return self._to(back, Problem(text))
            if mine != theirs and stamp != _stamp(mine, theirs):  # the question took a while
                return self._to(back, changed)
            said = translated("Your copy was removed.")
        else:
            return self._to(back)
        if mine != theirs:
            mine.unlink()
        return self._to(back, said)

    # ---- files and versions ----

    def _files(self, request: Request) -> Response:
        account = self._view(request)
        path = request.query_params.get("path", "").strip("/")
        wanted = request.query_params.get("name", "").strip()
        entries = _entries(accounts.inside(account, path), wanted)
        can = {name for name in FILE_ACTIONS if account.can(name)}
        return self._page(
            request, "files.html", account=account, path=path, wanted=wanted, can=can,
            entries=entries[:MOST_ENTRIES], more=max(0, len(entries) - MOST_ENTRIES),
        )  # fmt: skip

    def _versions(self, request: Request) -> Response:
        account = self._view(request)
        path = request.query_params.get("path", "")
        found = commands.listed("versions", os.fspath(accounts.inside(account, path)))
        return self._page(request, "versions.html", account=account, path=path, versions=found)

    def _bring_back(self, request: Request, form: FormData) -> Response:
        account, path = self._view(request), _text(form, "path", strip=False)
        target, version = os.fspath(accounts.inside(account, path)), _text(form, "version")
        done = _fetched(target, version, target)
        text = translated("The file has the content of version {} now, and is uploaded.").format(
            version
        )
        return self._told(f"/a/{account.name}/versions?path={quote(path)}", done, text)

    def _version(self, request: Request) -> Response:
        account, given = self._view(request), request.query_params
        path = accounts.inside(account, given.get("path", ""))
        version = given.get("version", "")
        with tempfile.TemporaryDirectory(prefix="zonedrive-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / path.name
            done = _fetched(os.fspath(path), version, os.fspath(copy))
            if not done.ok:
                raise done.failure
            opened = copy.open("rb")  # keeps the bytes until `_pieces` closes it
        return StreamingResponse(
            _pieces(opened),
            media_type="application/octet-stream",
            headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name)}"},
        )

    # ---- changes, sharing, members ----

    def _log(self, request: Request) -> Response:
        """Show the zone log of a path, or a file's versions if the profile defines no zone log."""
        account, given = self._view(request), request.query_params
        path, user = given.get("path", "").strip("/"), given.get("user", "").strip()
        since = given.get("since", "" if path else WEEK)
        words = [os.fspath(accounts.inside(account, path))]
        words += [f"--since={since}"] if since else []
        words += [f"--user={user}"] if user else []
        note = ""
        if account.can("zone_log") or not account.can("versions"):
            found, note = commands.noted("log", *words)
        else:
            found = [_change(one, path) for one in commands.listed("versions", words[0])]
        asked = given.get("most", "")
        most = max(int(asked) if re.fullmatch("[0-9]{1,6}", asked) else 0, MOST_CHANGES)
        return self._page(
            request, "log.html", account=account, path=path, user=user, since=since,
            messages=found[:most], more=10 * most if len(found) > most else 0,
            periods=_periods(), has_log=account.can("zone_log"), note=message_in_window(note),
        )  # fmt: skip

    def _share(self, request: Request, link: str = "", note: str = "") -> Response:
        account, path = self._view(request), request.query_params.get("path", "").strip("/")
        accounts.inside(account, path)
        return self._page(
            request, "share.html", account=account, path=path, link=link, note=note,
            can_share=account.can("share") or not account.can("member_link"),
            can_end=account.can("unshare"), member_link=accounts.member_link(account, path),
        )  # fmt: skip

    def _share_or_end(self, request: Request, form: FormData) -> Response:
        """Share an entry and show the new link, or revoke the share.

        No later page shows the link.
        """
        account, path = self._view(request), request.query_params.get("path", "").strip("/")
        whole = os.fspath(accounts.inside(account, path))
        if form.get("remove"):
            done = commands.run("unshare", whole)
            return self._told(f"/a/{account.name}/share?path={quote(path)}", done)
        done = commands.run("share", whole)
        if not done.ok:
            raise done.failure
        return self._share(request, link=done.output.strip(), note=message_in_window(done.said))

    def _members(self, request: Request) -> Response:
        account, zone = self._view(request), request.query_params.get("zone", "")
        found = commands.listed("members", "--account", account.name, "--", zone)
        name = request.query_params.get("name", zone)
        return self._page(
            request, "members.html", account=account, members=found, name=name,
            levels=LEVELS, can_set=account.can("set_member"),
            can_remove=account.can("remove_member"),
        )  # fmt: skip

    def _change_member(self, request: Request, form: FormData) -> Response:
        account, zone = self._view(request), request.query_params.get("zone", "")
        what, who, level = (_text(form, key) for key in ("what", "who", "level"))
        words = [] if what == "remove" else [level]
        if what not in ("add", "set", "remove"):
            raise ZonedriveError(translated("There is no such page."))
        done = commands.run("members", what, "--account", account.name, "--", zone, who, *words)
        said = translated("{who} has the level {level} now.").format(who=who, level=level)
        if what == "remove":
            said = translated("{who} is no longer a member.").format(who=who)
        here = f"/a/{account.name}/members?{request.url.query}"
        return self._told(here, replace(done, output=""), said)

    def _trash(self, request: Request) -> Response:
        account = self._view(request)
        account.require_answer()
        found, note = commands.noted("trash", "--account", account.name)
        return self._page(
            request, "trash.html", account=account, entries=found, note=message_in_window(note)
        )

    def _restore(self, request: Request, form: FormData) -> Response:
        account = self._view(request)
        done = commands.run("restore", "--account", account.name, "--", _text(form, "id"))
        return self._told(f"/a/{account.name}/trash", done)

    # ---- offline, zones, settings, help ----

    def _offline(self, request: Request) -> Response:
        account = self._mounted_view(request)
        pins = accounts.pins(account)
        kept = {pin["path"] for pin in pins}
        with os.scandir(account.mountpoint) as found:
            folders = sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
        return self._page(
            request, "offline.html", account=account, pins=pins, room=accounts.room(account),
            folders=[] if "" in kept else [name for name in folders if name not in kept],
        )  # fmt: skip

    def _live_offline(self, name: str) -> str:
        try:
            account = accounts.view(name)
            account.require_mount()
            values = {"account": account, "pins": accounts.pins(account)}
            return self._rendered("pins.html", values | {"room": accounts.room(account)})
        except (ZonedriveError, OSError) as wrong:  # the old progress would look current
            return self._rendered("trouble.html", {"problem": problems.of(wrong), "place": name})

    def _keep_offline(self, request: Request, form: FormData) -> Response:
        account = self._view(request)
        path = os.fspath(accounts.inside(account, _text(form, "path", strip=False)))
        if form.get("remove"):
            done = commands.run("unpin", path)
            return self._told(f"/a/{account.name}/offline", done, translated("Not kept any more."))
        accounts.pin(account, path)
        text = translated("{name} will be kept offline. This page shows what is here already.")
        said = text.format(name=Path(path).name)
        return self._to(f"/a/{account.name}/offline", formatting.plain(said))

    def _zones(self, request: Request) -> Response:
        account = self._view(request)
        account.require_answer()
        found = commands.listed("zones", "--account", account.name)
        can_list = account.can("members")
        return self._page(
            request, "zones.html", account=account, zones=found, lists_members=can_list
        )

    def _settings(
        self,
        request: Request,
        tried: dict[str, str] | None = None,
        former: dict[str, str] | None = None,
        error: Problem | None = None,
    ) -> Response:
        """Show the settings.

        If the user's input was rejected with `error`, `tried` contains the input, and `former`
        contains the values that the form showed first.
        """
        account = self._view(request)
        shared = config.organization(account.name)
        found = config.load(config_file(), account.name, system=shared)
        default = shared.applied({})
        fixed = {*shared.policy, *shared.closed}
        texts = {name: config.as_text(getattr(found, name)) for name in config.NAMES}
        return self._page(
            request, "settings.html", 400 if error else 200, account=account,
            names=config.NAMES, texts=texts | (tried or {}), former=texts | (former or {}),
            fixed=fixed, error=error,
            defaults={name: config.as_text(getattr(default, name)) for name in texts},
            choices=CHOICES, lists=config.LISTS, file=config_file(), meanings=meanings(),
            labels=labels(),
        )  # fmt: skip

    def _change_settings(self, request: Request, form: FormData) -> Response:
        """Save the settings that the user has changed in the form.

        An empty value removes a setting.
        """
        account = self._view(request)
        given = {name: _lines(_text(form, name)) for name in config.NAMES if name in form}
        former = {name: _lines(_text(form, f"former-{name}")) for name in given}
        changed = {name: text or None for name, text in given.items() if text != former[name]}
        try:
            if changed:
                config.change(config_file(), account.name, changed)
        except ZonedriveError as wrong:
            return self._settings(request, given, former, problems.of(wrong))
        text = translated(
            "Saved. The settings take effect at the next mount: unmount and mount on the overview."
        )
        unchanged = translated("Nothing was changed.")
        return self._to(f"/a/{account.name}/settings", text if changed else unchanged)

    def _help(self, request: Request) -> Response:
        account = self._view(request)
        words = ("doctor", "--account", account.name)
        checks = commands.listed(*words, seconds=commands.CHECK_SECONDS)["checks"]
        bad = [
            (problems.check_name(check["name"]), problems.of_check(check))
            for check in checks
            if not check["ok"]
        ]
        return self._page(
            request, "help.html", account=account, checks=checks, bad=bad, again=request.url.path,
            offered={button for _, problem in bad for button in problem.buttons},
            check_name=problems.check_name,
        )  # fmt: skip

    def _report(self, request: Request) -> Response:
        account = self._view(request)
        done = commands.run("doctor", "--report", "-", "--account", account.name)
        if not done.output:
            raise done.failure
        name = f"zonedrive-report-{account.name}.txt"
        return Response(
            done.output,
            media_type="text/plain; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    def _view(self, request: Request) -> AccountView:
        return accounts.view(str(request.path_params["name"]))

    def _mounted_view(self, request: Request) -> AccountView:
        account = self._view(request)
        account.require_mount()
        return account


def _form_route(path: str, respond: Callable[[Request, FormData], Response]) -> Route:
    """Return the POST route of `path`; `respond` is called in a thread, with the posted form.

    If an equal form is posted while the first one is processed, both requests get the response to
    the first one. After a double click, a browser shows only the response to the last click. That
    response would otherwise be an error, because the action of the first click is in progress.
    """
    running: dict[object, tuple[anyio.Event, Future[Response]]] = {}  # by address and fields

    async def endpoint(request: Request) -> Response:
        form = await request.form()
        key = str(request.url), tuple(form.multi_items())
        if key in running:
            ended, outcome = running[key]
            await ended.wait()
            return outcome.result(0)
        ended, outcome = running[key] = anyio.Event(), Future()
        try:
            outcome.set_result(await anyio.to_thread.run_sync(respond, request, form))
        except Exception as wrong:
            outcome.set_exception(wrong)
        finally:
            del running[key]
            ended.set()
        return outcome.result(0)

    return Route(path, endpoint, methods=["POST"])


def meanings() -> dict[str, str]:
    """Return the translated meaning of each setting."""
    _ = translated
    return {
        "settle": _("Seconds after the last close before a file is uploaded."),
        "close": _("Whether closing a file waits until the service has it."),
        "fsync": _("Whether a program that asks for safety waits for the disk or the service."),
        "unchanged": _("Whether saving a file without a change makes a version."),
        "refresh": _("Seconds that the list of a folder counts as current."),
        "cache_size": _("Maximum size of the downloaded files on this disk, in bytes."),
        "encrypt": _("Whether files and names are encrypted on this disk."),
        "connections": _("Maximum number of simultaneous requests to the service, and of uploads."),
        "upload_limit": _("Maximum number of bytes sent per second; 0 for no limit."),
        "download_limit": _("Maximum number of bytes received per second; 0 for no limit."),
        "local_only": _("Names of files that never leave this machine."),
        "guard": _("Programs that read only what is on this disk already."),
        "executable": _("Whether files that coworkers marked can be run as programs."),
        "profile": _("What this deployment of the service can do; none means as at the logon."),
    }


def labels() -> dict[str, dict[str, str]]:
    """Return the translated label of each fixed value of a setting, keyed by setting and value."""
    yes, no = translated("Yes"), translated("No")
    return {
        "close": {"background": no, "wait": yes},
        "fsync": {"local": translated("For the disk"), "service": translated("For the service")},
        "unchanged": {"skip": no, "version": yes},
        "executable": {"ignore": no, "keep": yes},
        "encrypt": {"true": yes, "false": no},
    }


def _periods() -> list[tuple[str, str]]:
    _ = translated
    return [
        ("today", _("Today")),
        (WEEK, _("The last 7 days")),
        ("30d", _("The last 30 days")),
        ("", _("All time")),
    ]


def _entries(folder: Path, wanted: str) -> list[tuple[bool, str]]:
    """Return the entries of a folder whose names contain `wanted`, ignoring case.

    An entry is a pair (True for a folder, name). Folders come before other entries. Both groups are
    sorted by name.
    """
    with os.scandir(folder) as found:
        entries = [
            (entry.is_dir(follow_symlinks=False), entry.name)
            for entry in found
            if _folded(wanted) in _folded(entry.name)
        ]
    return sorted(entries, key=lambda entry: (not entry[0], _folded(entry[1]), entry[1]))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _change(version: dict[str, Any], path: str) -> dict[str, Any]:
    said = translated("Version {number}").format(number=version["version"])
    return {"time": version["modified"], "user": version["modified_by"], "message": said,
            "event": "", "path": path}  # fmt: skip


def _mounted(name: str, folder: Path) -> commands.Outcome:
    """Mount an account on `folder`, and return the result of the command.

    If the account has a systemd unit, and `folder` is the default folder, try first to start the
    unit.
    """
    if session_start.has_unit(name) and folder == accounts.default_folder(name):
        done = session_start.start_unit(name)
        if done.ok:
            return done
    try:
        if mountpoint.at(folder) is None:  # mkdir fails on a mount whose daemon died
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        message, remedy = error_messages.parts(wrong)
        return commands.Outcome(1, "", "", ZonedriveError(message, remedy=remedy))
    return commands.run("mount", os.fspath(folder), "--account", name)


def _restarted(name: str) -> commands.Outcome:
    """End the account's daemon, even if it does not answer, and mount again on the same folder."""
    folder = accounts.mounted_on(name)
    if folder is not None:
        done = commands.run("unmount", "--now", os.fspath(folder))
        if not done.ok:
            return done
    return _mounted(name, folder or accounts.mount_folder(name))


def _fetched(path: str, version: str, target: str) -> commands.Outcome:
    """Write the content of a version of the file `path` to `target`, without a time limit."""
    return commands.run("versions", path, "--get", version, "-o", target, seconds=None)


def _fresh(known: list[str]) -> str:
    """Return the name for a new account, or "" if the user has to choose a name."""
    return "" if DEFAULT_ACCOUNT in known else DEFAULT_ACCOUNT


def _text(form: FormData, key: str, *, strip: bool = True) -> str:
    value = form.get(key, "")
    text = value if isinstance(value, str) else ""
    return text.strip() if strip else text


def _lines(text: str) -> str:
    """Return a form's text with Unix line endings, and without whitespace around each line."""
    return "\n".join(line.strip() for line in text.splitlines()).strip()


def _kept(pem: bytes) -> Path:
    """Store uploaded certificates in a temporary file for the logon, and return its path.

    The logon copies the file. The file is removed at the latest when the process exits.
    """
    descriptor, name = tempfile.mkstemp(prefix="zonedrive-", suffix=".pem")
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return Path(name)


def _stamp(*paths: Path) -> str:
    """Return a string with the modification times and sizes of the files, to detect changes."""
    return ",".join(f"{found.st_mtime_ns}-{found.st_size}" for found in map(os.stat, paths))


def _replace(source: Path, target: Path, stamp: str) -> bool:
    """Replace the content of `target` with a copy of `source`, by renaming a temporary file.

    The mode of `target` does not change. Return False, and replace nothing, if the result of
    `_stamp` for both files is not `stamp` after the copying, which may take long. Raises the errors
    of `require_replaceable`, and OSError.
    """
    temporary = target.parent / f"{TEMPORARY}{secrets.token_hex(4)}"
    try:
        temporary.touch(0o600, exist_ok=False)
        shutil.copyfile(source, temporary)
        shutil.copymode(target, temporary)
        require_replaceable(os.fspath(source), is_copied=True)
        require_replaceable(os.fspath(target))
        if stamp != _stamp(source, target):
            return False
        temporary.replace(target)
        return True
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _unused(folder: Path, original: Path) -> str:
    """Return a free name in `folder` for the user's copy of `original`, shortened if necessary.

    Raises ZonedriveError if no name is free.
    """
    mine = translated("mine")
    stem, suffix = original.stem, original.suffix
    if len(suffix) > LONGEST_SUFFIX:
        stem, suffix = original.name, ""
    for number in range(1, 1000):
        again = f" {number}" if number > 1 else ""
        end = f" ({mine}{again}){suffix}"
        room = LONGEST_FILE_NAME - len(end.encode())
        name = stem.encode()[:room].decode("utf-8", "ignore") + end
        if not os.path.lexists(folder / name):
            return name
    raise ZonedriveError("there is no free name for your version", remedy="rename it yourself")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of an open file in pieces, and close the file."""
    with file:
        while piece := file.read(1 << 20):
            yield piece
