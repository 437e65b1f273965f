"""Set-up of mounting at each login."""

import errno
import os
from pathlib import Path

import pytest

from zonedrive.ui import session_start


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of settings of a user without a service manager."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CONFIG_HOME", "STATE_HOME"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name))
    monkeypatch.setattr(session_start, "has_unit", lambda name: False)
    return tmp_path / "CONFIG_HOME"


def test_a_full_disk_leaves_the_former_entry(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty entry would mount nothing, and would count as set up."""
    session_start.choose("work", str(tmp_path / "first"), start=True)
    entry = config / "autostart" / "zonedrive-work.desktop"
    before = entry.read_text("utf-8")
    assert f'mount "{tmp_path}/first" --account work' in before

    def fill(path: Path, text: str, encoding: str) -> int:
        path.open("w", encoding=encoding).close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_text", fill)
        with pytest.raises(OSError, match="No space"):
            session_start.choose("work", str(tmp_path / "second"), start=True)
    assert entry.read_text("utf-8") == before
    assert [each.name for each in entry.parent.iterdir()] == [entry.name]
    session_start.choose("work", "", start=False)
    assert not any(entry.parent.iterdir())


def test_a_linked_entry_stays_a_link(config: Path, tmp_path: Path) -> None:
    """The entry is written to the user's own collection of settings, as config.toml is."""
    entry, kept = config / "autostart" / "zonedrive-work.desktop", tmp_path / "dotfiles" / "entry"
    entry.parent.mkdir(parents=True)
    entry.symlink_to(kept)
    session_start.choose("work", str(tmp_path / "first"), start=True)
    assert entry.is_symlink()
    assert f'mount "{tmp_path}/first"' in kept.read_text("utf-8")


@pytest.mark.parametrize("name", [b"caf\xe9", b"two\nlines"])
def test_a_folder_that_the_entry_cannot_name(config: Path, tmp_path: Path, name: bytes) -> None:
    """The error names the reason, and what is set up stays."""
    session_start.choose("work", str(tmp_path / "first"), start=True)
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.EILSEQ):
        session_start.choose("work", str(tmp_path / os.fsdecode(name)), start=True)
    entry = config / "autostart" / "zonedrive-work.desktop"
    assert f'mount "{tmp_path}/first"' in entry.read_text("utf-8")
