"""The account's data key: created at first use, stored with the secrets, deleted at logoff.

This module does not read or write the encrypted data.

INVARIANT: names and content have different keys, both derived from the stored key (HKDF, RFC 5869,
SHA-256).
"""

import base64
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from zonedrive.cipher import KEY_BYTES, Box, Clear, Sealed, new_key
from zonedrive.errors import StoreError
from zonedrive.logon.secrets import Secret, SecretStore

NAME = "key"


def data_box(
    store: SecretStore,
    encrypt: bool,
    *,
    make: bool = True,
    hold: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[Box, bytes | None]:
    """Return the cipher for names and the key for content.

    If `encrypt` is False, return a `Clear` cipher and None. If the account's data key is missing
    and `make` is True, create the key. `make` must be False if encrypted data exists, because a new
    key could not decrypt the data. `hold` returns a context manager that holds the account's lock,
    because a logon at the same time could otherwise overwrite the new key. Raises StoreError if the
    key is missing and `make` is False, if the key is damaged, or if the store fails.
    """
    if not encrypt:
        return Clear(), None
    master = kept_key(store)
    if master is None and not make:
        raise gone()
    if master is None:
        master = new_key()
        with hold():
            store.set(NAME, _encoded(master))
    return names_box(master), _derived(master, b"zonedrive content")


def kept_key(store: SecretStore) -> bytes | None:
    """Return the stored data key, or None if there is none.

    Raises StoreError if the store fails or the key is damaged.
    """
    kept = store.get(NAME)
    if kept is None:
        return None
    try:
        master = base64.b64decode(kept.reveal(), validate=True)
    except ValueError:
        master = b""
    if len(master) != KEY_BYTES:
        raise StoreError(
            "the account's data key is damaged", remedy="log off with --discard and on again"
        )
    return master


def restore_key(store: SecretStore, master: bytes) -> bool:
    """Store the data key `master` if no data key is stored; return True in that case.

    Return False if `master` is already stored. A different stored key is not replaced. Raises
    StoreError for a different stored key, or if the store fails.
    """
    own = _encoded(master)
    kept = store.get(NAME)
    if kept is None:
        store.set(NAME, own)
    elif kept != own:
        raise StoreError(
            "another data key is stored for this account",
            remedy="restore the former keyring if it was emptied or replaced",
        )
    return kept is None


def names_box(master: bytes) -> Box:
    """Return the cipher for names, with a key derived from `master`."""
    return Sealed(_derived(master, b"zonedrive names"))


def gone() -> StoreError:
    """Return the error for local data whose key is missing."""
    return StoreError(
        "the account's data key is missing, so the local data cannot be read",
        remedy="was the keyring emptied, or another one opened? if it is permanently lost, log"
        " off with --discard and on again",
    )


def _encoded(master: bytes) -> Secret:
    return Secret(base64.b64encode(master).decode())


def _derived(master: bytes, use: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=use).derive(master)
