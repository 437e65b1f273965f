"""Authenticated encryption of short texts, and creation of random keys, for local data.

A box encrypts and decrypts under one key. This module does not depend on files, tables or the
origin of the account's key. The encryption is AES-256-GCM (NIST SP 800-38D) with random 96-bit
nonces, as implemented by `cryptography`.
"""

import hashlib
import os
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zonedrive.errors import Damaged

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
MARK_BYTES = 8


class Clear:
    """Replacement for `Sealed` that neither encrypts nor authenticates.

    Used for an account with the setting `encrypt = false`.
    """

    def seal(self, plain: bytes, context: bytes = b"") -> bytes:
        """Return `plain` unchanged."""
        return plain

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Return `sealed` unchanged."""
        return sealed

    def mark(self, plain: bytes) -> int:
        """Return a hash of `plain` as `Sealed.mark` does, but without a key."""
        return _number(hashlib.blake2b(plain, digest_size=MARK_BYTES).digest())


class Sealed:
    """Encryption with AES-256-GCM under one key; the output is nonce, ciphertext and tag."""

    def __init__(self, key: bytes) -> None:
        """Set the key, which has KEY_BYTES bytes."""
        self._aead = AESGCM(key)
        # A separate key, from which `key` cannot be computed.
        marking = hashlib.blake2b(b"zonedrive marks", key=key, digest_size=KEY_BYTES).digest()
        self._marker = hashlib.blake2b(key=marking, digest_size=MARK_BYTES)

    def seal(self, plain: bytes, context: bytes = b"") -> bytes:
        """Return `plain`, encrypted under a new random nonce; `open` needs the same `context`."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, plain, context)

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Return the decrypted bytes.

        Raises Damaged unless `seal` has returned `sealed` under this key and with `context`.
        """
        try:
            return self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
        except (InvalidTag, ValueError, TypeError) as wrong:  # TypeError: not even bytes
            raise Damaged("stored bytes fail their check") from wrong

    def mark(self, plain: bytes) -> int:
        """Return a keyed hash (BLAKE2b) of `plain` as a signed 64-bit number other than 0.

        The number is a lookup key that does not reveal `plain`.
        """
        marker = self._marker.copy()
        marker.update(plain)
        return _number(marker.digest())


Box: TypeAlias = Clear | Sealed


def _number(digest: bytes) -> int:
    return int.from_bytes(digest, "big", signed=True) or 1


def new_key() -> bytes:
    """Return a new random key of KEY_BYTES bytes."""
    return AESGCM.generate_key(KEY_BYTES * 8)
