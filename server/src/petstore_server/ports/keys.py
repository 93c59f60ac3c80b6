"""API keys, and which of them are valid."""

from typing import Protocol

from petstore_server.domain.keys import ApiKey, Environment, Principal, Rotated, Successor
from petstore_server.domain.transitions import Transition
from petstore_server.ports.audit import Actor


class Keys(Protocol):
    async def principal(self, digest: bytes, environment: Environment, now: float) -> Principal | None:
        """Return what the key with this SHA-256 allows at `now`; None unless it is valid in this environment."""

    async def create(self, key: ApiKey, actor: Actor) -> ApiKey:
        """Store a key of the account `key.account`. Raises AccountNotFound, AccountClosed."""

    async def find(self, key_id: str) -> ApiKey:
        """Raises KeyNotFound."""

    async def list(self, account: str | None = None) -> list[ApiKey]:
        """Return the keys of one account or of all, oldest first. Raises AccountNotFound."""

    async def change(self, key_id: str, transition: Transition[ApiKey], actor: Actor) -> ApiKey:
        """Apply the transition (`revoke`, `unban`) and return the key after it, once it is durable.

        What changes nothing leaves no trace. Raises KeyNotFound, KeyNotBanned.
        """

    async def rotate(self, key_id: str, successor: Successor, grace_ends: float, actor: Actor) -> Rotated:
        """Replace the key by a successor, as `domain.keys.rotate` says. Raises KeyNotFound, KeyNotUsable."""
