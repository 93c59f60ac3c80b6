"""SHA-256 for what few commands need: it is loaded when it is first used, because OpenSSL takes long to load."""


def sha256(data: bytes) -> bytes:
    """The SHA-256 of the data, 32 bytes."""
    import hashlib

    return hashlib.sha256(data).digest()
