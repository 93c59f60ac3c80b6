"""The settings: one table of names, defaults and help, from which they are read and documented."""

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SettingsError(Exception):
    """A setting is unknown or its value is bad; the message is one line that names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, read and checked. Durations are in seconds; dates are aware and in UTC."""

    database_url: str
    redis_url: str | None
    host: str
    port: int
    admin_host: str
    admin_port: int
    workers: int
    max_connections: int
    environment: str
    base_url: str | None
    staging_base_url: str | None
    trusted_proxies: tuple[Network, ...]
    forwarded_header: str
    ban_strikes: int
    ban_seconds: int
    ban_max_seconds: int
    ban_grace_seconds: float
    drain_delay_seconds: float
    pets_deprecated_at: datetime
    pets_sunset: datetime
    usage_hours_days: int
    usage_days_days: int
    log_level: str
    access_log: str
    console: bool
    console_hosts: frozenset[str]


class Setting(NamedTuple):
    """One row of the table. `read` turns text into the value; its ValueError says what the value must be.

    `show` makes an invalid value printable: an address may hold a password, so no part of its text is copied.
    """

    name: str
    default: str
    help: str
    read: Callable[[str], Any]
    show: Callable[[str], str] = repr


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables. Raises SettingsError."""
    _refuse_unknown_names(environ)
    values = {}
    for setting in SETTINGS:
        text = environ.get(setting.name, setting.default)
        try:
            values[_field(setting)] = setting.read(text)
        except ValueError as error:
            raise SettingsError(f"{setting.name} {error}; it is {setting.show(text)}.") from None
    settings = Settings(**values)
    if settings.ban_max_seconds < settings.ban_seconds:
        raise SettingsError("PETSTORE_BAN_MAX_SECONDS must not be less than PETSTORE_BAN_SECONDS.")
    if settings.usage_days_days < settings.usage_hours_days:
        raise SettingsError("PETSTORE_USAGE_DAYS_DAYS must not be less than PETSTORE_USAGE_HOURS_DAYS.")
    if settings.pets_sunset < settings.pets_deprecated_at:
        raise SettingsError("PETSTORE_PETS_SUNSET must not be before PETSTORE_PETS_DEPRECATED_AT (RFC 9745 §4).")
    return settings


def _field(setting: Setting) -> str:
    return setting.name.removeprefix("PETSTORE_").lower()


def _refuse_unknown_names(environ: Mapping[str, str]) -> None:
    """Reject unknown names: a typo in PETSTORE_DATABASE_URL must not serve an empty store."""
    known = {setting.name for setting in SETTINGS}
    for name in sorted(environ):
        if not name.startswith("PETSTORE_") or name in known or name in _FOREIGN or _KUBERNETES.match(name):
            continue
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "`petstore serve --help` lists them all."
        raise SettingsError(f"{name} is not a setting of this service; {hint}")


_FOREIGN = {"PETSTORE_API_KEY"}  # the client's
_KUBERNETES = re.compile(r"PETSTORE_(SERVICE_|PORT_)")  # injected into every pod next to a service named petstore


def _text(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value.lower()

    return read


def _whole(lowest: int, highest: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"\d{1,12}", value, re.ASCII) or not lowest <= int(value) <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}")
        return int(value)

    return read


def _port(value: str) -> int:
    if value.startswith("tcp://"):
        raise ValueError(
            "was set by Kubernetes for a service named petstore; rename the service or set enableServiceLinks: false"
        )
    return _whole(0, 65_535)(value)


def _seconds(highest: int) -> Callable[[str], float]:
    def read(value: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII) or float(value) > highest:
            raise ValueError(f"must be a number of seconds from 0 to {highest}")
        return float(value)

    return read


def _database_url(value: str) -> str:
    if value.startswith("sqlite:///") and len(value) > len("sqlite:///"):
        return value
    if not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be sqlite:///FILE or postgresql://USER@HOST/NAME")
    if value.count("@") > 1:  # libpq ends the password at the first one
        raise ValueError(_NOT_PARSED)
    return _parsed_url(value)


def _redis_url(value: str) -> str | None:
    if not value:
        return None
    if not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("must be redis://HOST:PORT/0, rediss:// for TLS, or empty")
    return _parsed_url(value)


def _parsed_url(value: str) -> str:
    if describe_url(value) == UNPARSABLE_URL:
        raise ValueError(_NOT_PARSED)
    return value


UNPARSABLE_URL = "a URL that cannot be parsed"
"""Shown in place of a URL whose parts are not certain, because any part of it may be a password."""

_NOT_PARSED = "must be a valid URL; percent-encode special characters in its user name and password"

_URL = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.-]*)://
    (?:[^/?#]*@)?                                      # user name and password, up to the last @ before the path
    (?P<host>(?:\[[0-9A-Fa-f:.]+\]|[\w.%-]*)(?::\d{1,5})?(?:,[\w.:%-]*)*)
    (?P<path>/[\w./%+~-]*)?
    (?:[?\#][^@]*)?                                    # an @ here may belong to a password with a ? in it
    """,
    re.ASCII | re.VERBOSE,
)


def describe_url(url: str) -> str:
    """Describe a database or Redis URL without its secrets: scheme, host, port, and database or path only.

    The result is built from parsed parts. A URL that cannot be parsed with certainty, for example because its password
    holds an unencoded `/`, is described by a fixed text that has no part of it.
    """
    if url.startswith("sqlite:///"):
        return url
    parts = _URL.fullmatch(url)
    return f"{parts['scheme']}://{parts['host']}{parts['path'] or ''}" if parts else UNPARSABLE_URL


def _base_url(value: str) -> str | None:
    if not value:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user name or password: the contract shows it to everyone")
    if not parts.path.rstrip("/").endswith("/v1"):
        raise ValueError("must end with /v1")
    return value.rstrip("/")


def _host_names(value: str) -> frozenset[str]:
    names = [part.strip().lower().rstrip(".") for part in value.split(",") if part.strip()]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError("must be host names or addresses without ports, separated by commas")
    return frozenset(name.strip("[]") for name in names)


_HOST_NAME = re.compile(r"[a-z0-9._-]{1,253}|\[?[0-9a-f:.]+\]?", re.ASCII)


def _on_off(value: str) -> bool:
    return _one_of("on", "off")(value) == "on"


def _networks(value: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in value.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"must be addresses or networks separated by commas ({error})") from None


def _timestamp(value: str) -> datetime:
    try:
        timestamp = datetime.fromisoformat(value)
        timestamp = timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date (2027-12-01) or an RFC 3339 date-time") from None
    if timestamp < _EPOCH:  # RFC 9745 gives it in Unix seconds
        raise ValueError("must not be before 1970-01-01")
    return timestamp


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_SECONDS = 31_536_000
_HOUR_SECONDS = 3600
_MOST_DAYS = 36_500
_MOST_STRIKES = 10_000  # a strike then costs either limiter no more than a small multiple of the first one


SETTINGS = (
    Setting(
        "PETSTORE_DATABASE_URL",
        "sqlite:///petstore.db",
        "Where the store is: sqlite:///FILE (four slashes for an absolute path) or postgresql://….",
        _database_url,
        describe_url,
    ),
    Setting(
        "PETSTORE_REDIS_URL",
        "",
        "Where limits are counted, such as redis://host:6379/0; empty: in process.",
        _redis_url,
        describe_url,
    ),
    Setting("PETSTORE_HOST", "127.0.0.1", "Address on which the API listens.", _text),
    Setting("PETSTORE_PORT", "8080", "Port of the API; 0 takes a free one.", _port),
    Setting("PETSTORE_ADMIN_HOST", "127.0.0.1", "Address on which the admin port listens; keep it private.", _text),
    Setting(
        "PETSTORE_ADMIN_PORT", "8081", "Port of /livez, /readyz, /metrics and /console; 0 takes a free one.", _port
    ),
    Setting("PETSTORE_WORKERS", "1", "Server processes; more than one needs PETSTORE_REDIS_URL.", _whole(1, 256)),
    Setting(
        "PETSTORE_MAX_CONNECTIONS",
        "0",
        "Client connections of a process; more get 503. 0: as many as the open-file limit allows, at most 10000.",
        _whole(0, 1_000_000),
    ),
    Setting(
        "PETSTORE_ENVIRONMENT",
        "production",
        "production or staging: which keys are valid here, and which `keys create` makes.",
        _one_of("production", "staging"),
    ),
    Setting(
        "PETSTORE_BASE_URL",
        "",
        "Public address of production, ending in /v1; shown in the contract.",
        _base_url,
        describe_url,
    ),
    Setting(
        "PETSTORE_STAGING_BASE_URL",
        "",
        "Public address of staging, ending in /v1; shown in the contract.",
        _base_url,
        describe_url,
    ),
    Setting(
        "PETSTORE_TRUSTED_PROXIES",
        "",
        "Addresses or networks, separated by commas, of proxies that are trusted to name the client's address.",
        _networks,
    ),
    Setting(
        "PETSTORE_FORWARDED_HEADER",
        "X-Forwarded-For",
        "The one header in which those proxies name the client: X-Forwarded-For or Forwarded.",
        _one_of("x-forwarded-for", "forwarded"),
    ),
    Setting("PETSTORE_BAN_STRIKES", "20", "Strikes within ten minutes that ban a key.", _whole(1, _MOST_STRIKES)),
    Setting("PETSTORE_BAN_SECONDS", "120", "Length of a first ban, in seconds.", _whole(1, _YEAR_SECONDS)),
    Setting(
        "PETSTORE_BAN_MAX_SECONDS",
        "3600",
        "Longest ban, in seconds; each ban within 24 hours of the last one is twice as long, up to this.",
        _whole(1, _YEAR_SECONDS),
    ),
    Setting(
        "PETSTORE_BAN_GRACE_SECONDS",
        "2",
        "Seconds after a first 429 in which further requests are not strikes: they may already have been sent.",
        _seconds(_YEAR_SECONDS),
    ),
    Setting(
        "PETSTORE_DRAIN_DELAY_SECONDS",
        "0",
        "Seconds to keep accepting after SIGTERM while /readyz returns 503, so that load balancers notice.",
        _seconds(_HOUR_SECONDS),
    ),
    Setting("PETSTORE_PETS_DEPRECATED_AT", "2026-11-01", "When GET /v1/pets/{petId} was deprecated.", _timestamp),
    Setting("PETSTORE_PETS_SUNSET", "2027-12-01", "When GET /v1/pets/{petId} starts to return 410.", _timestamp),
    Setting(
        "PETSTORE_USAGE_HOURS_DAYS",
        "90",
        "Days for which the usage history is kept by hour; then the hours of a day are summed.",
        _whole(0, _MOST_DAYS),
    ),
    Setting(
        "PETSTORE_USAGE_DAYS_DAYS",
        "1095",
        "Days for which the usage history is kept by day; if this and the hours are 0, there is no usage history.",
        _whole(0, _MOST_DAYS),
    ),
    Setting(
        "PETSTORE_LOG_LEVEL",
        "info",
        "debug, info, warning or error; debug logs a line for every request.",
        _one_of("debug", "info", "warning", "error"),
    ),
    Setting(
        "PETSTORE_ACCESS_LOG",
        "off",
        "off, errors or all: which responses of the API are logged at the level info; errors are those from 400 on.",
        _one_of("off", "errors", "all"),
    ),
    Setting("PETSTORE_CONSOLE", "on", "on or off: whether the admin port has the operator console.", _on_off),
    Setting(
        "PETSTORE_CONSOLE_HOSTS",
        "",
        "Further host names, separated by commas, under which the console may be opened.",
        _host_names,
    ),
)
"""Every setting; `docs/operating.md` is checked against this table."""
