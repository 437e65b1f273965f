"""Command `sandbox`: a complete service on this machine, for trials and tests."""

import importlib
import re
import sys
from importlib import metadata
from pathlib import Path

import click

from zonedrive.errors import ConfigError


@click.command()
@click.option(
    "--data",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the service's data; existing data is used again.",
)
@click.option(
    "--world",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file with users, groups and zones for the first start.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=0,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write address, CA and control socket to, as JSON, once it is ready.",
)
def sandbox(data: Path, world: Path | None, host: str, port: int, ready_file: Path | None) -> None:
    """Run a local service with example zones until Ctrl-C.

    It uses HTTPS; the certificate of its authority is in the data folder.
    """
    try:
        serve = importlib.import_module("zonedrive.sandbox.serve")
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.startswith("zonedrive"):
            raise
        raise ConfigError(f"the sandbox needs {missing.name}", remedy=_remedy()) from missing
    try:
        serve.run(data, world, host, port, ready_file)
    except serve.SandboxError as wrong:
        raise ConfigError(str(wrong)) from wrong


def _remedy() -> str:
    """Return the command that installs the dependencies for this installation of zonedrive."""
    wanted = [one for one in metadata.requires("zonedrive") or () if "sandbox" in one]
    names = sorted(found[0] for one in wanted if (found := re.match(r"[\w.-]+", one)))
    if "dist-packages" in __file__:  # Debian's, where pip refuses
        return f"run 'sudo apt install {' '.join(f'python3-{name}' for name in names)}'"
    return f"run '{sys.executable} -m pip install {' '.join(names)}'"
