"""Accounts, their plans and their limits."""

from typing import Protocol

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.transitions import Transition
from petstore_server.ports.audit import Actor


class Accounts(Protocol):
    async def create(
        self, name: str, plan: Plan, limits: Limits, actor: Actor, *, contact: str = "", note: str = ""
    ) -> Account:
        """Raises AccountExists."""

    async def find(self, name: str) -> Account:
        """Raises AccountNotFound."""

    async def list(self) -> list[Account]:
        """Return all accounts, by name."""

    async def change(self, name: str, transition: Transition[Account], actor: Actor) -> Account:
        """Apply the transition and return the account after it, once it is durable.

        The transitions are `set_plan`, `suspend`, `RESUME`, `edit` and `close` of `domain.accounts`. What changes
        nothing leaves no trace. Raises AccountNotFound, AccountClosed.
        """
