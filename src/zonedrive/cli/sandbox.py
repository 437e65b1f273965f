"""Command `sandbox`, which runs a complete service on this machine, for trials and tests."""

import importlib
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from zonedrive.cli.options import WholeNumber
from zonedrive.errors import BadOption, ConfigError


class _Path(click.Path):
    """Parameter type for a path that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:  # as a path, it would mean the working directory
            self.fail("it is empty", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.option(
    "--data",
    required=True,
    metavar="DIR",
    type=_Path(file_okay=False, path_type=Path),
    help="Folder for the service's data.  A further start uses the data in it.",
)
@click.option(
    "--world",
    type=_Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML file with users, groups and zones for the first start.  [default: a small company]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on.",
)
@click.option(
    "--port",
    default=0,
    metavar="PORT",
    type=WholeNumber(0, 65535),
    help="Port to listen on.  [default: the previous one, else a free one]",
)
@click.option(
    "--ready-file",
    type=_Path(dir_okay=False, path_type=Path),
    help="JSON file with address, authority and control socket, written when the service answers.",
)
def sandbox(data: Path, world: Path | None, host: str, port: int, ready_file: Path | None) -> None:
    """Run a service with example zones on this machine, until Ctrl-C.

    Prints how to log on. The users' passwords and the certificate authority (ca.pem) are in the
    folder DIR.

    \b
    Example:
      zonedrive sandbox --data ~/sandbox
    """
    try:
        serve = importlib.import_module("zonedrive.sandbox.serve")
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.startswith("zonedrive"):
            raise
        raise ConfigError(f"the sandbox needs {missing.name}", remedy=_remedy()) from missing
    try:
        serve.run(data, world, host, port, ready_file)
    except serve.WorldError as wrong:
        raise BadOption(f"--world: {wrong}") from wrong
    except serve.SandboxError as wrong:
        raise ConfigError(str(wrong)) from wrong


def _remedy() -> str:
    """Return a remedy with the command that installs the sandbox's dependencies."""
    wanted = [one for one in metadata.requires("zonedrive") or () if "sandbox" in one]
    names = sorted(found[0] for one in wanted if (found := re.match(r"[\w.-]+", one)))
    if "dist-packages" in __file__:  # Debian's package, where pip refuses to install
        return f"run 'sudo apt install {' '.join(f'python3-{name}' for name in names)}'"
    return f"run '{sys.executable} -m pip install {' '.join(names)}'"
