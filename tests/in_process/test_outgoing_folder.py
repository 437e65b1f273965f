"""The folder of the files to upload is missing when the client starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.virtual_mount import VirtualMount
from zonedrive.errors import StoreError


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[VirtualMount]:
    """Yield a mount whose uploads wait a minute."""
    mount = VirtualMount(tmp_path, "settle=60")
    yield mount
    mount.close()


def test_a_missing_folder_with_files_to_upload_can_be_put_back(mount: VirtualMount) -> None:
    """The start is refused, and nothing is given up; with the folder, the files are uploaded."""
    mount.mount()
    (mount.root / "new.txt").write_bytes(b"new")
    mount.kill()
    outgoing = mount.client.paths.outgoing
    aside = outgoing.rename(outgoing.with_name("aside"))
    with pytest.raises(StoreError, match="is missing"):
        mount.mount()
    assert not outgoing.exists()
    aside.rename(outgoing)
    mount.mount()
    mount.command("sync")
    assert mount.zone.read("new.txt") == b"new"


def test_a_missing_folder_can_be_given_up(mount: VirtualMount) -> None:
    """With an empty folder in its place, the client starts, and reports the lost file."""
    mount.mount()
    (mount.root / "notes.txt").write_bytes(b"edited")
    mount.allow("the bytes to upload are missing")
    mount.kill()
    outgoing = mount.client.paths.outgoing
    outgoing.rename(outgoing.with_name("aside"))
    outgoing.mkdir()
    mount.mount()
    (lost,) = mount.command("sync")["taken_back"]
    assert lost["path"].endswith("notes.txt")
