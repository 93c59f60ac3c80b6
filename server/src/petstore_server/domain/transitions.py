"""Transitions: named changes of orders, accounts and keys, as functions from one state to the next."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from petstore_server.domain.errors import ChangedMeanwhile, DomainError


class _WithFields(Protocol):
    def fields(self) -> dict[str, Any]:
        """What can change, with values that JSON can express."""


Entity = TypeVar("Entity")
Versioned = TypeVar("Versioned", bound=_WithFields)


class Transition(NamedTuple, Generic[Entity]):
    """A change and its name in the audit log.

    `apply` returns the entity after the change, an equal one if nothing changes, or raises the DomainError that
    forbids it.
    """

    action: str
    apply: Callable[[Entity], Entity]

    def is_allowed(self, entity: Entity) -> bool:
        """Whether the state of the entity allows the change."""
        try:
            self.apply(entity)
        except DomainError:  # its reason is not needed here
            return False
        return True


def version(entity: _WithFields) -> str:
    """Identify what can change of an entity, so that a later change can be detected."""
    return sha256(json.dumps(entity.fields(), sort_keys=True).encode()).hexdigest()[:16]


def unless_changed(transition: Transition[Versioned], seen: str | None) -> Transition[Versioned]:
    """The transition for an operator who saw this version: raises ChangedMeanwhile for another one. None: any."""

    def apply(entity: Versioned) -> Versioned:
        if seen is not None and version(entity) != seen:
            raise ChangedMeanwhile
        return transition.apply(entity)

    return Transition(transition.action, apply)
