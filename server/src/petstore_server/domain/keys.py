"""API keys: their form, checksum, states and scopes (D9).

A key reads `pso_live_` or `pso_test_`, 27 random base62 characters (160 bits) and a checksum of six. The checksum
lets a mistyped key be refused without a look-up, and a scanner tell a leaked key from look-alikes.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import Ban

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_LENGTH = 27  # 62^27 > 2^160
_CHECKSUM_LENGTH = 6  # 62^6 > 2^32, the range of CRC-32
_ID_LENGTH = 12
_FORM = re.compile(rf"pso_(live|test)_[0-9A-Za-z]{{{_RANDOM_LENGTH + _CHECKSUM_LENGTH}}}", re.ASCII)

_LEAKED = re.compile(r"(pso_(?:live|test)_)[0-9A-Za-z]+", re.ASCII)


class Environment(StrEnum):
    PRODUCTION = "production"
    STAGING = "staging"


_PREFIX = {Environment.PRODUCTION: "pso_live_", Environment.STAGING: "pso_test_"}


class Scope(StrEnum):
    ORDERS_READ = "orders:read"
    ORDERS_CANCEL = "orders:cancel"
    PETS_READ = "pets:read"
    ORDERS_WRITE = "orders:write"


DEFAULT_SCOPES = frozenset({Scope.ORDERS_READ, Scope.ORDERS_CANCEL, Scope.PETS_READ})
"""What a key may do unless it was given scopes by name. Experimental scopes are only granted by name (D9)."""


class KeyState(StrEnum):
    ACTIVE = "active"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What the store knows of a key: never the key itself, only `digest`, its SHA-256. Moments are Unix seconds."""

    id: str
    account: str
    digest: bytes
    environment: Environment
    scopes: frozenset[Scope]
    note: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_from: str | None = None
    ban: Ban | None = None

    def state(self, now: float) -> KeyState:
        """Where the key stands at `now` (Unix seconds)."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        if self.expires_at is None:
            return KeyState.ACTIVE
        return KeyState.EXPIRED if self.expires_at <= now else KeyState.EXPIRING


@dataclass(frozen=True, slots=True)
class Principal:
    """What a valid key allows: all that a request needs. `account` is the account's name, for logs.

    `expires_at` is in Unix seconds.
    """

    key_id: str
    account_id: int
    account: str
    plan: Plan
    limits: Limits
    scopes: frozenset[Scope]
    expires_at: float | None = None

    def holds(self, now: float) -> bool:
        """Whether the key has not expired at `now` (Unix seconds)."""
        return self.expires_at is None or now < self.expires_at


def new_key(environment: Environment, randbelow: Callable[[int], int]) -> str:
    """Make a key out of a source of uniform random integers below n, such as `secrets.randbelow`."""
    body = _PREFIX[environment] + _random_text(_RANDOM_LENGTH, randbelow)
    return body + _checksum(body)


def new_key_id(randbelow: Callable[[int], int]) -> str:
    """Make the public name of a key: safe to show, log and put on a command line."""
    return "key_" + _random_text(_ID_LENGTH, randbelow)


def is_well_formed(key: str) -> bool:
    """Whether the text has a key's form and a checksum that fits."""
    return bool(_FORM.fullmatch(key)) and _checksum(key[:-_CHECKSUM_LENGTH]) == key[-_CHECKSUM_LENGTH:]


def looks_like_key(text: str) -> bool:
    """Whether the text holds an API key, complete or not."""
    return bool(_LEAKED.search(text))


def hide_keys(text: str) -> str:
    """The text with every API key in it, complete or not, cut to its prefix."""
    return _LEAKED.sub(r"\1[hidden]", text) if "pso_" in text else text


def digest(key: str) -> bytes:
    """The key's SHA-256, 32 bytes: the form in which it is stored and looked up. A key is random, so no salt."""
    return sha256(key.encode()).digest()


def _random_text(length: int, randbelow: Callable[[int], int]) -> str:
    return "".join(_DIGITS[randbelow(62)] for _ in range(length))


def _checksum(body: str) -> str:
    rest = zlib.crc32(body.encode())
    text = ""
    for _ in range(_CHECKSUM_LENGTH):
        rest, digit = divmod(rest, 62)
        text = _DIGITS[digit] + text
    return text
