"""Transitions: named changes of orders, accounts and keys, as functions from one state to the next."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Entity = TypeVar("Entity")


class Transition(NamedTuple, Generic[Entity]):
    """A change and its name in the audit log.

    `apply` returns the entity after the change, an equal one if nothing changes, or raises the DomainError that
    forbids it.
    """

    action: str
    apply: Callable[[Entity], Entity]
