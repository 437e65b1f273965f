"""Encryption at rest: small authenticated boxes for names, and keys for whole content files.

Knows nothing of files, tables or where the account's key comes from.
Source of the construction: AES-256-GCM (NIST SP 800-38D) with random 96-bit nonces, as
`cryptography` implements it.
"""

import hashlib
import os
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zonedrive.errors import Damaged

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
MARK_BYTES = 8


class Box(Protocol):
    """Seals short texts such as names."""

    def seal(self, plain: bytes, context: bytes = b"") -> bytes:
        """Encrypt; `context` must be given again to open."""

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Decrypt.  Raises Damaged where the bytes or the context are not the sealed ones."""

    def mark(self, plain: bytes) -> int:
        """A number (64 bits, signed, never 0) to find `plain` by, that tells nothing of it."""


class Clear:
    """The box of an account with `encrypt = false`: bytes stay as they are."""

    def seal(self, plain: bytes, context: bytes = b"") -> bytes:
        """Give `plain` back."""
        return plain

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Give `sealed` back."""
        return sealed

    def mark(self, plain: bytes) -> int:
        """A hash without a key: nothing is hidden here."""
        return _number(hashlib.blake2b(plain, digest_size=MARK_BYTES).digest())


class Sealed:
    """AES-256-GCM under one key: nonce, ciphertext and tag in one byte string."""

    def __init__(self, key: bytes) -> None:
        """`key` is KEY_BYTES long."""
        self._aead = AESGCM(key)
        # A key of its own, from which the other cannot be computed.
        marking = hashlib.blake2b(b"zonedrive marks", key=key, digest_size=KEY_BYTES).digest()
        self._marker = hashlib.blake2b(key=marking, digest_size=MARK_BYTES)

    def seal(self, plain: bytes, context: bytes = b"") -> bytes:
        """Encrypt under a fresh nonce."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, plain, context)

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Decrypt.  Raises Damaged where the bytes or the context are not the sealed ones."""
        try:
            return self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
        except (InvalidTag, ValueError) as wrong:
            raise Damaged("stored bytes fail their check") from wrong

    def mark(self, plain: bytes) -> int:
        """A keyed hash (BLAKE2b)."""
        marker = self._marker.copy()
        marker.update(plain)
        return _number(marker.digest())


def _number(digest: bytes) -> int:
    return int.from_bytes(digest, "big", signed=True) or 1


def new_key() -> bytes:
    """A fresh random key."""
    return AESGCM.generate_key(KEY_BYTES * 8)
