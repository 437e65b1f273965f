"""Passwords: kept as salted scrypt digests, compared in constant time.

Must not know users.  The cost (about 5 ms) is low for a real service on purpose: tests log on
hundreds of times.
"""

import hashlib
import hmac
import os

SALT_BYTES = 16
COST = 2**11


def digest(password: str) -> bytes:
    """Salt and digest of a password, to be stored."""
    salt = os.urandom(SALT_BYTES)
    return salt + _scrypt(password, salt)


def matches(password: str, stored: bytes) -> bool:
    """Whether `password` is the one that `stored` was made of."""
    salt, expected = stored[:SALT_BYTES], stored[SALT_BYTES:]
    return hmac.compare_digest(_scrypt(password, salt), expected)


def _scrypt(password: str, salt: bytes) -> bytes:
    # A lone surrogate (JSON can carry one) has no UTF-8 form, but must not crash a logon.
    raw = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(raw, salt=salt, n=COST, r=8, p=1)
