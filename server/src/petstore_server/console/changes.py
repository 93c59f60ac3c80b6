"""Entries of the audit log as the console shows them: what was done, to what, and which fields changed."""

import re
from typing import Any, NamedTuple
from urllib.parse import quote

from petstore_server.console.lists import account_path
from petstore_server.domain.audit import AuditEntry
from petstore_server.operations.audit import entry_fields

_ACTIONS = {
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
ACTIONS = tuple(sorted(_ACTIONS))
"""The actions that the audit page offers as filters."""

SIGN_INS = ("console.create_link", "console.sign_in")
"""The actions that change nothing of the service."""

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?Z", re.ASCII)
_IDENTIFIERS = {"id", "petId"}  # numbers that are not counts
_LONGEST_VALUE = 200  # characters; an import's entry can hold thousands of orders
_MOST_FIELDS = 12
_HIDDEN = {"createdIds", "createdChecksums", "orders", "pets"}  # of an import; the page of an order shows its own


class Field(NamedTuple):
    """A field that changed; an empty text where it had or has no value."""

    name: str
    before: str
    after: str


class Change(NamedTuple):
    """An entry. Links are the console's pages about its subject and its actor, None if there are none.

    `sentence` says what changed where that is clearer than fields.
    """

    at: float
    actor: str
    actor_link: str | None
    action: str
    text: str
    subject: str
    link: str | None
    sentence: str
    fields: list[Field]
    request_id: str | None


def change_of(entry: AuditEntry) -> Change:
    """The entry as it is shown."""
    shown = entry_fields(entry)
    kind, _, name = entry.subject.partition(":")
    links = {"account": account_path(name), "order": f"/orders/{name}", "key": f"/keys/{name}"}
    link = links.get(kind)
    if link is None and entry.subject.startswith("import-"):
        link = f"/audit?subject={quote(entry.subject, safe='')}"
    actor_kind, _, actor = entry.actor.partition(":")
    return Change(
        at=entry.at,
        actor=actor if actor_kind == "key" else entry.actor.replace(":", " ", 1),
        actor_link=f"/keys/{actor}" if actor_kind == "key" else None,
        action=entry.action,
        text=_ACTIONS.get(entry.action, entry.action),
        subject=name or entry.subject,
        link=link,
        sentence=_lifted(shown["before"]) if entry.action == "key.unban" else "",
        fields=[] if entry.action == "key.unban" else _fields(shown["before"], shown["after"]),
        request_id=entry.request_id,
    )


def _fields(before: Any, after: Any) -> list[Field]:
    old, new = before if isinstance(before, dict) else {}, after if isinstance(after, dict) else {}
    names = [name for name in {**old, **new} if name not in _HIDDEN][:_MOST_FIELDS]
    return [Field(_words(name), _text(old, name), _text(new, name)) for name in names]


def _lifted(before: Any) -> str:
    ban = before.get("ban") if isinstance(before, dict) else None
    if not isinstance(ban, dict):
        return ""
    level = ban.get("level", 1)
    times = plain_times(f"The ban began at {ban.get('began')} and would have ended at {ban.get('until')}.")
    return f"{times} It was ban {level} in a row." if level > 1 else times


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
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) if all(not isinstance(each, dict) for each in value) else f"{len(value):,}"
    return "–" if value is None else plain_times(str(value))
