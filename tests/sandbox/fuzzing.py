"""Hostile requests, generated from the sandbox's own table of endpoints.

Every request is well-formed HTTP; the hostile parts are method, path, query, headers and body. Some
parts are valid, so that the others pass the first check.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, quote_from_bytes

from zonedrive.sandbox.app import GUARDED, OPEN

ENDPOINTS = sorted(
    {(method, path) for method, path, _endpoint in OPEN}
    | {(method, path) for method, path, *_more in GUARDED}
)
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "TRACE", "BREW"]

# Text that has broken services: separators, controls, encodings, sizes, numbers, injections.
TEXTS = [
    "", " ", ".", "..", "../..", "/", "a/b", "\\", "\0", "a\0b", "\r\n", "\x7f", "\x1b[31m", "'",
    "' OR 1=1 --", '"', ";", "%", "%00", "%2e%2e%2f", "é", "\u202e", "💼", "\u2028", "\ufeff",
    "n" * 300, "x" * 5000, "0", "-1", "1e9", "NaN", "9" * 30, "None", "null", "true", "True",
    "Manage", "Add", "SCIM", "group.x@y", "group.", "{zone_id}", "$(id)", "<script>",
]  # fmt: skip
BYTES = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\x00", b"\xf8\x88\x80\x80\x80", b"%"]

# JSON values as text: also what Python's own encoder would not write.
VALUES = [
    "null", "true", "false", "0", "-1", "1", "1.5", "-0", "1e400", "-1e400", "NaN", "Infinity",
    "9" * 25, "-" + "9" * 25, "9" * 400, "9223372036854775807", "9223372036854775808", "[]", "{}",
    '""', "[[]]", "[null]", '["a", 5]', '[""]', '{"a": {"b": [1]}}', '"\\ud800"', '"\\u0000"',
    '"\\udfff\\ud800"', "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, "[1,]", "'a'",
    "01", "+1", '"\t"', '"' + "x" * 20_000 + '"', "[" + '"a",' * 5000 + '"a"]',
    *[json.dumps(text) for text in TEXTS],
]  # fmt: skip

FIELDS = [
    "username", "password", "passwordAsString", "verificationCode", "setCookie", "sameSitePolicy",
    "scope", "timeout", "timeoutInSeconds", "acceptSessions", "logonSessionId", "token",
    "organizationName", "name", "description", "members", "accessLevel", "memberId", "tokenName",
    "validity", "parentId", "newPassword", "readProtected", "writeProtected", "hidden",
    "__proto__", "",
]  # fmt: skip

QUERIES = [
    "fileName", "page", "pageSize", "relative", "accesslevel", "fragmentResponse", "idpName",
    "organization", "redirectURI", "authentication-type", "id", "redirect", "x", "",
]  # fmt: skip

# What an endpoint wants, by the last piece of its path.
FITTING_QUERIES = {
    "idpsignonuri": {
        "fragmentResponse": "true", "idpName": "corp", "organization": "Acme",
        "redirectURI": "http://127.0.0.1:9/",
    },
    "personalid-signonuri": {
        "authentication-type": "eid", "organization": "Acme", "redirectURI": "http://127.0.0.1:9/",
    },
    "{member_id}": {"accesslevel": "None"},
    "{group_id}": {"relative": "true"},
    "log": {"page": "1"},
}  # fmt: skip

KINDS = [
    "application/json", "application/json; charset=utf-16", "application/octet-stream",
    "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=b",
    'multipart/form-data; boundary="b\\"', "multipart/form-data; boundary=" + "b" * 300,
    "application/x-www-form-urlencoded", "text/plain", "", ";", "a/b/c", "application/JSON ",
]  # fmt: skip

FILE = b'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
FILE_NAME = b'Content-Disposition: form-data; name="fileName"\r\n\r\n'
PARTS = [
    b"--b\r\n", b"--b--\r\n", b"--b--", b"\r\n", b"\n", b"-", b"--", b"--c\r\n", b"\x00", b"\xff",
    FILE, FILE_NAME,
    b'Content-Disposition: form-data; name="other"\r\n\r\n', b"Content-Disposition\r\n\r\n",
    b"Content-Disposition: " + b"f" * 20_000 + b"\r\n\r\n", b": \r\n", b"name.txt\r\n",
    b"\r\n--b\r\n", b"\r\n--b--\r\n", b"data" * 1000, b"fileName", b"a/b\r\n",
    b"Content-Disposition: form-data; name*=utf-8''file\r\n\r\n", b'name="\r\n\r\n',
]  # fmt: skip

RANGES = [
    b"bytes=0-", b"bytes=-0", b"bytes=5-1", b"bytes=" + b"9" * 50 + b"-", b"bytes=0-0,2-", b"x",
    b"bytes=-" + b"9" * 18, b"bytes=\xff-",
]  # fmt: skip
COOKIES = [
    b"auth_token", b"auth_token=", b"auth_token=\xff", b"a=b; " * 500, b"=;=", b'auth_token="',
]  # fmt: skip
HEADERS = [
    (b"Range", RANGES),
    (b"If-Range", [b'"x"', b"\xff", b"Sat, 01 Jan 2000 00:00:00 GMT"]),
    (b"Cookie", COOKIES),
    (b"X-Real-Ip", [b"", b"\xff", b"::1", b"x" * 2000]),
    (b"Accept", [b"text/html", b"\x80"]),
    (b"Accept-Encoding", [b"gzip", b"br;q=x"]),
    (b"Content-Encoding", [b"gzip", b"\xff"]),
    (b"Host", [b"", b"evil.example", b"a:b:c", b"[::1", b"\xff", b"a b", b"h:99999999"]),
    (b"X-Forwarded-Proto", [b"http"]),
    (b"Upgrade", [b"websocket", b"h2c"]),
    (b"Expect", [b"100-continue", b"x"]),
    (b"X-HTTP-Method-Override", [b"DELETE"]),
]

AUTHORIZATIONS = [
    b"", b"Bearer", b"Bearer ", b"Bearer \xff", b"Basic", b"Basic \xff", b"Basic OjpkZg==",
    b"Basic ====", b"Basic gICA", b"Basic " + b"QUFB" * 3000, b"Digest x", b"Bearer " + b"x" * 5000,
    b"a b c", b"Negotiate",
]  # fmt: skip


T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """Valid values, which are mixed with the invalid ones."""

    session: str
    ids: dict[str, list[str]]  # parameter of a path -> identifiers of that kind
    values: list[str]  # JSON texts that fit somewhere


@dataclass(frozen=True)
class Wire:
    """Single request, ready to be sent."""

    method: str
    template: str
    data: bytes


def encoded(text: str) -> bytes:
    """Return the text percent-encoded, even characters that are not allowed in a path."""
    return quote(text, safe="").encode()


def chunked(data: bytes, size: int) -> bytes:
    """Return a body in chunks."""
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


class Fuzzer:
    """Generator of requests; the same seed gives the same requests, except for identifiers."""

    def __init__(self, seed: int, known: Known) -> None:
        self._random = random.Random(seed)
        self._known = known
        self._pick = self._random.choice
        self._made = 0

    def request(self) -> Wire:
        """Return a new request."""
        method, template = self._pick(ENDPOINTS)
        if self._one_in(15):
            method = self._pick(METHODS)
        lines = [b"%s %s HTTP/1.1" % (method.encode(), self._target(template))]
        headers, data = self._headers(template), b""
        if method in ("POST", "PUT", "PATCH") or self._one_in(10):
            kind, data = self._body(template)
            headers[b"Content-Type"] = kind.encode()
            if self._one_in(6):
                data = chunked(data, self._pick([1 << 20, 100, 7]))
                headers[b"Transfer-Encoding"] = b"chunked"
            else:
                headers[b"Content-Length"] = b"%d" % len(data)
        lines += [name + b": " + value for name, value in headers.items()]
        return Wire(method, template, b"\r\n".join(lines) + b"\r\n\r\n" + data)

    def _one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def _some(self, choices: Sequence[T], most: int, least: int = 0) -> list[T]:
        return [self._pick(choices) for _ in range(self._random.randint(least, most))]

    def _headers(self, template: str) -> dict[bytes, bytes]:
        headers = {b"Host": b"127.0.0.1"}
        if self._one_in(3):
            for name, values in self._some(HEADERS, 2):
                headers[name] = self._pick(values)
        if template != "/api/access/logoff" and not self._one_in(10):
            headers[b"Authorization"] = b"Bearer " + self._known.session.encode()
        elif self._one_in(2):
            headers[b"Authorization"] = self._pick(AUTHORIZATIONS)
        return headers

    def _target(self, template: str) -> bytes:
        """Return the path of an endpoint with its parameters filled in, and a query."""
        path = b""
        for piece in template.split("/")[1:]:
            path += b"/"
            if not piece.startswith("{"):
                path += piece.encode()
            elif not self._one_in(6):
                path += encoded(self._pick(self._known.ids.get(piece.strip("{}"), ["1"])))
            elif self._one_in(2):
                path += encoded(self._pick(TEXTS))
            else:
                path += quote_from_bytes(self._pick(BYTES)).encode()
        if self._one_in(30):
            path = self._pick(
                [path + b"/", b"/" + path, path + b"/..", b"*", b"http://x" + path, path + b";a"]
            )
        query = self._query(template)
        return path + (b"?" + query if query else b"")

    def _query(self, template: str) -> bytes:
        pairs = dict(FITTING_QUERIES.get(template.rpartition("/")[2], {}))
        for name in self._some(QUERIES, 2) if self._one_in(2) else []:
            pairs[name] = self._pick(TEXTS)
        written = [encoded(name) + b"=" + encoded(value) for name, value in pairs.items()]
        if template == "/api/sandbox/signon":
            written.append(b"id=" + encoded(self._pick(self._known.ids["id"])))
        if self._one_in(15):
            written.append(self._pick([b"&&", b"=", b"%", b"%zz=1", b"a=%ff", b"?", b"page=2"]))
        return b"&".join(written)

    def _body(self, template: str) -> tuple[str, bytes]:
        """Return a Content-Type and a body, which may not match."""
        kind = self._pick(KINDS) if self._one_in(10) else "application/json"
        choice = self._random.randrange(10)
        if choice <= 2:
            return kind, self._json()
        if choice <= 6:
            if template.endswith("/files/{file_id}"):
                return self._upload()
            return kind, self._fitting(template)
        if choice == 7:
            return self._pick(KINDS), self._random.randbytes(self._random.randrange(300))
        if choice == 8:
            pairs = [
                encoded(self._pick(FIELDS)) + b"=" + encoded(self._pick(TEXTS))
                for _ in range(self._random.randrange(30))
            ]
            return "application/x-www-form-urlencoded", b"&".join(pairs)
        return "multipart/form-data; boundary=b", b"".join(self._some(PARTS, 12))

    def _json(self) -> bytes:
        """Return an object of known fields, some of them twice, or a single value."""
        text = self._pick(VALUES)
        if not self._one_in(8):
            values = [*self._known.values, *VALUES, self._nested()]
            members = [
                f"{json.dumps(name)}: {self._pick(values)}" for name in self._some(FIELDS, 6, 1)
            ]
            text = "{" + ", ".join(members) + "}"
        data = text.encode("utf-8", "surrogatepass")
        if self._one_in(15):
            data = self._pick(
                [data[:-1], data + b"x", b"\xff" + data, data.decode().encode("utf-16")]
            )
        return data

    def _fitting(self, template: str) -> bytes:
        """Return a valid body of an endpoint, with at most one wrong member."""
        user, password, members, folder, *_more = self._known.values
        self._made += 1
        name = f'"N{self._made} {self._random.random()}"'
        shapes = {
            "/api/access/logon": {"username": user, "password": password},
            "/api/access/newcredentials": {"name": user},
            "/api/tokens": {"tokenName": '"t"', "validity": "60", "password": password},
            "/api/groups": {"name": name, "description": '""', "members": members},
            "/api/groups/{group_id}": {"members": members},
            "/api/sandbox/password": {"password": '["x"]', "newPassword": '["y"]'},
        }
        shape = shapes.get(template, {"parentId": folder, "name": name})
        if self._one_in(2):
            shape[self._pick([*shape, "scope"])] = self._pick([*VALUES, *[self._nested()] * 9])
        return ("{" + ",".join(f'"{key}":{value}' for key, value in shape.items()) + "}").encode()

    def _nested(self) -> str:
        """Return a scope that is nested about as deeply as parsers and serializers allow."""
        depth = self._random.randint(1, 1100)
        return '{"extensions": {"a": ' + "[" * depth + "]" * depth + "}}"

    def _upload(self) -> tuple[str, bytes]:
        """Return a complete form with a random name."""
        name = self._pick([*TEXTS, "a", "b"]).encode()
        pieces = [PARTS[0], FILE, b"content", b"\r\n--b\r\n", FILE_NAME, name, b"\r\n--b--\r\n"]
        return "multipart/form-data; boundary=b", b"".join(pieces)
