"""Hostile user of the same machine: programs that run only with that user's identity.

Knows nothing of zonedrive.  Unlike `surroundings.Person` this user gets no right to read other
users' files.
"""

import json
import os
import re
import subprocess
import sys

UID = 1  # each system has this user, "daemon", who owns nothing here
PYTHON = getattr(sys, "_base_executable", sys.executable)

ARGUMENTS = """
import pathlib, sys
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        sys.stdout.buffer.write((process / "cmdline").read_bytes() + b"\\n")
    except OSError:
        pass
"""
REQUEST = """
import json, socket, sys
how = json.loads(sys.argv[1])
with socket.socket(socket.AF_INET6 if ":" in how["there"] else socket.AF_INET) as peer:
    peer.bind((how["here"], 0))
    peer.connect((how["there"], how["port"]))
    peer.sendall(how["request"].encode())
    try:
        while how["stays"] and (data := peer.recv(65536)):
            sys.stdout.buffer.write(data)
    except ConnectionError:
        pass
"""


def run(script: str, *arguments: str, uid: int = UID) -> bytes:
    """Run a Python program as that user; return its output."""
    assert os.geteuid() == 0, "another user is made by root: run this with sudo"
    ended = subprocess.run(
        [PYTHON, "-I", "-c", script, *arguments],
        user=uid, group=uid, extra_groups=[], cwd="/", env={"PATH": os.defpath},
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def arguments() -> bytes:
    """Return the arguments of all processes, as far as this user can see them."""
    return run(ARGUMENTS)


def request(
    there: str, port: int, text: str, *, here: str = "", stays: bool = True, uid: int = UID
) -> bytes:
    """Send bytes to a local port from the address `here`; return the answer.

    Without `stays` the connection is closed as soon as all is sent.
    """
    how = {"there": there, "port": port, "request": text, "here": here, "stays": stays}
    return run(REQUEST, json.dumps(how), uid=uid)


def get(path: str, port: int) -> str:
    """Return a request as a browser sends it."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"


def post(path: str, port: int, form: str) -> str:
    """Return a form as a browser sends it."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(form)}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}"
    )


def local_addresses(seen: bytes) -> set[str]:
    """Return the http addresses of this machine in a user's output."""
    return {found.decode() for found in re.findall(rb"http://127\.0\.0\.1:\d+/[\w-]+", seen)}
