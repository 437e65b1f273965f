"""Control socket, whose clients inject faults, query the sandbox and change its content.

Each command and each answer is one line with one JSON object. This module does not use HTTP. Every
process that can open the socket (mode 0600) may use all commands.
"""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import SandboxError
from zonedrive.sandbox.faults import FaultOrder, Faults
from zonedrive.sandbox.planting import Plant, Protection, plant, protect
from zonedrive.sandbox.traffic import Stats

LONGEST_LINE = 64 << 20
LONGEST_PATH = 107  # bytes that fit into sockaddr_un


class Control:
    """Server of the control socket."""

    def __init__(
        self,
        path: Path,
        deployment: Deployment,
        faults: Faults,
        stats: Stats,
        set_down: Callable[[bool], Awaitable[None]],
    ) -> None:
        """Prepare the server; raise SandboxError if the socket's path is too long.

        `set_down` is `Server.set_down` of the HTTP server.
        """
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise SandboxError(
                f"the path of the control socket, {path}, has more than {LONGEST_PATH} bytes:"
                " use a shorter --data"
            )
        self._path = path
        self._deployment = deployment
        self._faults = faults
        self._stats = stats
        self._set_down = set_down
        self._server: asyncio.Server | None = None
        self._commands: dict[str, Callable[[Any], Awaitable[dict[str, Any]]]] = {
            "fault": self._fault,
            "expire_sessions": self._expire_sessions,
            "mail": self._mail,
            "group": self._group,
            "stats": self._stats_command,
            "attempts": self._attempts,
            "unblock": self._unblock,
            "plant": self._plant,
            "protect": self._protect,
        }

    async def open(self) -> None:
        """Start listening; replace a socket that a killed process left behind."""
        self._path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, self._path, limit=LONGEST_LINE
            )
        finally:
            os.umask(before)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client disconnected, or sent a line that is too long
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        if not line.strip():
            return {"error": "an empty line is no command"}
        try:
            command = msgspec.json.decode(line, type=dict[str, Any])
            if len(command) != 1 or (name := next(iter(command))) not in self._commands:
                known = ", ".join(self._commands)
                return {"error": f"one of these is needed, alone: {known}"}
            return await self._commands[name](command[name])
        except (ValueError, LookupError, OSError, RecursionError, sqlite3.Error) as wrong:
            return {"error": str(wrong.args[0]) if isinstance(wrong, LookupError) else str(wrong)}

    async def _fault(self, value: Any) -> dict[str, Any]:
        self._faults.order(msgspec.convert(value, FaultOrder | None))
        await self._set_down(self._faults.down)
        return {"ok": True}

    async def _expire_sessions(self, value: Any) -> dict[str, Any]:
        if value is not True:
            raise ValueError("expire_sessions takes true")
        self._deployment.sessions.expire_all()
        return {"ok": True}

    async def _mail(self, value: Any) -> dict[str, Any]:
        code = self._deployment.codes.mailed(msgspec.convert(value, str))
        if code is None:
            raise LookupError(f"no code was ever mailed to {value}")
        return {"code": code}

    async def _group(self, value: Any) -> dict[str, Any]:
        group_id = self._deployment.groups.by_name(msgspec.convert(value, str))
        if group_id is None:
            raise LookupError(f"there is no group named {value}")
        return {"id": group_id}

    async def _stats_command(self, value: Any) -> dict[str, Any]:
        if value not in (True, "reset"):
            raise ValueError('stats takes true, or "reset" to restart the counters')
        answer = self._stats.wire()
        if value == "reset":
            self._stats.reset()
        return answer

    async def _attempts(self, value: Any) -> dict[str, Any]:
        user = None if value is True else msgspec.convert(value, str)
        answer: dict[str, Any] = {"attempts": self._deployment.attempts.wire(user)}
        if user is not None:
            answer["blocked"] = self._deployment.attempts.blocked(user)
        return answer

    async def _unblock(self, value: Any) -> dict[str, Any]:
        if not self._deployment.attempts.unblock(msgspec.convert(value, str)):
            raise LookupError(f"{value} is not blocked")
        return {"ok": True}

    async def _plant(self, value: Any) -> dict[str, Any]:
        return plant(self._deployment, msgspec.convert(value, Plant))

    async def _protect(self, value: Any) -> dict[str, Any]:
        return protect(self._deployment, msgspec.convert(value, Protection))
