"""Links for members: the address of an entry's page, from the profile."""

import ssl

import httpx
import pytest

from tests.harness import world
from tests.harness.machine import Mounted


def link(mounted: Mounted, path: object) -> str:
    return str(mounted.command("link", path=str(path))["link"])


def test_a_link_leads_to_the_entry(mounted: Mounted) -> None:
    """The links of a file, a folder and a zone open for a member who logs on, and nobody else."""
    trust = ssl.create_default_context(cafile=str(mounted.deployment.ca_file))
    bob = (f"bob@{world.DOMAIN}", world.PASSWORDS["bob"])
    for path, shown in (
        (mounted.root / "notes.txt", "notes.txt"),
        (mounted.root / "docs", "report.md"),
        (mounted.root, "notes.txt"),
    ):
        address = link(mounted, path)
        assert address.startswith(f"{mounted.deployment.base_url}/")
        assert httpx.get(address, verify=trust, timeout=60).status_code == 401
        assert shown in httpx.get(address, auth=bob, verify=trust, timeout=60).text


@pytest.mark.mount("settle=600")
def test_paths_without_a_link(mounted: Mounted) -> None:
    """The reason is named: all zones, a file that is not uploaded yet."""
    (mounted.root / "new.txt").write_bytes(b"new")
    for path, words in (
        (mounted.path, "the folder of all zones has no link"),
        (mounted.root / "new.txt", "is not on the service"),
    ):
        assert words in mounted.command("link", path=str(path))["error"]


@pytest.mark.mount(profile="published")
def test_a_profile_without_links(mounted: Mounted) -> None:
    """No address is guessed."""
    said = mounted.command("link", path=str(mounted.root / "notes.txt"))
    assert "has no endpoint for member_link" in said["error"]
