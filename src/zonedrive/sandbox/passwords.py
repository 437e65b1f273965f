"""Password storage as salted scrypt digests, and comparison in constant time.

This module does not depend on users. The cost (about 5 ms) is deliberately lower than that of a
real service, because tests log on hundreds of times.
"""

import hashlib
import hmac
import os

SALT_BYTES = 16
COST = 2**11


def digest(password: str) -> bytes:
    """Return a new random salt, followed by the digest of the password with this salt."""
    salt = os.urandom(SALT_BYTES)
    return salt + _scrypt(password, salt)


def matches(password: str, stored: bytes) -> bool:
    """Return True if `stored`, a result of `digest`, was made from `password`."""
    salt, expected = stored[:SALT_BYTES], stored[SALT_BYTES:]
    return hmac.compare_digest(_scrypt(password, salt), expected)


def _scrypt(password: str, salt: bytes) -> bytes:
    # A lone surrogate, which JSON can contain, has no UTF-8 encoding, but must not crash a logon.
    raw = password.encode("utf-8", "surrogatepass")
    if b"\0" in raw:  # scrypt pads with zeros: it ignores zeros at the end
        raw = hashlib.sha256(raw).digest()
    return hashlib.scrypt(raw, salt=salt, n=COST, r=8, p=1)
