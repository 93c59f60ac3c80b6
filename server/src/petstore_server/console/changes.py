"""Entries of the audit log as the console shows them: what was done, to what, and which fields changed."""

from typing import Any, NamedTuple
from urllib.parse import quote

from petstore_server.console.rendering import plain
from petstore_server.operations.audit import entry_fields
from petstore_server.ports import AuditEntry

_ACTIONS = {
    "account.close": "Closed the account",
    "account.create": "Created the account",
    "account.resume": "Resumed the account",
    "account.set_contact": "Changed the contact",
    "account.set_note": "Changed the note",
    "account.set_plan": "Changed the plan",
    "account.suspend": "Suspended the account",
    "console.create_link": "Created a sign-in link",
    "console.end_sessions": "Ended all console sessions",
    "console.sign_in": "Signed in to the console",
    "key.ban": "Banned the key",
    "key.create": "Created the key",
    "key.revoke": "Revoked the key",
    "key.rotate": "Rotated the key",
    "key.unban": "Lifted the key's ban",
    "order.cancel": "Cancelled the order",
    "order.complete": "Completed the order",
    "order.place": "Placed the order",
    "order.ship": "Shipped the order",
    "orders.import": "Imported orders",
    "orders.import_undo": "Undid an import",
    "pets.import": "Imported pets",
    "store.backup": "Backed up the store",
    "store.copy": "Copied the store",
    "store.restore": "Restored the store from a backup",
}
ACTIONS = tuple(sorted(_ACTIONS))
"""The actions that the audit page offers as filters."""

_LONGEST_VALUE = 200  # characters; an import's entry can hold thousands of orders
_MOST_FIELDS = 12


class Field(NamedTuple):
    """A field that changed; an empty text where it had or has no value."""

    name: str
    before: str
    after: str


class Change(NamedTuple):
    """An entry. `link` is the console's page about its subject, None if there is none."""

    at: float
    actor: str
    action: str
    text: str
    subject: str
    link: str | None
    fields: list[Field]
    request_id: str | None


def change_of(entry: AuditEntry) -> Change:
    """The entry as it is shown."""
    shown = entry_fields(entry)
    kind, _, name = entry.subject.partition(":")
    links = {"account": f"/accounts/{quote(name, safe='')}", "order": f"/orders/{name}", "key": f"/keys/{name}"}
    fields = _fields(shown["before"], shown["after"])
    text = _ACTIONS.get(entry.action, entry.action)
    subject, link = name or entry.subject, links.get(kind)
    return Change(entry.at, entry.actor, entry.action, text, subject, link, fields, entry.request_id)


def _fields(before: Any, after: Any) -> list[Field]:
    old, new = before if isinstance(before, dict) else {}, after if isinstance(after, dict) else {}
    names = list({**old, **new})[:_MOST_FIELDS]
    return [Field(name, _text(old, name), _text(new, name)) for name in names]


def _text(fields: dict[str, Any], name: str) -> str:
    text = plain(fields[name]) if name in fields else ""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
