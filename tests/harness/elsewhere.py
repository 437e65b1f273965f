"""Proxy for a sandbox with other addresses: those of the example in `docs/PROFILES.md`.

Knows nothing of zonedrive.  Other addresses give 404, including the sandbox's own paths.
"""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.harness.fault_proxy import Answer, Asked, FaultProxy

OWN = "/api/sandbox/zones"
_ZONE = r"/api/v1/zones/(?P<zone>[^/]+)"
Values = dict[str, Any]  # of the path, the query and the body


def _given(values: Values) -> None:
    """Check that the request has no unexpected values."""
    assert not values, f"unexpected: {values}"


def _make_folder(values: Values) -> tuple[str, str, object]:
    assert values.pop("notify") == "false"
    body = {"parentId": values.pop("parent"), "name": values.pop("folderName")}
    return "POST", "folders", body


def _rename(values: Values) -> tuple[str, str, object]:
    return "PUT", f"entries/{values.pop('entry')}", {"name": values.pop("value")}


def _move(values: Values) -> tuple[str, str, object]:
    (entry,) = values.pop("entries")
    assert values.pop("overwrite") is False
    return "PUT", f"entries/{entry}", {"parentId": values.pop("target")["folder"]}


def _delete(values: Values) -> tuple[str, str, object]:
    return "DELETE", f"entries/{values.pop('entry')}", None


def _restore(values: Values) -> tuple[str, str, object]:
    return "POST", f"entries/{values.pop('entry')}/restore", None


def _purge(values: Values) -> tuple[str, str, object]:
    return "DELETE", f"entries/{values.pop('entry')}/purge", None


def _deleted(values: Values) -> tuple[str, str, object]:
    return "GET", "deleted", None


def _versions(values: Values) -> tuple[str, str, object]:
    return "GET", f"files/{values.pop('entry')}/versions", None


def _content(values: Values) -> tuple[str, str, object]:
    return "GET", f"files/{values.pop('entry')}/versions/{values.pop('number')}/content", None


def _version(own: dict[str, Any]) -> dict[str, Any]:
    return {
        "number": own["version"],
        "id": own["id"],
        "size": own["size"],
        "made": {"at": own["lastModified"], "by": own["lastModifiedBy"]},
    }


Translation = Callable[[Values], tuple[str, str, object]]
_ENTRY = r"(?P<entry>[^/]+)"
# Method and address, what the sandbox is asked instead, and what is made of its answer.
_TABLE: tuple[tuple[str, str, Translation, Callable[[Any], object] | None], ...] = (
    ("POST", "folders", _make_folder, lambda own: {"result": {"folder": own}}),
    ("PUT", f"entries/{_ENTRY}/name", _rename, lambda own: {}),
    ("POST", "moves", _move, lambda own: {}),
    ("DELETE", f"files/{_ENTRY}", _delete, None),
    ("POST", f"folders/{_ENTRY}/trash", _delete, None),
    ("POST", f"trash/{_ENTRY}/restore", _restore, lambda own: own),
    ("DELETE", f"trash/{_ENTRY}", _purge, None),
    ("GET", "trash", _deleted, lambda own: {"entries": own}),
    ("GET", f"files/{_ENTRY}/history", _versions, lambda own: {"versions": [*map(_version, own)]}),
    ("GET", f"files/{_ENTRY}/history/content", _content, None),
)


def move_away(proxy: FaultProxy) -> list[str]:
    """Let a proxy have these addresses; return the list of requests to them."""
    used: list[str] = []

    def alter_request(asked: Asked) -> None:
        if asked.path.startswith(OWN):
            asked.path = "/api/nothing"
        for method, pattern, translate, _ in _TABLE:
            match = re.fullmatch(f"{_ZONE}/{pattern}", urlsplit(asked.path).path)
            if match is None or asked.method != method:
                continue
            if not asked.headers.get("authorization", asked.headers.get("Authorization")):
                asked.path, asked.body = "/api/zones", b""  # refused like everything
                asked.method = "GET"
                return
            used.append(f"{method} {pattern}")
            values: Values = match.groupdict()
            zone = values.pop("zone")
            values |= {k: v[0] for k, v in parse_qs(urlsplit(asked.path).query).items()}
            values |= json.loads(asked.body) if asked.body else {}
            asked.method, path, body = translate(values)
            _given(values)
            asked.path = f"{OWN}/{zone}/{path}"
            asked.body = b"" if body is None else json.dumps(body).encode()
            return

    def alter(answer: Answer) -> None:
        path = urlsplit(answer.asked.path).path
        for method, pattern, _, wrap in _TABLE:
            matches = re.fullmatch(f"{_ZONE}/{pattern}", path) is not None
            if matches and wrap and answer.asked.method == method and 200 <= answer.status < 300:
                answer.say(wrap(json.loads(answer.body)))

    proxy.alter_request, proxy.alter, proxy.about = (
        alter_request,
        alter,
        lambda asked: True,
    )
    return used
