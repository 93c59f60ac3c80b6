"""The audit log: what an entry shows, and the names of the operators in it."""

import re
from typing import Any

from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.timestamps import format_unix
from petstore_server.ports import AuditEntry

_LONGEST_NAME = 100
_TIMES = {"began", "until"}  # besides names that end in _at


def check_operator_name(name: str) -> str:
    """Return the operator's name if it is usable in the audit log. Raises InvalidInput."""
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InvalidInput(f"An operator's name is text of 1 to {_LONGEST_NAME} characters on one line.")
    return name.strip()


def entry_fields(entry: AuditEntry) -> dict[str, Any]:
    """The entry as it is shown: names in camelCase, times as RFC 3339 in UTC."""
    return {
        "id": entry.id,
        "at": format_unix(entry.at, microseconds=True),
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "before": _shown(entry.before),
        "after": _shown(entry.after),
    }


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {_camel_case(name): _shown_field(name, field) for name, field in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return value


def _shown_field(name: str, value: Any) -> Any:
    if (name.endswith("_at") or name in _TIMES) and isinstance(value, int | float):
        return format_unix(value)
    return _shown(value)


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
