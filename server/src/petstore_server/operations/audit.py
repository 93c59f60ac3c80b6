"""The audit log: which entries to read, the history of an order, and what an entry shows."""

import re
from collections.abc import AsyncIterator
from math import inf
from typing import Any

from petstore_server.domain.audit import (
    SERVICE,
    AuditEntry,
    AuditFilters,
    AuditPage,
    AuditPosition,
    check_operator_name,
    difference,
)
from petstore_server.domain.imports import IMPORT_ACTIONS
from petstore_server.domain.timestamps import format_unix
from petstore_server.store import Store

ACTIONS = (
    *(f"account.{change}" for change in ("close", "create", "edit", "resume", "set_plan", "suspend")),
    *(f"console.{change}" for change in ("create_link", "end_session", "end_sessions", "refuse", "sign_in")),
    *(f"key.{change}" for change in ("ban", "create", "revoke", "rotate", "unban")),
    *(f"order.{change}" for change in ("cancel", "complete", "place", "put", "ship", "update")),
    *sorted({"orders.export", *IMPORT_ACTIONS}),
    *(f"store.{change}" for change in ("backup", "copy", "restore")),
    *(f"webhook.{change}" for change in ("create", "delete", "edit", "end", "ping", "rotate", "stop")),
)
"""The actions of all entries, in alphabetical order."""

_ALL = AuditFilters()
_TIME = re.compile(r"_at$|^(began|until|reset)$")  # names of times


async def read_audit(
    store: Store,
    *,
    since: float | None = None,
    until: float | None = None,
    actor: str | None = None,
    action: str | None = None,
    account: str | None = None,
    key: str | None = None,
    order: int | None = None,
    request_id: str | None = None,
    newest_first: bool = False,
    full: bool = False,
) -> AsyncIterator[AuditEntry]:
    """Yield the entries that satisfy every condition given, oldest first by default. Times are Unix seconds.

    `actor` is `key:<id>`, `service`, or an operator's name. An account's entries are those about itself, its keys and
    its webhooks, and what its keys did; a key's entries are those about it, and what it did. An order's entries include
    the imports that created or changed it, reduced to the order. With `full`, an import has an entry for each batch
    that changed something, with all states before and after. Raises AccountNotFound, KeyNotFound, InvalidInput.
    """
    name = None if actor is None else actor_name(check_operator_name(actor))
    about: list[tuple[str, ...]] = []
    if account is not None:
        about.append(await account_subjects(store, account))
    if key is not None:
        about.append((f"key:{(await store.keys.find(key)).id}",))
    if order is not None:
        about.append((f"order:{order}",))
    filters = AuditFilters(name, action, since=since, until=until, about=tuple(about), request_id=request_id)
    if order is not None and len(about) == 1:
        entries = (await order_entries(store, order, filters))[0].entries
        for entry in entries if newest_first else reversed(entries):
            yield entry
        return  # otherwise without imports, which no account or key makes
    async for entry in store.audit.entries(filters, newest_first=newest_first):
        async for part in _parts(store, entry, full=full):
            yield part


async def _parts(store: Store, entry: AuditEntry, *, full: bool) -> AsyncIterator[AuditEntry]:
    """The entry, or instead, if `full`, those of the batches of an import."""
    if full and entry.action in IMPORT_ACTIONS:
        async for batch in store.imports.batches(entry.subject):
            yield batch
    else:
        yield entry


async def account_subjects(store: Store, account: str) -> tuple[str, ...]:
    """The subjects of entries about an account, its keys and its webhooks. Raises AccountNotFound."""
    keys = [f"key:{key.id}" for key in await store.keys.list(account)]
    return (f"account:{account}", *keys, *await store.audit.webhooks_of(account))


async def order_entries(
    store: Store,
    order_id: int,
    filters: AuditFilters = _ALL,
    limit: int | None = None,
    last: AuditPosition | None = None,
) -> tuple[AuditPage, int]:
    """A page of the order's entries that match, newest first, and the number of all that match.

    Every import that created or changed the order is among them, reduced to the order: both states if it was changed,
    and `created` if it was created.
    """
    own = filters._replace(subjects=(f"order:{order_id}",), about=())
    found: list[tuple[int | None, AuditEntry]] = [(None, entry) async for entry in store.audit.entries(own)]
    if filters.request_id is None and filters.action in (None, "orders.import"):  # which no request makes
        since, until = filters.since or 0.0, inf if filters.until is None else filters.until
        found += [
            (batch, entry)
            for batch, entry in await store.imports.of_order(order_id)
            if since <= entry.at < until
            and filters.actor in (None, entry.actor)
            and entry.actor.startswith(filters.actor_prefix or "")
        ]
    found.sort(key=lambda pair: pair[1].position, reverse=True)
    later = [pair for pair in found if last is None or pair[1].position < last]
    shown = [
        entry if batch is None else await _reduced(store, order_id, batch, entry) for batch, entry in later[:limit]
    ]
    return AuditPage(shown, shown[-1].position if len(later) > len(shown) else None), len(found)


async def _reduced(store: Store, order_id: int, batch: int, entry: AuditEntry) -> AuditEntry:
    before, after = await store.imports.states(batch, order_id)
    if after is None:
        return entry._replace(after={"created": True})
    return entry._replace(**difference(before, after)._asdict())


def actor_name(text: str) -> str:
    """The actor that an operator means: `ada` is operator:ada; `service` and names such as key:key_… stay."""
    return text if text == SERVICE or ":" in text else f"operator:{text}"


def entry_fields(entry: AuditEntry) -> dict[str, Any]:
    """The entry as it is shown: names in camelCase, times as RFC 3339 in UTC; the account of a key as actor.

    `verified` is there, and true, if a proxy that signs operators in has given the actor's name.
    """
    return {
        "id": entry.id,
        "at": format_unix(entry.at, microseconds=True),
        "actor": entry.actor,
        **({"verified": True} if entry.verified else {}),
        **({} if entry.account is None else {"account": entry.account}),
        "action": entry.action,
        "subject": entry.subject,
        "requestId": entry.request_id,
        **({} if entry.trace_id is None else {"traceId": entry.trace_id}),
        "before": shown_fields(entry.before),
        "after": shown_fields(entry.after),
    }


def shown_fields(value: Any) -> Any:
    """A value as it is shown: names of fields in camelCase, times, which are Unix seconds, as RFC 3339 in UTC."""
    if isinstance(value, dict):
        times = {name for name, field in value.items() if isinstance(field, int | float) and _TIME.search(name)}
        texts = {name: format_unix(field) if name in times else shown_fields(field) for name, field in value.items()}
        return {re.sub(r"_([a-z])", lambda match: match[1].upper(), name): text for name, text in texts.items()}
    return [shown_fields(item) for item in value] if isinstance(value, list) else value
