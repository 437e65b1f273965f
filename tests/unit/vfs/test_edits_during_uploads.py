"""A program that edits a saved file again while the file's upload is due or under way."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.unit.sync.account import Account
from tests.unit.vfs.mount import files_of
from zonedrive.errors import Changed

OURS, EDITED, THEIRS = b"Alice's version\n", b"ALICE's version\n", b"Bob's longer version\n"


class Office:
    """Alice's saved file `a`, which a program edits again."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.files = files_of(account.state, account.service, account.folders)

    async def upload(self) -> None:
        """Run the step of the outbox."""
        inode = self.account.at("a")
        await self.account.uploads.upload(self.account.intent(inode), inode)

    async def edit(self) -> None:
        """Write into the file without a truncation, and close it."""
        handle = (await self.files.open(self.account.at("a"), os.O_RDWR)).handle
        await self.files.write(handle, 0, b"ALICE")
        await self.files.flush(handle)
        await self.files.release(handle)

    @asynccontextmanager
    async def copying(self) -> AsyncIterator[None]:
        """Run the block while the saved bytes are being copied for the edit."""
        threads = trio.to_thread.current_default_thread_limiter()
        threads.total_tokens = 1
        async with trio.open_nursery() as nursery, threads:  # so that the copy gets no thread
            nursery.start_soon(self.edit)
            await trio.testing.wait_all_tasks_blocked()
            assert not self.account.state.opened[self.account.at("a").ino].is_settled
            yield

    def require_both_versions(self) -> None:
        """Check that the coworker's version has the name, and the edit that of a conflict copy."""
        account = self.account
        assert account.bob.read("a") == THEIRS
        (copy,) = account.names_in() - {"a"}
        assert account.bytes_of(copy) == EDITED


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    """Yield a file that Alice has saved on top of Bob's version."""
    account = Account(tmp_path, refresh="600")
    account.bob.write("a", b"first\n")
    async with account.running():
        account.save("a", OURS)
        yield Office(account)


async def test_bytes_of_an_edit_are_read_before_they_are_on_the_disk(office: Office) -> None:
    """Every reader of the edited copy gets what the program has just written."""
    state, inode = office.account.state, office.account.at("a")
    handle = (await office.files.open(inode, os.O_RDWR)).handle
    await office.files.write(handle, 0, b"ALICE")
    session = state.session(inode.ino)
    assert session is not None
    with closing(state.spool.open(inode.ino, session.generation)) as file:
        assert file.pread(0, 100) == EDITED
    await office.files.release(handle)


async def test_a_conflict_waits_until_an_edit_has_begun(office: Office) -> None:
    """The edit that is about to begin is part of the conflict copy."""
    office.account.bob.write("a", THEIRS)
    async with office.copying():
        with pytest.raises(Changed, match="while a program writes"):
            await office.upload()
    await office.upload()
    office.require_both_versions()


async def test_an_edit_is_based_on_the_version_that_it_was_copied_from(office: Office) -> None:
    """A coworker's version that a listing shows during the copy is not overwritten."""
    async with trio.open_nursery() as nursery, office.copying():
        nursery.start_soon(office.upload)
        await trio.testing.wait_all_tasks_blocked()
        assert office.account.bob.read("a") == OURS
        office.account.bob.write("a", THEIRS)
        await office.account.list()
    await office.upload()
    office.require_both_versions()
