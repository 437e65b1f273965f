"""The account's data key: made at first use, kept with the secrets, destroyed at logoff.

Must not know what is encrypted with it.

INVARIANT: names and content are under different keys, both derived from the one that is kept
(HKDF, RFC 5869, SHA-256).
"""

import base64
import binascii

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from zonedrive.cipher import KEY_BYTES, Box, Clear, Sealed, new_key
from zonedrive.errors import StoreError
from zonedrive.logon.secrets import Secret, SecretStore

NAME = "key"


def data_box(store: SecretStore, encrypt: bool, *, make: bool = True) -> tuple[Box, bytes | None]:
    """The box for names and the key for content; (Clear, None) with `encrypt` false.

    Blocks like the store.  Raises StoreError where the keyring is locked, the key is damaged, or
    there is none and `make` is false: a new key in its place would make everything kept so far
    unreadable.
    """
    if not encrypt:
        return Clear(), None
    master = kept_key(store)
    if master is None and not make:
        raise gone()
    if master is None:
        master = new_key()
        store.set(NAME, Secret(base64.b64encode(master).decode()))
    return names_box(master), _derived(master, b"zonedrive content")


def kept_key(store: SecretStore) -> bytes | None:
    """The key, None where there is none.  Raises StoreError, also where it is damaged."""
    kept = store.get(NAME)
    if kept is None:
        return None
    try:
        master = base64.b64decode(kept.reveal(), validate=True)
    except binascii.Error:
        master = b""
    if len(master) != KEY_BYTES:
        raise StoreError(
            "the account's data key is damaged", remedy="log off with --discard and on again"
        )
    return master


def names_box(master: bytes) -> Box:
    """The box for names under that key."""
    return Sealed(_derived(master, b"zonedrive names"))


def gone() -> StoreError:
    """There is no key, and something here was made with one."""
    return StoreError(
        "the account's data key is gone, so what is kept here cannot be read",
        remedy="was the keyring emptied, or another one opened? if it is lost for good, log"
        " off with --discard and on again",
    )


def _derived(master: bytes, use: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=use).derive(master)
