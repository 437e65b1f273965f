"""Content files: reading returns the written bytes, or an error."""

import errno
import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonedrive.content.content_file import Buffer, ContentFile
from zonedrive.content.encrypted_file import EncryptedFile, create_file, open_file
from zonedrive.content.header import MAX_HOLES
from zonedrive.content.slots import CHUNK, SLOT, Slots, slot_offset
from zonedrive.errors import Damaged, StoreError

KEY = bytes(range(32))
PLACES = st.sampled_from([0, 1, CHUNK - 1, CHUNK, 2 * CHUNK, 3 * CHUNK + 7]) | st.integers(
    0, 4 * CHUNK
)
LENGTHS = st.sampled_from([0, 1, 4096, CHUNK, 2 * CHUNK + 1]) | st.integers(0, 3 * CHUNK)
STEP = st.tuples(
    st.sampled_from(["write", "write", "read", "truncate", "flush", "reopen", "copy", "punch"]),
    PLACES,
    LENGTHS,
    st.integers(0, 2**32),
)


@pytest.fixture
def file(tmp_path: Path, key: bytes | None) -> Iterator[ContentFile]:
    """Yield an empty content file."""
    made = create_file(tmp_path / "file", key)
    yield made
    made.close()


def put(model: bytearray, offset: int, data: bytes) -> None:
    """Write to a bytearray as to a file."""
    if data:
        model.extend(bytes(max(0, offset - len(model))))
        model[offset : offset + len(data)] = data


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([None, KEY]), st.lists(STEP, max_size=25))
def test_a_content_file_behaves_as_a_plain_file(
    tmp_path_factory: pytest.TempPathFactory,
    key: bytes | None,
    steps: list[tuple[str, int, int, int]],
) -> None:
    """Any mix of writes, truncations, reopening and copying gives the bytes of a plain file."""
    folder = tmp_path_factory.mktemp("model")
    file, model = create_file(folder / "0", key), bytearray()
    for number, (verb, place, length, seed) in enumerate(steps, 1):
        if verb == "write":
            data = random.Random(seed).randbytes(length)
            assert file.pwrite(place, data) == length
            put(model, place, data)
        elif verb == "truncate":
            file.truncate(place)
            model = model[:place].ljust(place, b"\0")
        elif verb == "flush":
            file.flush()
        elif verb == "punch" and key is not None:
            file.punch(place // CHUNK * CHUNK, place // CHUNK * CHUNK + CHUNK)
            gone = len(model[place // CHUNK * CHUNK :][:CHUNK])
            put(model, place // CHUNK * CHUNK, bytes(gone))
        elif verb == "reopen":
            file.close()
            file = open_file(file.path, key, file.manifest() if seed % 3 else b"")
        elif verb == "copy":
            copy = file.copy_to(folder / str(number))
            file.pwrite(0, b"the original goes on without the copy")
            file.close()
            file = copy
        assert file.pread(place, length) == model[place : place + length]
        into = memoryview(bytearray(b"?" * length))
        assert into[: file.read_into(place, into)] == model[place : place + length]
        assert file.size == len(model)
    assert b"".join(file.blocks()) == model
    file.close()
    for manifest in (b"", file.manifest(), file.manifest(final=True)):
        file = open_file(file.path, key, manifest)
        into = memoryview(bytearray(len(model) + 1))
        assert into[: file.read_into(0, into)] == model  # with nothing of it in memory yet
        assert file.pread(0, len(model) + 1) == model
        file.close()


def test_a_library_without_in_place_encryption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 13 has a version of cryptography without `encrypt_into` and `decrypt_into`."""
    data = random.Random(1).randbytes(5 * CHUNK + 9)
    for writer in (True, False):
        monkeypatch.setattr("zonedrive.content.slots._INTO", writer)
        file = create_file(tmp_path / str(writer), KEY)
        file.pwrite(0, data)
        file.close()
        for reader in (True, False):
            monkeypatch.setattr("zonedrive.content.slots._OUT_OF", reader)
            file = open_file(file.path, KEY, file.manifest(final=True))
            into = memoryview(bytearray(len(data)))
            assert file.read_into(0, into) == len(data)
            assert into == data
            file.close()


def test_a_former_chunk_in_the_middle_of_a_run_is_noticed(tmp_path: Path) -> None:
    """An earlier state of a chunk is never read after the chunk was written again."""
    file = create_file(tmp_path / "file", KEY)
    file.pwrite(0, b"a" * (5 * CHUNK))
    file.flush()
    former = (tmp_path / "file").read_bytes()
    file.pwrite(2 * CHUNK, b"b" * CHUNK)
    file.close()
    place = slot_offset(2)
    with (tmp_path / "file").open("r+b") as raw:
        raw.seek(place)
        raw.write(former[place : place + SLOT])
    file = open_file(tmp_path / "file", KEY, file.manifest(final=True))
    with pytest.raises(Damaged, match="chunk 2"):
        file.read_into(0, memoryview(bytearray(5 * CHUNK)))
    with pytest.raises(Damaged, match="chunk 2"):
        file.pread(0, 5 * CHUNK)
    into = memoryview(bytearray(2 * CHUNK))
    assert file.read_into(3 * CHUNK, into) == 2 * CHUNK
    assert into == b"a" * (2 * CHUNK)
    file.close()


def test_nothing_readable_is_on_the_disk(tmp_path: Path) -> None:
    """The disk contains neither content nor key, and other users cannot open the file."""
    file = create_file(tmp_path / "file", KEY)
    file.pwrite(0, b"top secret " * 20_000)
    file.close()
    raw = (tmp_path / "file").read_bytes()
    assert b"top secret" not in raw
    assert KEY not in raw
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_another_key_opens_nothing(tmp_path: Path) -> None:
    """After a logoff has destroyed the key, the remaining files cannot be read."""
    create_file(tmp_path / "file", KEY).close()
    with pytest.raises(Damaged):
        open_file(tmp_path / "file", os.urandom(32))


def test_a_key_stream_is_never_used_twice(tmp_path: Path) -> None:
    """Two versions of a chunk never share a nonce, also not in copies."""
    file = create_file(tmp_path / "file", KEY)
    slots = set()
    for number in range(20):
        file.pwrite(0, bytes(CHUNK))
        file.flush()
        slots.add((tmp_path / "file").read_bytes()[4096 + 68 * 1024 :][:12])
        if number == 10:
            copy = file.copy_to(tmp_path / "copy")
            copy.pwrite(0, bytes(CHUNK))
            copy.close()
            slots.add((tmp_path / "copy").read_bytes()[4096 + 68 * 1024 :][:12])
    file.close()
    assert len(slots) == 21


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_flipped_bit_never_gives_wrong_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A changed bit on the disk is detected, unless it has no effect on the content."""
    path = tmp_path_factory.mktemp("flip") / "file"
    file = create_file(path, KEY)
    content = random.Random(1).randbytes(2 * CHUNK + 1000)
    file.pwrite(0, content)
    file.truncate(5 * CHUNK)
    file.flush()
    file.pwrite(10, content[10:20])  # so that the journal is in use, too
    file.close()
    content = content.ljust(5 * CHUNK, b"\0")
    raw = bytearray(path.read_bytes())
    places = st.integers(0, 4096) | st.integers(4096, len(raw) - 1)
    byte = data.draw(places | st.integers(4096 + 68 * 1024, len(raw) - 1))
    raw[min(byte, len(raw) - 1)] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    try:
        file = open_file(path, KEY)
    except Damaged:
        return
    try:
        assert file.size == len(content)
        for offset in range(0, len(content), CHUNK):
            try:
                assert file.pread(offset, CHUNK) == content[offset : offset + CHUNK]
            except Damaged:
                continue
    finally:
        file.close()


def test_a_lost_chunk_is_not_taken_for_zeros(tmp_path: Path) -> None:
    """Reading bytes that a power cut has lost raises an error; real holes are zeros."""
    file = create_file(tmp_path / "file", KEY)
    file.pwrite(0, b"x" * (3 * CHUNK))
    file.truncate(6 * CHUNK)
    file.close()
    start = 4096 + 68 * 1024 + (CHUNK + 32)
    with (tmp_path / "file").open("r+b") as raw:
        raw.seek(start)
        raw.write(bytes(CHUNK + 32))
    file = open_file(tmp_path / "file", KEY)
    assert file.pread(0, CHUNK) == b"x" * CHUNK
    with pytest.raises(Damaged):
        file.pread(CHUNK, 1)
    assert file.pread(3 * CHUNK, CHUNK) == bytes(CHUNK)
    file.close()


def test_more_holes_than_the_head_can_list(tmp_path: Path) -> None:
    """A file with writes in hundreds of places keeps all of its holes."""
    file = create_file(tmp_path / "file", KEY)
    places = [3 * CHUNK * n for n in range(3 * MAX_HOLES)]
    for place in places:
        file.pwrite(place, b"here")
    file.close()
    file = open_file(tmp_path / "file", KEY)
    assert all(file.pread(place, 6).startswith(b"here") for place in places)
    assert file.pread(CHUNK, CHUNK) == bytes(CHUNK)
    file.close()


def test_small_writes_are_not_amplified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequential writes of 4 KiB put each byte on the disk about once."""
    file = create_file(tmp_path / "file", KEY)
    assert isinstance(file, EncryptedFile)
    stored: list[int] = []
    store = file._store

    def counting(number: int, plain: Buffer) -> None:
        stored.append(number)
        store(number, plain)

    monkeypatch.setattr(file, "_store", counting)
    for number in range(256):
        file.pwrite(number * 4096, b"y" * 4096)
    file.close()
    assert sorted(stored) == list(range(16))


def test_users_share_one_file(file: ContentFile) -> None:
    """The last close of a program does not disturb an upload that still reads."""
    file.pwrite(0, b"shared")
    other = file.share()
    other.close()
    assert file.pread(0, 10) == b"shared"
    file.share()
    file.close()
    assert not file.closed


def test_the_use_of_a_closed_file_is_an_error(tmp_path: Path, key: bytes | None) -> None:
    """A use after the last close never reads the bytes of another file."""
    file = create_file(tmp_path / "file", key)
    file.close()
    for use in (lambda: file.pread(0, 1), lambda: file.pwrite(0, b"x"), file.flush):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_copy_is_never_a_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying a file during a write fails instead of making a mixture."""
    file = create_file(tmp_path / "file", KEY)
    file.pwrite(0, b"a" * CHUNK)
    real = os.copy_file_range

    def meanwhile(*arguments: int) -> int:
        file.pwrite(0, b"b" * CHUNK)
        return real(*arguments)

    monkeypatch.setattr(os, "copy_file_range", meanwhile)
    with pytest.raises(StoreError):
        file.copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    file.close()


def test_a_copy_that_cannot_be_opened_is_removed(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed copy leaves no file, but a file that was there before stays."""
    file = create_file(tmp_path / "file", key)
    real = os.open

    def exhausted(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            return real(path, flags, *mode)
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", exhausted)
        with pytest.raises(OSError, match="too many"):
            file.copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    (tmp_path / "copy").write_bytes(b"other")
    with pytest.raises(FileExistsError):
        file.copy_to(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"other"
    file.close()


def test_a_copy_that_cannot_be_read_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed copy of an encrypted file leaves no open descriptor."""
    file = create_file(tmp_path / "file", KEY)
    file.pwrite(0, b"a" * CHUNK)
    file.flush()
    manifest = file.manifest()  # of a file to which a killed process may have written more
    file.close()
    file = open_file(tmp_path / "file", KEY, manifest)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(Slots, "nonce", fail)
    with pytest.raises(OSError, match="input/output"):
        file.copy_to(tmp_path / "copy")
    links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert [link.name for link in links if link.is_relative_to(tmp_path)] == ["file"]
    assert os.listdir(tmp_path) == ["file"]
    file.close()


def test_a_copy_without_help_of_the_kernel(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies are correct on file systems that can neither share blocks nor copy by themselves."""

    def refuse(*_: int) -> int:
        raise OSError(18, "cross-device")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    file = create_file(tmp_path / "file", key)
    file.truncate(9 * CHUNK)
    file.pwrite(5 * CHUNK + 3, b"middle" * 5000)
    copy = file.copy_to(tmp_path / "copy")
    assert b"".join(copy.blocks()) == b"".join(file.blocks())
    assert copy.allocated < 5 * CHUNK
    copy.close()
    file.close()


def test_unconfirmed_bytes_never_reappear(tmp_path: Path) -> None:
    """Bytes behind the end that a killed writer left do not appear when the file grows later."""
    file = create_file(tmp_path / "file", KEY)
    file.pwrite(0, b"kept")
    file.flush()
    file.pwrite(0, b"never confirmed " * 50_000)
    os.close(file._descriptor)  # killed: no flush
    file = open_file(tmp_path / "file", KEY)
    assert file.size == 4
    file.truncate(1_000_000)
    assert file.pread(0, 1_000_000)[4:] == bytes(999_996)
    file.close()


def test_a_long_write_that_does_not_fit_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full, none of several chunks written at once remain."""
    file = EncryptedFile.create(tmp_path / "file", KEY)
    file.pwrite(0, b"a" * (3 * CHUNK))
    file.flush()
    taken, write = (tmp_path / "file").stat().st_size, os.pwrite

    def full(descriptor: int, data: Buffer, offset: int) -> int:
        if offset > taken:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, memoryview(data)[: 2 * CHUNK], offset)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(os, "pwrite", full)
        file.pwrite(3 * CHUNK, b"b" * (5 * CHUNK))
    assert file.pread(0, 9 * CHUNK) == b"a" * (3 * CHUNK)
    assert (tmp_path / "file").stat().st_size <= taken
    file.truncate(6 * CHUNK)
    assert file.pread(0, 9 * CHUNK) == b"a" * (3 * CHUNK) + bytes(3 * CHUNK)
    file.close()


class Ended(Exception):
    """End of the operation that needs a copy."""


def test_a_copy_can_be_ended(tmp_path: Path, file: ContentFile) -> None:
    """The check may end the copy of each range of data, and leaves nothing behind."""
    for number in range(3):
        file.pwrite(number * (4 << 20), b"a" * CHUNK)
        if number < 2:
            file.truncate((number + 1) * (4 << 20))
    file.flush()
    calls = 0

    def end_at(last: int) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Ended

    for last in (1, 2):
        calls = 0
        with pytest.raises(Ended):
            file.copy_to(tmp_path / "copy", partial(end_at, last))
        assert not (tmp_path / "copy").exists()
    file.copy_to(tmp_path / "copy").close()


def test_a_check_of_all_bytes_can_be_ended(tmp_path: Path) -> None:
    """The check of a very large file takes minutes."""
    file = EncryptedFile.create(tmp_path / "file", KEY)
    file.pwrite(0, b"a" * CHUNK)

    def end() -> None:
        raise Ended

    with pytest.raises(Ended):
        file.verify(end)
    file.close()


def test_a_failed_write_over_new_bytes_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the bytes were written since the last flush, and the next write succeeds."""
    file = EncryptedFile.create(tmp_path / "file", KEY)
    file.pwrite(0, b"a" * (3 * CHUNK))

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "failing")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="failing"):
        patch.setattr(os, "pwritev", fail)
        file.pwrite(CHUNK, b"b" * CHUNK)
    file.pwrite(3 * CHUNK, b"end")
    assert file.pread(0, 4 * CHUNK) == b"a" * (3 * CHUNK) + b"end"
    file.close()


def test_cached_chunks_that_do_not_fit_count_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed write of content that can be fetched again never counts as cached bytes."""
    file = EncryptedFile.create(tmp_path / "file", KEY)
    file.disable_redo_log()
    file.truncate(8 * CHUNK)
    write, calls = os.pwrite, 0

    def full(descriptor: int, data: Buffer, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, memoryview(data)[: 2 * CHUNK], offset)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(os, "pwrite", full)
        file.pwrite(0, b"b" * (5 * CHUNK))
    with pytest.raises(Damaged):
        file.pread(0, CHUNK)
    file.pwrite(0, b"c" * (5 * CHUNK))
    assert file.pread(CHUNK, 4 * CHUNK) == b"c" * (4 * CHUNK)
    file.close()


def test_a_cached_chunk_that_cannot_be_replaced_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that a failing disk has not stored again is missing, not zeros."""
    file = EncryptedFile.create(tmp_path / "file", KEY)
    file.disable_redo_log()
    file.pwrite(0, b"a" * CHUNK)
    file.flush()

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "failing")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="failing"):
        patch.setattr(os, "pwritev", fail)
        file.pwrite(0, b"a" * CHUNK)
    file.close()
    again = open_file(tmp_path / "file", KEY, file.manifest())
    again.disable_redo_log(is_complete=True)
    with pytest.raises(Damaged):
        again.pread(0, CHUNK)
    again.close()
