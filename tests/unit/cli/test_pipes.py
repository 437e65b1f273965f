"""A pipe or device in place of a file is rejected or read."""

import os
import threading
from pathlib import Path

import pytest

from tests.unit.cli.stand_in import URL, log_on, run
from zonedrive.cli import tokens
from zonedrive.errors import ConfigError


@pytest.fixture
def pipe(home: Path) -> Path:
    """Return a pipe without a writer."""
    path = home / "pipe.toml"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("command", [
    f"logon {URL} --username a --password-stdin --ca-file",
    f"logon {URL} --username a --password-stdin --profile",
    f"new-credentials {URL} --username a --ca-file",
    "mount Z -o profile=",
])  # fmt: skip
@pytest.mark.parametrize("device", [False, True])
def test_files_that_are_read_again_must_be_regular(
    home: Path, pipe: Path, command: str, device: bool
) -> None:
    """A pipe and a device without an end are rejected at once, in one line."""
    log_on()
    (home / "Z").mkdir()
    name = "/dev/zero" if device else str(pipe)
    *words, last = command.split()
    given = [*words, last + name] if last.endswith("=") else [*words, last, name]
    failed = run(*given)
    option = "-o profile: " if words[0] == "mount" else f"{last}: "
    assert failed.returncode == 2
    said = f"{name} is a pipe or a device; name a file, because it is read repeatedly"
    assert failed.stderr == f"zonedrive: {option}{said}\n"


def test_a_scope_may_come_through_a_pipe(pipe: Path) -> None:
    """`--scope-file <(jq …)` works; a device without an end is rejected."""
    writing = threading.Thread(target=lambda: pipe.write_bytes(b'{"name": "S", "clients": ["C"]}'))
    writing.start()
    found = tokens.scope_of(None, (), (), str(pipe))
    writing.join()
    assert found is not None and (found.name, found.clients) == ("S", ("C",))
    with pytest.raises(ConfigError, match="is longer than 1048576 bytes"):
        tokens.scope_of(None, (), (), "/dev/zero")
