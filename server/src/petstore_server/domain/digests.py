"""SHA-256 for what few commands need: it is loaded when it is first used, because OpenSSL takes long to load."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


def sha256(data: bytes) -> "_Hash":
    """Like `hashlib.sha256`."""
    import hashlib

    return hashlib.sha256(data)
