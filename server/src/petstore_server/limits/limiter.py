"""The protocol of a limiter: counting requests against limits in process memory, or in Redis."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import Principal
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Decision


class Unsaved(NamedTuple):
    """What a limiter counted and the store does not hold yet: usage by account id, and new bans."""

    usage: Mapping[int, Usage]
    bans: Sequence[Ban]


class Limiter(Protocol):
    """Counts requests: never forgets an account's windows, and keeps a bounded number of addresses (D12, D14)."""

    @property
    def fault(self) -> str | None:
        """Why limits are not exact now, as far as is known; None if they are (D19)."""

    @property
    def strikes(self) -> int:
        """Strikes that this process noted since it started."""

    @property
    def bans(self) -> int:
        """Bans that this process gave since it started."""

    @property
    def local_decisions(self) -> int:
        """Decisions that this process made by itself because shared counters did not respond."""

    async def start(self) -> None:
        """Connect to shared counters. Raises the adapter's error if they reject this process for good."""

    def load(self, store_id: str, usage: Mapping[int, Usage], bans: Iterable[Ban]) -> None:
        """Start from what the store with this identity holds. Called once, after `start` and before any request."""

    async def admit(self, principal: Principal) -> Decision:
        """Charge both windows of the key's account, or neither; note a strike, and ban a key that earned it."""

    async def admit_address(self, address: str) -> Decision:
        """Charge the window of an address (as text; IPv6 by /64) whose client has no valid key."""

    async def peek_address(self, address: str) -> Decision:
        """The window of an address, without a charge."""

    async def check(self) -> str | None:
        """Return `fault` after an attempt to clear it."""

    def replace_bans(self, bans: Iterable[Ban]) -> None:
        """Take over the store's bans; those not saved yet stay."""

    def take_unsaved(self) -> Unsaved:
        """Return what is to be saved. Follow with `saved`, or with `put_back` if that failed."""

    def saved(self, unsaved: Unsaved) -> None:
        """Note that this is in the store now."""

    def put_back(self, unsaved: Unsaved) -> None:
        """Note that this was not saved, and is to be taken again."""

    def forget(self) -> None:
        """Drop what is no longer needed, so that the tables stay small. Called once a minute."""

    async def close(self) -> None:
        """Release resources."""
