"""SHA-256 for what few commands need: it is loaded when it is first used, because OpenSSL takes long to load."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


def sha256(data: bytes) -> "_Hash":
    """What `hashlib.sha256` returns."""
    import hashlib

    return hashlib.sha256(data)
