"""Secrets that callers carry. Only their SHA-256 is stored: they are too random for it to be reversed."""

import hashlib
import secrets
from typing import Final

API_KEY: Final = "or_"
SESSION: Final = "ors_"
PROVISIONING_TOKEN: Final = "otk_"  # noqa: S105 - a prefix
NODE_CREDENTIAL: Final = "onc_"

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# 62**43 > 2**256: every value of 32 bytes has its own 43 digits.
_DIGITS = 43


def make(prefix: str) -> tuple[str, str]:
    """A new secret that starts with `prefix`, and the digest to store: 32 random bytes in base62."""
    value = int.from_bytes(secrets.token_bytes(32), "big")
    digits = []
    for _ in range(_DIGITS):
        value, digit = divmod(value, 62)
        digits.append(_ALPHABET[digit])
    secret = prefix + "".join(digits)
    return secret, digest(secret)


def digest(secret: str) -> str:
    """The SHA-256 of a secret, in hexadecimal, as it is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
