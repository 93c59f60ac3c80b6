"""The settings: one table of environment variables, from which they are read, checked and documented."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from petstore_server.settings import values
from petstore_server.settings.values import Network, describe_url

T = TypeVar("T")

# The client's, and an option of `db copy`.
_FOREIGN = {"PETSTORE_API_KEY", "PETSTORE_COPY_TO_URL", "PETSTORE_COPY_TO_URL_FILE"}
_FILE = "_FILE"  # the end of the name of a setting that names the file with a secret
_MAX_SECRET = 16 * 1024  # bytes
# What Kubernetes injects into each pod, for services whose names begin with petstore, as NAME=value.
_KUBERNETES = re.compile(
    r"PETSTORE_(\w+_)?(SERVICE_HOST=|SERVICE_PORT(_\w+)?=|PORT=(tcp|udp|sctp)://|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?=)",
    re.ASCII,
)

_YEAR_SECONDS = 31_536_000
_HOUR_SECONDS = 3600
_MAX_DAYS = 36_500
_MAX_STRIKES = 10_000  # a strike then costs either limiter no more than a small multiple of the first one


class SettingsError(Exception):
    """A setting is unknown or its value is bad; the message is one line that names it."""


class Setting(NamedTuple):
    """How a setting is read and documented. The ValueError of `read`, which makes the value, says what it must be.

    A `secret` one may hold a password, and may also be in a file, which NAME_FILE names.
    """

    name: str
    default: str
    help: str
    read: Callable[[str], Any]
    secret: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The environment variables from which it is read."""
        return (self.name, self.file_name) if self.secret else (self.name,)

    @property
    def file_name(self) -> str:
        """The environment variable that names the file with a secret one."""
        return self.name + _FILE


def _setting(default: str, meaning: str, read: Callable[[str], T], *, secret: bool = False) -> T:
    """A field of Settings with the other fields of its Setting. repr() omits a secret one."""
    metadata = {"default": default, "help": meaning, "read": read, "secret": secret}
    setting: T = field(metadata=metadata, repr=not secret)
    return setting


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, read and checked; `host` is PETSTORE_HOST. Durations are in seconds, dates aware and in UTC."""

    database_url: str = _setting(
        "sqlite:///petstore.db",
        "Where the store is: sqlite:///FILE (four slashes for an absolute path) or postgresql://….",
        values.database_url,
        secret=True,
    )
    redis_url: str | None = _setting(
        "",
        "Where limits are counted: redis://HOST:6379/0, or redis+sentinel://HOST,HOST/NAME/0; empty: in process.",
        values.redis_url,
        secret=True,
    )
    redis_ca_file: str | None = _setting(
        "",
        "File of the authorities, in PEM, that sign the certificate of Redis, and of Sentinels; empty: the system's.",
        values.absolute_path,
    )
    redis_sentinel_password: str | None = _setting(
        "", "Password of the Sentinels; that of Redis is in PETSTORE_REDIS_URL.", values.optional_text, secret=True
    )
    host: str = _setting("127.0.0.1", "Address on which the API listens.", values.host)
    port: int = _setting("8080", "Port of the API; 0 takes a free one.", values.port)
    admin_host: str = _setting("127.0.0.1", "Address on which the admin port listens; keep it private.", values.host)
    admin_port: int = _setting(
        "8081", "Port of /livez, /readyz, /metrics and /console; 0 takes a free one.", values.port
    )
    workers: int = _setting("1", "Server processes; more than one needs PETSTORE_REDIS_URL.", values.integer(1, 256))
    max_connections: int = _setting(
        "0",
        "Client connections of a process; more get 503. 0: as many as the open-file limit allows, at most 10000.",
        values.integer(0, 1_000_000),
    )
    environment: str = _setting(
        "production",
        "production or staging: which keys are valid here, and which `keys create` makes.",
        values.one_of("production", "staging"),
    )
    base_url: str | None = _setting(
        "", "Public address of production, ending in /v1; shown in the contract.", values.base_url
    )
    staging_base_url: str | None = _setting(
        "", "Public address of staging, ending in /v1; shown in the contract.", values.base_url
    )
    contact: str | None = _setting(
        "",
        "Whom partners ask: an e-mail address, or the https:// address of a page; shown in the guide and the contract.",
        values.contact,
    )
    trusted_proxies: tuple[Network, ...] = _setting(
        "",
        "Addresses or networks, separated by commas, of proxies that are trusted to name the client's address.",
        values.networks,
    )
    forwarded_header: str = _setting(
        "X-Forwarded-For",
        "The one header in which those proxies name the client: X-Forwarded-For or Forwarded.",
        values.one_of("x-forwarded-for", "forwarded"),
    )
    ban_strikes: int = _setting("20", "Strikes within ten minutes that ban a key.", values.integer(1, _MAX_STRIKES))
    ban_seconds: int = _setting("120", "Length of a first ban, in seconds.", values.integer(1, _YEAR_SECONDS))
    ban_max_seconds: int = _setting(
        "3600",
        "Longest ban, in seconds; each ban within 24 hours of the last one is twice as long, up to this.",
        values.integer(1, _YEAR_SECONDS),
    )
    ban_grace_seconds: float = _setting(
        "2",
        "Seconds after a first 429 in which further requests are not strikes: they may already have been sent.",
        values.seconds(_YEAR_SECONDS),
    )
    assigned_ids_from: int = _setting(
        "",
        "Placed orders get identifiers from this number on, and no other order can be created under one of them; "
        "empty: placed orders get those after the largest.",
        values.identifier,
    )
    drain_delay_seconds: float = _setting(
        "0",
        "Seconds to keep accepting after SIGTERM while /healthz and /readyz return 503, so that load balancers notice.",
        values.seconds(_HOUR_SECONDS),
    )
    pets_deprecated_at: datetime = _setting("2026-11-01", "When GET /v1/pets/{petId} was deprecated.", values.timestamp)  # noqa: RUF009 - as the others
    pets_sunset: datetime = _setting("2027-12-01", "When GET /v1/pets/{petId} starts to return 410.", values.timestamp)  # noqa: RUF009 - as the others
    usage_hourly_retention_days: int = _setting(
        "90",
        "Days for which the usage history is kept by hour; then the hours of a day are summed.",
        values.integer(0, _MAX_DAYS),
    )
    usage_daily_retention_days: int = _setting(
        "1095",
        "Days for which the usage history is kept by day; if this and the hours are 0, there is no usage history.",
        values.integer(0, _MAX_DAYS),
    )
    log_level: str = _setting(
        "info",
        "debug, info, warning or error; debug logs a line for every request.",
        values.one_of("debug", "info", "warning", "error"),
    )
    access_log: str = _setting(
        "off",
        "off, errors or all: which responses of the API are logged at the level info; errors are those from 400 on.",
        values.one_of("off", "errors", "all"),
    )
    webhook_secret: str | None = _setting(
        "",
        "Text from which the secrets of webhooks are derived; empty: webhooks are off.",
        values.webhook_secret,
        secret=True,
    )
    webhook_networks: tuple[Network, ...] = _setting(
        "",
        "Private networks, separated by commas, to which webhooks may be sent as well, also without TLS.",
        values.networks,
    )
    webhook_proxy: str | None = _setting(
        "",
        "URL of the HTTP proxy through which webhooks are sent; it has to refuse private addresses itself.",
        values.proxy_url,
        secret=True,
    )
    console: bool = _setting("on", "on or off: whether the admin port has the operator console.", values.on_off)
    console_hosts: frozenset[str] = _setting(
        "", "Further host names, separated by commas, under which the admin port may be used.", values.host_names
    )
    console_user_header: str | None = _setting(
        "",
        "The header in which a proxy names the operator whom it has signed in, such as X-Forwarded-Email; empty: links "
        "of `petstore console` only.",
        values.header_name,
    )
    console_proxies: tuple[Network, ...] = _setting(
        "",
        "Addresses or networks, separated by commas, of the proxies from which the console accepts that header.",
        values.networks,
    )
    console_groups_header: str | None = _setting(
        "", "The header in which those proxies give the operator's groups, separated by commas.", values.header_name
    )
    console_roles: tuple[tuple[str, str | None], ...] = _setting(
        "",
        "Which groups have which role (admin, operator or viewer), such as admin:pets-admins,operator:pets-ops,viewer:*"
        " where * is every operator; empty: every operator is a viewer.",
        values.roles,
    )

    @property
    def own_base_url(self) -> str | None:
        """The public address of this service: that of its environment."""
        return self.staging_base_url if self.environment == "staging" else self.base_url


SETTINGS = tuple(Setting(f"PETSTORE_{setting.name.upper()}", **setting.metadata) for setting in fields(Settings))
"""Every setting; `docs/reference.md` is generated from this table."""


def read_settings(environ: Mapping[str, str], given: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from environment variables, and those `given` in their place. Raises SettingsError."""
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environ
    own = {
        name: text
        for name, text in environ.items()
        if name.startswith("PETSTORE_") and not _KUBERNETES.match(f"{name}={text}")
    }
    environ = overriding(own, given or {})
    _refuse_unknown_names(environ.keys(), in_kubernetes)
    settings = Settings(*[_read(setting, environ) for setting in SETTINGS])
    if settings.redis_ca_file is not None and not (settings.redis_url or "").startswith("rediss"):
        raise SettingsError(
            "PETSTORE_REDIS_CA_FILE needs a PETSTORE_REDIS_URL with TLS: rediss:// or rediss+sentinel://."
        )
    if settings.redis_sentinel_password is not None and "+sentinel://" not in (settings.redis_url or ""):
        raise SettingsError("PETSTORE_REDIS_SENTINEL_PASSWORD needs a PETSTORE_REDIS_URL that names Sentinels.")
    if settings.ban_max_seconds < settings.ban_seconds:
        raise SettingsError("PETSTORE_BAN_MAX_SECONDS must not be less than PETSTORE_BAN_SECONDS.")
    if settings.usage_daily_retention_days < settings.usage_hourly_retention_days:
        problem = "PETSTORE_USAGE_DAILY_RETENTION_DAYS must not be less than PETSTORE_USAGE_HOURLY_RETENTION_DAYS."
        raise SettingsError(problem)
    if settings.pets_sunset < settings.pets_deprecated_at:
        raise SettingsError("PETSTORE_PETS_SUNSET must not be before PETSTORE_PETS_DEPRECATED_AT (RFC 9745 §4).")
    _check_sign_in(settings)
    return settings


def _read(setting: Setting, environ: Mapping[str, str]) -> Any:
    """The value of one setting. Raises SettingsError."""
    text = read_secret(environ, setting.name) if setting.secret else environ.get(setting.name)
    text = setting.default if text is None else text
    try:
        if not text.startswith(values.SQLITE):  # the engine reports the name of a file
            text.encode()
        return setting.read(text)
    except ValueError as error:
        problem = "must be text in UTF-8" if isinstance(error, UnicodeError) else error
        raise SettingsError(f"{setting.name} {problem}; it is {_shown(setting, environ)}.") from None


def read_secret(environ: Mapping[str, str], name: str) -> str | None:
    """The text of a setting that may hold a secret: its own, or that of the file which NAME_FILE names; or None.

    The line end behind the text of a file is dropped. An empty setting counts as not set: an image may have a default.
    Raises SettingsError, which has no part of the text.
    """
    if name + _FILE not in environ:
        return environ.get(name)
    file, setting = environ[name + _FILE], name + _FILE
    if environ.get(name):
        raise SettingsError(f"{name} and {setting} are both set; remove one of them.")
    if not file.startswith("/"):  # it may be the secret itself
        raise SettingsError(f"{setting} must be the absolute path of a file.")
    text = _read_file(setting, file).removesuffix("\n").removesuffix("\r")
    if not text:
        raise SettingsError(f"{setting} names {file}, which is empty.")
    return text


def _read_file(setting: str, file: str) -> str:
    """The text of the file that a setting names. Raises SettingsError, which has no part of it."""
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(_MAX_SECRET + 1)
    except OSError as error:
        raise SettingsError(f"{setting} names {file}, which cannot be read: {error.strerror}.") from None
    if len(content) > _MAX_SECRET:
        raise SettingsError(f"{setting} names {file}, which has more than {_MAX_SECRET // 1024} KiB.")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise SettingsError(f"{setting} names {file}, which is not text in UTF-8.") from None
    if "\0" in text:  # as in UTF-16, which no variable can hold
        raise SettingsError(f"{setting} names {file}, which holds the character U+0000; write it in UTF-8.")
    return text


def overriding(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The environment with these settings, in place of its own and of those in files."""
    files = {name + _FILE for name in given}
    return {name: text for name, text in environ.items() if name not in files} | {**given}


def _shown(setting: Setting, environ: Mapping[str, str]) -> str:
    """What an error shows of a value: nothing of one that may hold a password, except for the parts of a URL."""
    if setting.name + _FILE in environ and setting.secret:
        return f"the text of {environ[setting.name + _FILE]}"
    text = environ.get(setting.name, setting.default)
    if not setting.name.endswith("_URL"):
        return "not shown" if setting.secret else repr(text)
    return describe_url(text) if "://" in text else "not a URL" if text else "empty"


def _check_sign_in(settings: Settings) -> None:
    """Reject settings of the console's sign-in by a proxy that only work together."""
    user, groups = settings.console_user_header, settings.console_groups_header
    named = [group for _, group in settings.console_roles if group is not None]
    if user is None:
        for name in ("console_proxies", "console_groups_header", "console_roles"):
            if getattr(settings, name):
                raise SettingsError(f"PETSTORE_{name.upper()} needs PETSTORE_CONSOLE_USER_HEADER, which is not set.")
    elif not settings.console_proxies:
        raise SettingsError("PETSTORE_CONSOLE_USER_HEADER needs PETSTORE_CONSOLE_PROXIES: the addresses of the proxy.")
    elif user == groups:
        raise SettingsError("PETSTORE_CONSOLE_USER_HEADER and PETSTORE_CONSOLE_GROUPS_HEADER must differ.")
    elif named and groups is None:
        problem = f"PETSTORE_CONSOLE_ROLES names the group {named[0]}, which needs PETSTORE_CONSOLE_GROUPS_HEADER."
        raise SettingsError(problem)


def _refuse_unknown_names(names: Iterable[str], in_kubernetes: bool) -> None:
    """Reject unknown names: a typo in PETSTORE_DATABASE_URL must not serve an empty store."""
    known = {name for setting in SETTINGS for name in setting.names}
    for name in sorted(set(names) - known - _FOREIGN):
        import difflib  # only for this

        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "docs/reference.md lists them all."
        if in_kubernetes:
            hint += " If Kubernetes injected it for a service, set enableServiceLinks: false in the pod."
        raise SettingsError(f"{name} is not a setting of this service; {hint}")
