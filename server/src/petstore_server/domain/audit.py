"""The audit log: who makes changes of orders, accounts, keys and webhooks, and what it records of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.texts import is_printable, looks_like_key, visible_part

SERVICE = "service"  # the actor of changes that the service makes by itself, such as a ban

_MAX_NAME = 100


class Actor(NamedTuple):
    """Who makes a change (`key:<id>`, `operator:<user>` or SERVICE), when (Unix seconds), and for which request.

    `trace_id` is that of the trace of which the request is a part. `verified`: a proxy that signs operators in has
    given the name; else an operator typed it.
    """

    name: str
    at: float
    request_id: str | None = None
    trace_id: str | None = None
    verified: bool = False


class AuditPosition(NamedTuple):
    """The place of an entry in the audit log, which is sorted by time and id."""

    at: float
    id: int


class AuditEntry(NamedTuple):
    """One entry of the audit log. `before` and `after` hold what changed, as {field: value}; or None.

    `account` is the name of the actor's account, if the actor is a key. `verified` is that of `Actor`.
    """

    id: int
    at: float
    actor: str
    action: str
    subject: str
    before: Any
    after: Any
    request_id: str | None = None
    account: str | None = None
    trace_id: str | None = None
    verified: bool = False

    @property
    def position(self) -> AuditPosition:
        return AuditPosition(self.at, self.id)


class AuditFilters(NamedTuple):
    """Which entries of the audit log to read: those that satisfy every filter. None, and nothing, mean all.

    `since` is included, `until` is not; both are Unix seconds. `without` are actions to leave out. For each group of
    names in `about`, such as `order:7` or `key:<id>`, the subject or the actor of an entry must be one of them.
    `actor_prefix` is how the name of the actor begins.
    """

    actor: str | None = None
    action: str | None = None
    subjects: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    about: tuple[tuple[str, ...], ...] = ()
    request_id: str | None = None
    without: tuple[str, ...] = ()
    actor_prefix: str | None = None


class AuditPage(NamedTuple):
    """Entries in order. `next` is the position after which the log goes on, even after a short page, or None."""

    entries: Sequence[AuditEntry]
    next: AuditPosition | None


class Change(NamedTuple):
    """What the audit log records: the fields that changed, before and after, as {name: value} or None."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def check_operator_name(name: str) -> str:
    """Return the operator's name if it is usable in the audit log. Raises InvalidInput."""
    if not visible_part(name).strip() or len(name) > _MAX_NAME or not is_printable(name):
        raise InvalidInput(f"An operator's name is text of 1 to {_MAX_NAME} characters on one line.")
    if looks_like_key(name):
        raise InvalidInput("The operator's name holds an API key and would be in the audit log.")
    return name.strip()


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Change:
    """The fields that differ; a field that one side lacks is left out there."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return Change(
        {name: before[name] for name in names if name in before},
        {name: after[name] for name in names if name in after},
    )
