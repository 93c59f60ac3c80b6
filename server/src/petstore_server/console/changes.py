"""Entries of the audit log as the console shows them: what was done, and which fields changed."""

import re
from typing import Any

from petstore_server.domain.audit import AuditEntry
from petstore_server.operations.audit import entry_fields

ACTIONS = {  # in the order of the choices on the audit page
    "account.close": "Closed the account",
    "account.create": "Created the account",
    "account.edit": "Edited the account",
    "account.resume": "Resumed the account",
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
    "pets.import": "Imported pets",
    "store.backup": "Backed up the store",
    "store.copy": "Copied the store",
    "store.restore": "Restored the store from a backup",
}

SIGN_INS = ("console.create_link", "console.sign_in")  # the actions that change nothing of the service

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?Z", re.ASCII)
_IDENTIFIERS = {"id", "petId"}  # numbers that are not counts
_LONGEST_VALUE = 200  # characters; an import's entry can hold thousands of orders
_MOST_FIELDS = 12
_HIDDEN = {"createdIds", "createdChecksums", "orders", "pets"}  # of an import; the page of an order shows its own


def changed_fields(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """The fields that changed: the name, and the text before and after, empty where the field had or has no value."""
    shown = entry_fields(entry)
    before, after = (shown[each] if isinstance(shown[each], dict) else {} for each in ("before", "after"))
    names = [name for name in {**before, **after} if name not in _HIDDEN][:_MOST_FIELDS]
    return [(_words(name), _text(before, name), _text(after, name)) for name in names]


def _words(name: str) -> str:
    """perMinute as words: per minute."""
    return re.sub(r"[A-Z]", lambda match: f" {match[0].lower()}", name)


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    text = "" if name not in fields else str(value) if name in _IDENTIFIERS else _plain(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def plain_times(text: str) -> str:
    """The text with its times in the form of all pages: 2026-11-23 05:00:00 for 2026-11-23T05:00:00Z."""
    return _RFC3339.sub(r"\1 \2", text)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{_words(name)} {_plain(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) if all(not isinstance(each, dict) for each in value) else f"{len(value):,}"
    return "–" if value is None else plain_times(str(value))
