"""Lookup of zones by the names that a person gives."""

from pathlib import Path

import pytest

from zonedrive.daemon import service_commands
from zonedrive.errors import NotFound, ZonedriveError
from zonedrive.model import Zone
from zonedrive.paths import AccountPaths

ZONES = [Zone("1", "Board", "r1"), Zone("2", "a/b", "r2"), Zone("3", "Twin", "r3"),
         Zone("4", "Twin", "r4"), Zone("5", "1", "r5")]  # fmt: skip


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """Return the account of an empty home folder."""
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name.lower()))
    return AccountPaths("work")


def test_a_zone_is_found_by_id_name_and_folder(paths: AccountPaths) -> None:
    """The id counts before the name; the folder is known before the first mount."""
    folder = next(
        str(one["path"]) for one in service_commands.zone_objects(ZONES, {}) if one["id"] == "2"
    )
    assert folder != "a/b"
    for wanted, zone_id in (("Board", "1"), ("1", "1"), ("a/b", "2"), (folder, "2"), ("3", "3")):
        assert service_commands.chosen(paths, ZONES, wanted).id == zone_id


def test_unknown_and_ambiguous_zones(paths: AccountPaths) -> None:
    """The error says where the names are listed, and names the ids if several zones have the
    name."""
    with pytest.raises(NotFound, match="no zone 'board'") as missing:
        service_commands.chosen(paths, ZONES, "board")
    assert missing.value.remedy == "run 'zonedrive zones --account work'"
    with pytest.raises(ZonedriveError, match="several zones") as several:
        service_commands.chosen(paths, ZONES, "Twin")
    assert several.value.line().endswith("; give an id: 3, 4")
