"""Transitions: changes of orders, accounts, keys and webhooks, which a rule allows or forbids."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from petstore_server.domain.digests import sha256
from petstore_server.domain.errors import ChangedMeanwhile, DomainError


class _WithFields(Protocol):
    def fields(self) -> dict[str, Any]:
        """What can change, with values that JSON can express."""


Entity = TypeVar("Entity")
Versioned = TypeVar("Versioned", bound=_WithFields)


class Transition(NamedTuple, Generic[Entity]):
    """A change and its name in the audit log.

    `apply` returns the entity after the change, or an equal one. It raises the DomainError that forbids the change.
    """

    action: str
    apply: Callable[[Entity], Entity]

    def is_allowed(self, entity: Entity) -> bool:
        try:
            self.apply(entity)
        except DomainError:  # its reason is not needed here
            return False
        return True


def version(entity: _WithFields) -> str:
    """Identify the value of each field that can change, so that a later change can be detected."""
    return " ".join(f"{name}:{_digest(value)}" for name, value in entity.fields().items())


def changed_since(seen: str, fields: Mapping[str, Any]) -> set[str]:
    """The names of the fields that do not have the values that they have in this version.

    An entity may lack fields that have no value: one that the version lacks is None there.
    """
    values, none = _values(seen), _digest(None)
    return {name for name, value in fields.items() if values.get(name, none) != _digest(value)}


def fields_changed_since(seen: str, entity: _WithFields) -> set[str]:
    """The names of the fields that an entity has, or had in this version, and that have changed since."""
    return changed_since(seen, dict.fromkeys(_values(seen)) | entity.fields())


def _values(seen: str) -> dict[str, str]:
    """What identifies the value of each field of a version, by name."""
    return dict(part.split(":", 1) for part in seen.split(" ") if ":" in part)


def unless_changed(
    transition: Transition[Versioned], seen: str | None, names: Collection[str] | None = None
) -> Transition[Versioned]:
    """The transition for an operator who saw this version: raises ChangedMeanwhile if one of the fields has changed.

    `seen` None: whatever has changed. `names` None: all fields.
    """

    def apply(entity: Versioned) -> Versioned:
        if seen is not None:
            changed = fields_changed_since(seen, entity)
            if changed if names is None else not changed.isdisjoint(names):
                raise ChangedMeanwhile
        return transition.apply(entity)

    return Transition(transition.action, apply)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hex()[:12]
