"""API keys: their form, checksum, scopes, states and transitions (D9).

A key consists of `pso_live_` or `pso_test_`, 27 random base62 characters (160 bits) and a checksum of six. With the
checksum a mistyped key is rejected without a look-up, and a scanner can recognise a leaked key.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import KeyNotBanned, KeyNotUsable, KeyRotated
from petstore_server.domain.texts import looks_like_key
from petstore_server.domain.transitions import Transition

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_LENGTH = 27  # 62^27 > 2^160
_CHECKSUM_LENGTH = 6  # 62^6 > 2^32, the range of CRC-32
_ID_LENGTH = 12
_FORM = re.compile(rf"pso_(live|test)_[0-9A-Za-z]{{{_RANDOM_LENGTH + _CHECKSUM_LENGTH}}}", re.ASCII)


class Environment(StrEnum):
    PRODUCTION = "production"
    STAGING = "staging"


_PREFIX = {Environment.PRODUCTION: "pso_live_", Environment.STAGING: "pso_test_"}


class Scope(StrEnum):
    ORDERS_READ = "orders:read"
    ORDERS_CANCEL = "orders:cancel"
    PETS_READ = "pets:read"
    ORDERS_WRITE = "orders:write"
    ORDERS_MANAGE = "orders:manage"
    WEBHOOKS_MANAGE = "webhooks:manage"


DEFAULT_SCOPES = frozenset({Scope.ORDERS_READ, Scope.ORDERS_CANCEL, Scope.PETS_READ})
"""The scopes of a key without named ones. Other scopes are only granted by name (D9)."""


class KeyState(StrEnum):
    ACTIVE = "active"
    EXPIRING = "expiring"
    SUSPENDED = "suspended"
    """With its account, until that is resumed."""
    EXPIRED = "expired"
    REVOKED = "revoked"


VALID = (KeyState.ACTIVE, KeyState.EXPIRING)  # requests are accepted, unless a ban is in force
ENDED = (KeyState.EXPIRED, KeyState.REVOKED)  # the key will not be valid again
MAX_KEYS = 100
"""Keys of an account that have not ended; of a rotated one only the successor counts, so any key can be rotated."""


class RefusedKey(NamedTuple):
    """A known key that is not valid now. `account` is the account's name."""

    key_id: str
    account: str
    state: KeyState


def key_state(expires_at: float | None, revoked_at: float | None, account_suspended: bool, now: float) -> KeyState:
    """The state of a key at `now`, apart from a ban. Times are Unix seconds."""
    if revoked_at is not None:
        return KeyState.REVOKED
    if expires_at is not None and expires_at <= now:
        return KeyState.EXPIRED
    if account_suspended:
        return KeyState.SUSPENDED
    return KeyState.ACTIVE if expires_at is None else KeyState.EXPIRING


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is stored of a key: never the key itself, only `digest`, its SHA-256. Times are Unix seconds.

    `ban` is the latest one, in force or not. `last_used_at` is the start of the hour in which the key was last used.
    `account_suspended` and `rotated_to`, the id of the successor, come from other records.
    """

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
    account_suspended: bool = False
    rotated_to: str | None = None
    last_used_at: int | None = None

    def state(self, now: float) -> KeyState:
        """The key's state at `now` (Unix seconds), apart from a ban."""
        return key_state(self.expires_at, self.revoked_at, self.account_suspended, now)

    def is_banned(self, now: float) -> bool:
        """Whether a ban of the key is in force at `now` (Unix seconds), and the key would be valid without it."""
        return self.ban is not None and self.ban.holds(now) and self.state(now) in VALID

    def rotation_obstacle(self, now: float) -> KeyNotUsable | None:
        """Why the key cannot be rotated at `now` (Unix seconds): it has ended, or has a successor. None if it can."""
        state = self.state(now)
        if state in ENDED:
            return KeyNotUsable(self.id, str(state))
        return None if self.rotated_to is None else KeyRotated(self.id, self.rotated_to)

    def fields(self) -> dict[str, Any]:
        """Return what can change, as the audit log records it."""
        ban = None if self.ban is None else {"began": self.ban.began, "until": self.ban.until, "level": self.ban.level}
        times = {"expires_at": self.expires_at, "revoked_at": self.revoked_at}
        return {**times, "rotated_to": self.rotated_to, "ban": ban}


class Successor(NamedTuple):
    """What is new about the successor of a key; `expires_at` is in Unix seconds, None for the end of the old key."""

    id: str
    digest: bytes
    expires_at: float | None = None


def revoke(at: float) -> Transition[ApiKey]:
    """End the key for good. Revoking again changes nothing."""
    return Transition("key.revoke", lambda key: replace(key, revoked_at=at) if key.revoked_at is None else key)


def unban(at: float) -> Transition[ApiKey]:
    """Lift the ban that is in force at `at`, and forget it. Raises KeyNotBanned if there is none."""

    def apply(key: ApiKey) -> ApiKey:
        if key.ban is None or not key.ban.holds(at):  # also while its account is suspended
            raise KeyNotBanned(key.id)
        return replace(key, ban=None)

    return Transition("key.unban", apply)


def rotate(key: ApiKey, successor: Successor, grace_ends: float, at: float) -> tuple[ApiKey, ApiKey]:
    """Replace a key at `at` by a successor with the same account, environment, scopes, note and ban; return both.

    The old key ends at `grace_ends` (Unix seconds), or earlier if it was to. Raises KeyNotUsable.
    """
    obstacle = key.rotation_obstacle(at)
    if obstacle is not None:
        raise obstacle
    ends = grace_ends if key.expires_at is None else min(key.expires_at, grace_ends)
    new = replace(
        key,
        id=successor.id,
        digest=successor.digest,
        created_at=at,
        expires_at=key.expires_at if successor.expires_at is None else successor.expires_at,
        rotated_from=key.id,
        ban=None if key.ban is None else replace(key.ban, key_id=successor.id),
        last_used_at=None,
    )
    return replace(key, expires_at=ends, rotated_to=successor.id), new


@dataclass(frozen=True, slots=True)
class Principal:
    """What a valid key allows: all that a request needs. `account` is a name; `expires_at` is in Unix seconds.

    For a principal with an `owner`, which is then its account, only the orders of this owner exist (D21).
    """

    key_id: str
    account_id: int
    account: str
    plan: Plan
    limits: Limits
    scopes: frozenset[Scope]
    expires_at: float | None = None
    owner: int | None = None

    @property
    def sees_accounts(self) -> bool:
        """Whether orders are shown with the names of their owners: to the shop's own systems (D22)."""
        return self.owner is None and Scope.ORDERS_MANAGE in self.scopes

    def holds(self, now: float) -> bool:
        """Whether the key has not expired at `now` (Unix seconds)."""
        return self.expires_at is None or now < self.expires_at


@lru_cache(maxsize=64)  # there are few sets of scopes
def parse_scopes(text: str) -> frozenset[Scope]:
    """Parse scopes separated by spaces. A scope that only a later release knows grants nothing."""
    return frozenset(scope for scope in Scope if scope in text.split())


def new_key(environment: Environment, randbelow: Callable[[int], int]) -> str:
    """Make a key. `randbelow(n)` returns uniform random integers below n, as `secrets.randbelow` does."""
    body = _PREFIX[environment] + _random_text(_RANDOM_LENGTH, randbelow)
    return body + _checksum(body)


def new_key_id(randbelow: Callable[[int], int]) -> str:
    """Make a key's public identifier, which is safe to show, to log and to pass on a command line."""
    return new_identifier("key_", randbelow)


def new_identifier(prefix: str, randbelow: Callable[[int], int]) -> str:
    """Make a public identifier that begins with the prefix. `randbelow` is as for `new_key`."""
    return prefix + _random_text(_ID_LENGTH, randbelow)


def is_well_formed(key: str) -> bool:
    """Whether the text has the form of a key and a correct checksum."""
    return bool(_FORM.fullmatch(key)) and _checksum(key[:-_CHECKSUM_LENGTH]) == key[-_CHECKSUM_LENGTH:]


def completed(text: str) -> str:
    """The key that the text is if only its prefix is missing; else the text."""
    return next((key for prefix in _PREFIX.values() if is_well_formed(key := f"{prefix}{text}")), text)


def holds_key(text: str) -> bool:
    """Whether the text holds an API key, complete or not, or is one without its prefix."""
    return looks_like_key(completed(text.strip()))


def digest(key: str) -> bytes:
    """Return the key's SHA-256, 32 bytes, by which it is stored and looked up. A random key needs no salt."""
    return sha256(key.encode()).digest()


def _random_text(length: int, randbelow: Callable[[int], int]) -> str:
    return "".join(_DIGITS[randbelow(62)] for _ in range(length))


def _checksum(body: str) -> str:
    rest = zlib.crc32(body.encode())
    return "".join(_DIGITS[rest // 62**place % 62] for place in reversed(range(_CHECKSUM_LENGTH)))
