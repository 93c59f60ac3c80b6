"""The audit log: which entries to read, the history of an order, what an entry shows, and the names of operators."""

import re
from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any

from petstore_server.domain.audit import SERVICE, AuditEntry, AuditFilters
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.imports import IMPORT_ACTION
from petstore_server.domain.timestamps import format_unix
from petstore_server.store import Store

_MAX_NAME = 100
_MAX_LIST = 10  # longer than any list of an entry that is not about a batch
_TIMES = {"began", "until", "reset"}  # besides names that end in _at


def check_operator_name(name: str) -> str:
    """Return the operator's name if it is usable in the audit log. Raises InvalidInput."""
    if not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise InvalidInput(f"An operator's name is text of 1 to {_MAX_NAME} characters on one line.")
    return name.strip()


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
) -> AsyncIterator[AuditEntry]:
    """Yield the entries that satisfy every condition given, oldest first unless told. Times are Unix seconds.

    `actor` is `key:<id>`, `service`, or an operator's name. An account's entries are those about itself and about its
    keys, and what its keys did; a key's entries are those about it, and what it did. An order's entries include the
    imports that created or changed it, reduced to the order. Raises AccountNotFound, KeyNotFound, InvalidInput.
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
    if order is not None and len(about) == 1 and action in (None, IMPORT_ACTION) and request_id is None:
        history = await order_history(store, order, filters)
        for entry in history if newest_first else reversed(history):
            yield entry
        return  # otherwise without imports, which no account, key or request makes
    async for entry in store.audit.entries(filters, newest_first=newest_first):
        yield entry


async def account_subjects(store: Store, account: str) -> tuple[str, ...]:
    """The subjects of entries about an account and its keys. Raises AccountNotFound."""
    return (f"account:{account}", *(f"key:{key.id}" for key in await store.keys.list(account)))


async def order_history(
    store: Store, order_id: int, filters: AuditFilters, *, most: int | None = None, batches: int | None = None
) -> list[AuditEntry]:
    """The order's entries within the times and by the actor of the filters, newest first.

    The entries of imports are reduced to the order: both states if it was changed, `created` if it was created. At
    most the last `most` entries of the order are read, and the last `batches` of imports, which are large; None: all.
    """
    own = filters._replace(subjects=(f"order:{order_id}",), about=())
    imports = filters._replace(action=IMPORT_ACTION, about=())
    entries = [entry async for entry in _last(store, own, most)]
    entries += [part async for entry in _last(store, imports, batches) if (part := _part_of_import(entry, order_id))]
    return sorted(entries, key=attrgetter("position"), reverse=True)


async def _last(store: Store, filters: AuditFilters, most: int | None) -> AsyncIterator[AuditEntry]:
    if most is not None:
        for entry in (await store.audit.page(filters, most)).entries:
            yield entry
        return
    async for entry in store.audit.entries(filters):
        yield entry


def _part_of_import(entry: AuditEntry, order_id: int) -> AuditEntry | None:
    """The entry of an imported batch, reduced to one order; None if the batch left the order as it was."""
    before, after = _fields(entry.before, order_id), _fields(entry.after, order_id)
    if after is not None:
        changed = {name for name in {**(before or {}), **after} if (before or {}).get(name) != after.get(name)}
        return entry._replace(before=_only(before, changed), after=_only(after, changed))
    ranges = (entry.after or {}).get("createdIds", ())
    created = any(first <= order_id <= last for first, last in ranges)
    return entry._replace(before=None, after={"created": True}) if created else None


def _fields(values: dict[str, Any] | None, order_id: int) -> dict[str, Any] | None:
    orders = (values or {}).get("orders", ())
    return next((fields for fields in orders if fields["id"] == order_id), None)


def _only(fields: dict[str, Any] | None, names: set[str]) -> dict[str, Any] | None:
    return fields and {name: value for name, value in fields.items() if name in names}


def actor_name(text: str) -> str:
    """The actor that an operator means: `ada` is operator:ada; `service` and names such as key:key_… stay."""
    return text if text == SERVICE or ":" in text else f"operator:{text}"


def entry_fields(entry: AuditEntry, *, full: bool = True) -> dict[str, Any]:
    """The entry as it is shown: names in camelCase, times as RFC 3339 in UTC.

    Unless `full`, lists as long as those of an import are cut, and `<name>Omitted` has the number that is left out.
    """
    return {
        "id": entry.id,
        "at": format_unix(entry.at, microseconds=True),
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "requestId": entry.request_id,
        "before": shown_fields(entry.before if full else _abbreviated(entry.before)),
        "after": shown_fields(entry.after if full else _abbreviated(entry.after)),
    }


def _abbreviated(values: dict[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    long = {name: value for name, value in values.items() if isinstance(value, list) and len(value) > _MAX_LIST}
    omitted = {f"{name}Omitted": len(value) - _MAX_LIST for name, value in long.items()}
    return {**values, **{name: value[:_MAX_LIST] for name, value in long.items()}, **omitted}


def shown_fields(value: Any) -> Any:
    """A value as it is shown: names of fields in camelCase, times, which are Unix seconds, as RFC 3339 in UTC."""
    if isinstance(value, dict):
        return {_camel_case(name): _shown_field(name, field) for name, field in value.items()}
    return [shown_fields(each) for each in value] if isinstance(value, list) else value


def _shown_field(name: str, value: Any) -> Any:
    is_time = (name.endswith("_at") or name in _TIMES) and isinstance(value, int | float)
    return format_unix(value) if is_time else shown_fields(value)


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
