"""Templates, and how values are shown in them: numbers, times, entries of the audit log."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import count
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from petstore_server.console.forms import query_link
from petstore_server.console.recent_requests import REFUSED_STATUSES
from petstore_server.domain.accounts import PLAN_LIMITS, Plan, VisibleOrders
from petstore_server.domain.audit import AuditEntry
from petstore_server.domain.bans import STRIKE_WINDOW
from petstore_server.domain.keys import ENDED
from petstore_server.domain.sessions import LINK_LIFETIME, SESSION_LIFETIME
from petstore_server.domain.texts import escape_unsafe, in_words
from petstore_server.domain.timestamps import DAY, HOUR, MINUTE, format_unix
from petstore_server.domain.transitions import version
from petstore_server.domain.usage import DEPRECATED
from petstore_server.operations.admin_port import CONSOLE_PATH
from petstore_server.operations.audit import entry_fields
from petstore_server.operations.monitor import OLD_SECONDS
from petstore_server.operations.orders import WITHOUT_OWNER
from petstore_server.settings.values import describe_url

WITHOUT_CHANGES = ("console.create_link", "console.refuse", "console.sign_in", "orders.export")

SEEN_ORDERS = {VisibleOrders.ALL: "all orders", VisibleOrders.OWN: "its own orders only"}

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?Z", re.ASCII)
_IDENTIFIERS = {"id", "petId"}  # numbers that are not counts
_MAX_FIELDS = 12

_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))


@cache
def static_file(name: str) -> bytes:
    return (files("petstore_server.console") / "static" / name).read_bytes()


def visible(value: Any) -> Any:
    """A value with escapes such as `\\x1b` for control characters, and for those that reverse text."""
    if not isinstance(value, str) or (escaped := escape_unsafe(value)) == value:
        return value
    return Markup(escaped) if isinstance(value, Markup) else escaped  # noqa: S704 - it was markup before


def bdi(text: str) -> Markup:
    """A text of a partner or an operator, isolated: its direction cannot change the order of what is around it."""
    return Markup("<bdi>{}</bdi>").format(visible(text))


def percent(share: float) -> str:
    """A share as percent: `<1%` and `>99%` are not rounded to none or all."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def plural(count: int, noun: str) -> str:
    """A number with its noun: "1 key", "2,000 keys"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def duration(value: float) -> str:
    """A duration in its largest unit: 3 min, 2 h."""
    whole = max(0, int(value))
    return next((f"{whole // size:,} {name}" for size, name in _UNITS if whole >= size), "0 s")


def round_up(value: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, … that is not below the value."""
    steps: Iterator[int] = (step * 10**power for power in count() for step in (1, 2, 5))
    return next(step for step in steps if step >= value)


def store_name(url: str) -> str:
    """A short name of a store by its URL: the file of SQLite, the host and database of PostgreSQL."""
    shown = describe_url(url).partition("://")[2]
    return shown.rpartition("/")[2] if url.startswith("sqlite:") else shown


def unix(value: str | int | None) -> float | None:
    """Unix seconds of a timestamp of an order: RFC 3339, or microseconds."""
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value and value / 1_000_000


def minutes(at: float) -> str:
    """A time (Unix seconds) to the minute: of an interval of a chart, or of an hour."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def changed_fields(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """The fields that changed: the name, and the text before and after, empty where the field had or has no value."""
    shown = entry_fields(entry)
    before, after = (shown[side] if isinstance(shown[side], dict) else {} for side in ("before", "after"))
    names = list({**before, **after})[:_MAX_FIELDS]
    return [(in_words(name), _text(before, name), _text(after, name)) for name in names]


def _text(fields: dict[str, Any], name: str) -> str:
    if name not in fields:
        return ""
    return str(fields[name]) if name in _IDENTIFIERS else _plain(fields[name])


def plain_times(text: str) -> str:
    """The text with its times in the form of all pages: 2026-11-23 05:00:00 for 2026-11-23T05:00:00Z."""
    return _RFC3339.sub(r"\1 \2", text)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{in_words(name)} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return "–" if value is None else plain_times(str(value))


ENVIRONMENT = Environment(
    loader=PackageLoader("petstore_server.console", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=visible,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
"""The one environment of all templates: every value is escaped, and an unknown name is an error."""

_TIMES = (duration, plain_times, unix, minutes, format_unix)
_OTHERS = (bdi, percent, round_up, changed_fields, version, describe_url, store_name)
ENVIRONMENT.filters |= {function.__name__: function for function in (*_TIMES, *_OTHERS)} | {"number": "{:,}".format}
ENVIRONMENT.globals |= {
    "console": CONSOLE_PATH,
    "style_version": sha256(static_file("console.css")).hexdigest()[:12],
    "query_link": query_link,
    "ended": ENDED,
    "plans": list(Plan),
    "plan_limits": PLAN_LIMITS,
    "seen_orders": SEEN_ORDERS,
    "without_owner": WITHOUT_OWNER,
    "old_seconds": OLD_SECONDS,
    "link_minutes": LINK_LIFETIME // MINUTE,
    "session_hours": SESSION_LIFETIME // HOUR,
    "strike_minutes": STRIKE_WINDOW // MINUTE,
    "stale_seconds": 5,  # a number that was read longer ago is shown with its age
    "refused_statuses": REFUSED_STATUSES,
    "deprecated": DEPRECATED,
}


@cache
def actions() -> dict[str, str]:
    """The words for the actions of the audit log, in the order of the choices on its page."""
    return ENVIRONMENT.get_template("macros.html").module.actions  # type: ignore[attr-defined, no-any-return]


def compile_templates() -> None:
    """Compile all templates, so that no page has to. On a thread: it takes a tenth of a second."""
    for name in ENVIRONMENT.list_templates():
        ENVIRONMENT.get_template(name)
