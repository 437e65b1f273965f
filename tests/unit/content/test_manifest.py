"""Records of the last write of each chunk: small and exact."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonedrive.content.content_file import ContentFile
from zonedrive.content.encrypted_file import create_file, open_file
from zonedrive.content.manifest import Manifest, Nonces, Writes
from zonedrive.content.slots import CHUNK, SLOT, Slots, slot_offset
from zonedrive.errors import Damaged

KEY = bytes(range(32))
NONE = 0
SIZE = 6 * CHUNK + 10
STEP = st.tuples(
    st.integers(0, 30), st.integers(0, 12), st.sampled_from(["write", "go on", "drop"])
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_each_chunk_has_its_last_write(steps: list[tuple[int, int, str]]) -> None:
    """The record is right for any mix of sequential writes, random writes and dropped chunks."""
    writes, model, nonces = Writes(), dict[int, int](), Nonces()
    end = 0
    for start, count, verb in steps:
        if verb == "go on":
            start = end
        end = start + count
        first = NONE if verb == "drop" else nonces.reserve(count)
        writes.set(start, end, first)
        for index in range(count):
            model[start + index] = first + index if first else NONE
        kept, chunks = Writes.decode(writes.encode()), range(-1, max(model, default=0) + 2)
        for each in (writes, kept):
            assert [each.get(n) for n in chunks] == [model.get(n, NONE) for n in chunks]
    assert len(writes.encode()) <= 2 * len(steps) * 16  # 16 bytes for each run
    for start in range(45):
        for stop in range(start + 1, 46):
            nonce = writes.get_run(start, stop)
            row = [nonce + n for n in range(stop - start)] if nonce else []
            in_a_row = row == [writes.get(n) for n in range(start, stop)]
            assert in_a_row or not nonce


def test_sequential_writes_take_one_run() -> None:
    """A gigabyte written in order is recorded in a few bytes."""
    writes, nonces = Writes(), Nonces()
    for start in range(0, 16_384, 16):
        writes.set(start, start + 16, nonces.reserve(16))
    assert len(writes.encode()) == 2 * 16  # the run, and its end


def test_nonces_are_never_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one object, also at the end of its numbers, nor two objects repeat a nonce."""
    monkeypatch.setattr("zonedrive.content.manifest._COUNTER_MASK", 255)
    monkeypatch.setattr("zonedrive.content.manifest._COUNTER_BITS", 8)
    given = set[int]()
    objects = [Nonces(), Nonces()]
    for count in [1, 7, 200, 100, 56, 255] * 20:
        for each in objects:
            first = each.reserve(count)
            taken = set(range(first, first + count))
            assert len({nonce >> 8 for nonce in taken}) == 1
            assert not taken & given
            given |= taken


@pytest.mark.parametrize(
    "data", [b"", b"\x90", b"no manifest", b"\x95\xc4\x00\x00\xc4\x01x\xc4\x00\xc4\x00"]
)
def test_an_invalid_manifest_is_damaged(data: bytes) -> None:
    """Any content of a damaged row raises Damaged."""
    with pytest.raises(Damaged):
        Manifest.decode(data)


def written(path: Path, *, final: bool = False) -> tuple[ContentFile, bytes, bytes]:
    """Return a file with its bytes and manifest after the first of two writes, still open."""
    file = create_file(path, KEY)
    file.pwrite(0, b"1" * SIZE)
    file.flush()
    manifest, raw = file.manifest(final=final), path.read_bytes()
    file.pwrite(CHUNK, b"2" * CHUNK)
    file.truncate(SIZE + CHUNK)
    file.flush()
    return file, manifest, raw


def test_former_bytes_are_damaged(tmp_path: Path) -> None:
    """An earlier file or chunk fails its check with the present manifest, but not with its own."""
    file, _, raw = written(tmp_path / "file")
    file.close()
    present = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(raw)
    former = open_file(tmp_path / "file", KEY, file.manifest())
    assert former.size == SIZE + CHUNK
    assert former.pread(0, CHUNK) == b"1" * CHUNK  # the same write, also in the newer state
    with pytest.raises(Damaged, match="chunk 1 is not"):
        former.pread(CHUNK, CHUNK)
    former.close()
    slot = slice(slot_offset(1), slot_offset(1) + SLOT)
    mixed = bytearray(present)
    mixed[slot] = raw[slot]
    (tmp_path / "file").write_bytes(mixed)
    mixed_file = open_file(tmp_path / "file", KEY, file.manifest())
    with pytest.raises(Damaged):
        mixed_file.pread(0, 2 * CHUNK)
    mixed_file.close()


def test_a_closed_file_is_not_searched_for_later_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write to a large file, under its lock, does not read the heads of all chunks."""
    file = create_file(tmp_path / "file", KEY)
    file.pwrite(0, b"1" * SIZE)
    file.close()
    monkeypatch.setattr(Slots, "nonce", lambda *_: pytest.fail("a chunk was read"))
    for number in range(2):
        file = open_file(tmp_path / "file", KEY, file.manifest())
        file.pwrite(SIZE + number, b"2")
        file.close()
    file = open_file(tmp_path / "file", KEY, file.manifest())
    assert file.pread(0, SIZE + 3) == b"1" * SIZE + b"22"
    file.close()


def test_a_hole_stays_a_hole(tmp_path: Path) -> None:
    """Bytes that were cut off or dropped do not return if an old slot is put back."""
    file, _, raw = written(tmp_path / "file")
    file.truncate(2 * CHUNK)
    file.truncate(SIZE)
    file.punch(0, 1)
    file.close()
    os_bytes = bytearray((tmp_path / "file").read_bytes().ljust(len(raw), b"\0"))
    for number in (0, 3):
        slot = slice(slot_offset(number), slot_offset(number) + SLOT)
        os_bytes[slot] = raw[slot]
    (tmp_path / "file").write_bytes(os_bytes)
    again = open_file(tmp_path / "file", KEY, file.manifest())
    assert again.pread(0, SIZE) == bytes(CHUNK) + b"2" * CHUNK + bytes(SIZE - 2 * CHUNK)
    again.close()


def test_only_later_writes_may_differ(tmp_path: Path) -> None:
    """After a kill, later writes by the same object are accepted; a final manifest accepts none."""
    file, manifest, _ = written(tmp_path / "file")
    file.close()
    again = open_file(tmp_path / "file", KEY, manifest)
    assert again.size == SIZE
    assert again.pread(0, SIZE) == b"1" * CHUNK + b"2" * CHUNK + b"1" * (SIZE - 2 * CHUNK)
    copy = again.copy_to(tmp_path / "copy")
    again.close()
    copy.pwrite(0, b"3")
    copy.close()
    later = open_file(tmp_path / "copy", KEY, copy.manifest(final=True))
    assert later.pread(0, 2 * CHUNK) == b"3" + b"1" * (CHUNK - 1) + b"2" * CHUNK
    later.close()
    other, final, _ = written(tmp_path / "other", final=True)
    other.close()
    strict = open_file(tmp_path / "other", KEY, final)
    with pytest.raises(Damaged):
        strict.pread(CHUNK, 1)
    strict.close()


def test_another_file_is_damaged(tmp_path: Path) -> None:
    """A manifest belongs to one file: another file of the same account is refused at once."""
    one, _, _ = written(tmp_path / "one")
    two, _, _ = written(tmp_path / "two")
    one.close()
    two.close()
    with pytest.raises(Damaged, match="not the file"):
        open_file(tmp_path / "one", KEY, two.manifest())
