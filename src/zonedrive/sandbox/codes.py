"""Verification of one-time codes (TOTP, HOTP and codes sent by mail), each of which is valid once.

This module does not depend on the logon flow. Codes have 6 digits. TOTP and HOTP use SHA-1. TOTP
has steps of 30 s, HOTP starts at counter 0. The codes are computed here according to RFC 4226,
because pyotp rejects secrets shorter than 112 bits. World files may contain shorter secrets (many
authenticators still use 80 bits).

INVARIANT: no code is valid for a user without an `otp_secret`, and no code is mailed to such a
user.
"""

import base64
import hashlib
import hmac
import secrets
import time

from zonedrive.sandbox.database import Database

STEP_SECONDS = 30
DRIFT_STEPS = 1  # accepted clock drift, in steps
LOOK_AHEAD = 10  # number of consecutive HOTP codes to try, because a device may have skipped some


class Codes:
    """Verifier of one-time codes that accepts each code only once."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database = database
        self.kind = kind

    def required(self) -> bool:
        """Return True if the organization requires a code."""
        return self.kind != "None"

    def mail(self, user_id: str) -> None:
        """Create a new code for the user if codes are sent by mail (the kind ServiceMail).

        No code is created for a user without an `otp_secret`. No real mail is sent; `mailed`
        returns the code. The user's previous code becomes invalid.
        """
        if self.kind != "ServiceMail":
            return
        self._database.run(
            "UPDATE users SET mail_code = ?, mail_used = 0 WHERE id = ? AND otp_secret IS NOT NULL",
            f"{secrets.randbelow(10**6):06d}",
            user_id,
        )

    def mailed(self, user_id: str) -> str | None:
        """Return the last code mailed to the user, even if already used; None if there is none."""
        code: str | None = self._database.scalar(
            "SELECT mail_code FROM users WHERE id = ?", user_id
        )
        return code

    def accept(self, user_id: str, code: str) -> bool:
        """Return True if a one-time code is valid, and mark the code as used."""
        check = {"TOTP": self._totp, "HOTP": self._hotp, "ServiceMail": self._mail}[self.kind]
        return check(user_id, code)

    def _secret(self, user_id: str) -> str | None:
        secret: str | None = self._database.scalar(
            "SELECT otp_secret FROM users WHERE id = ?", user_id
        )
        return secret

    def _totp(self, user_id: str, code: str) -> bool:
        secret = self._secret(user_id)
        if secret is None:
            return False
        used = self._database.scalar("SELECT totp_step FROM users WHERE id = ?", user_id)
        now = int(time.time()) // STEP_SECONDS
        # A TOTP is the HOTP of the current step.
        for step in range(now - DRIFT_STEPS, now + DRIFT_STEPS + 1):
            if step > used and _equal(hotp(secret, step), code):
                self._database.run("UPDATE users SET totp_step = ? WHERE id = ?", step, user_id)
                return True
        return False

    def _hotp(self, user_id: str, code: str) -> bool:
        secret = self._secret(user_id)
        if secret is None:
            return False
        next_counter = self._database.scalar("SELECT hotp_counter FROM users WHERE id = ?", user_id)
        for counter in range(next_counter, next_counter + LOOK_AHEAD):
            if _equal(hotp(secret, counter), code):
                self._database.run(
                    "UPDATE users SET hotp_counter = ? WHERE id = ?", counter + 1, user_id
                )
                return True
        return False

    def _mail(self, user_id: str, code: str) -> bool:
        expected = self.mailed(user_id)
        if self._secret(user_id) is None or expected is None or not _equal(expected, code):
            return False
        # No row is changed if the code was used before.
        used = "UPDATE users SET mail_used = 1 WHERE id = ? AND NOT mail_used"
        return self._database.run(used, user_id) == 1


def _equal(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass"))


def hotp(secret: str, counter: int) -> str:
    """Return the 6-digit HOTP code of a base32 secret for a counter (RFC 4226 with SHA-1).

    The secret may have any length, with or without spaces and padding. Raises ValueError if the
    secret is empty or not base32.
    """
    bare = secret.replace(" ", "").rstrip("=").upper()
    key = base64.b32decode(bare + "=" * (-len(bare) % 8))
    if not key:
        raise ValueError("an empty secret")
    digest = hmac.digest(key, counter.to_bytes(8, "big"), hashlib.sha1)
    offset = digest[-1] & 0xF
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**6:06d}"
