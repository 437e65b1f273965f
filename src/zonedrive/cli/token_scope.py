"""Options that limit a token: `--scope`, `--permission`, `--client` and the rest of a scope.

Knows nothing about their effect at the service, which is published only for SCIM.
"""

import json
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zonedrive.cli.options import Name, Text
from zonedrive.errors import ConfigError

if TYPE_CHECKING:
    from zonedrive.model import Scope

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
LONGEST = 1 << 20
"""Maximum size of a scope file in bytes."""

READ_SECONDS = 10.0
"""Maximum wait in seconds for data from a pipe."""

ACTIONS = ("all", "create", "list", "get", "access", "modify", "delete")


def scope_options(command: Decorated) -> Decorated:
    """Add all scope options to a command."""
    for option in reversed(
        (
            click.option(
                "--scope",
                type=Name(),
                metavar="NAME",
                help="Limit it by this scope; SCIM is predefined.",
            ),
            click.option(
                "--permission",
                "permissions",
                type=Text(),
                metavar="RESOURCE=ACTION[,ACTION...]",
                multiple=True,
                help=f"Limit it to these actions ({', '.join(ACTIONS)}) on a resource; repeatable.",
            ),
            click.option(
                "--client",
                "clients",
                type=Name(),
                metavar="NAME",
                multiple=True,
                help="Limit it to this client, for example ServiceSSI; repeatable.",
            ),
            click.option(
                "--scope-file",
                metavar="JSON",
                type=click.Path(),
                help="Take the scope from this file: an object with name, description, clients,"
                " permissions, limitations and extensions, any of them.",
            ),
        )
    ):
        command = option(command)
    return command


def scope_of(
    scope: str | None,
    permissions: tuple[str, ...],
    clients: tuple[str, ...],
    scope_file: str | None,
) -> "Scope | None":
    """Return the requested scope, or None. Raises click.UsageError."""
    if scope_file is not None:
        if scope is not None or permissions or clients:
            raise click.UsageError("--scope-file stands alone: put everything into the file.")
        return _read(Path(scope_file))
    if scope is None and not permissions and not clients:
        return None
    from zonedrive.model import Scope

    return Scope(name=scope or "", clients=clients, permissions=_permissions(permissions))


def _permissions(given: tuple[str, ...]) -> dict[str, dict[str, bool]]:
    found: dict[str, dict[str, bool]] = {}
    for each in given:
        resource, _, actions = each.partition("=")
        for action in actions.split(","):
            if not resource or action not in ACTIONS:
                raise click.UsageError(
                    f"--permission {each}: write RESOURCE=ACTION, the actions being"
                    f" {', '.join(ACTIONS)}."
                )
            found.setdefault(resource, {})[action] = True
    return found


def _bytes(path: Path) -> bytes:
    """Return the content of a file or pipe (`<(jq …)`). Raises OSError, ConfigError.

    The file is opened without blocking, because opening a pipe without a writer would block
    forever.
    """
    end = time.monotonic() + READ_SECONDS
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    data, poll = b"", select.poll()
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        poll.register(file, select.POLLIN)
        while len(data) <= LONGEST:
            if not poll.poll(1000 * max(0.0, end - time.monotonic())):
                raise ConfigError(f"{path}: nothing came within {READ_SECONDS:.0f} s")
            piece = file.read(LONGEST)
            if not piece:
                return data
            data += piece
    raise ConfigError(f"{path} is longer than {LONGEST} bytes", remedy="is it the right file?")


def _read(path: Path) -> "Scope":
    import msgspec

    from zonedrive.model import Scope

    try:
        value = json.loads(_bytes(path))
        unknown = set(value) - set(Scope.__struct_fields__) if isinstance(value, dict) else set()
        if unknown:
            raise ValueError(f"unknown field {min(unknown)!r}")
        return msgspec.convert(value, Scope)
    except OSError as wrong:
        raise ConfigError(f"{path} cannot be read ({wrong.strerror})") from wrong
    except (ValueError, RecursionError, msgspec.ValidationError) as wrong:
        raise ConfigError(f"{path} is not a scope ({wrong})", remedy="mend the file") from wrong
