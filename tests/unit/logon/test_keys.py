"""Data key of the account."""

import pytest

from tests.unit.logon.test_bearer_auth import Memory
from zonedrive.cipher import KEY_BYTES, Clear
from zonedrive.errors import Damaged, StoreError
from zonedrive.logon.keys import data_box


def test_the_key_is_made_once() -> None:
    """Data that one process encrypted can be decrypted by the next."""
    store = Memory()
    box, content = data_box(store, encrypt=True)
    again, same = data_box(store, encrypt=True)
    assert again.open(box.seal(b"name", b"c"), b"c") == b"name"
    assert content == same
    assert content is not None
    assert len(content) == KEY_BYTES


def test_names_and_content_have_different_keys() -> None:
    """Both keys differ from the stored one."""
    from zonedrive.cipher import Sealed

    store = Memory()
    box, content = data_box(store, encrypt=True)
    assert content is not None
    with pytest.raises(Damaged):
        Sealed(content).open(box.seal(b"name"))


def test_without_encryption_there_is_no_key() -> None:
    store = Memory()
    box, content = data_box(store, encrypt=False)
    assert isinstance(box, Clear)
    assert content is None
    assert store.kept == {}


@pytest.mark.parametrize("kept", ["", "no base64!", "c2hvcnQ=", "é"])
def test_a_damaged_key_is_not_replaced(kept: str) -> None:
    """A new key would make all stored data unreadable."""
    store = Memory(key=kept)
    with pytest.raises(StoreError):
        data_box(store, encrypt=True)
    assert store.kept["key"].reveal() == kept


def test_a_locked_keyring_makes_no_new_key() -> None:
    """No key is created; the keyring is read again later."""
    store = Memory()
    store.fail = StoreError("locked")
    with pytest.raises(StoreError):
        data_box(store, encrypt=True)
    assert store.kept == {}


def test_where_data_is_kept_no_key_is_made_for_it() -> None:
    """If data exist, their key is lost or elsewhere, and a new key would hide that."""
    store = Memory()
    with pytest.raises(StoreError, match="missing") as gone:
        data_box(store, encrypt=True, make=False)
    assert "keyring" in gone.value.line()
    assert store.kept == {}
