"""Values of settings: functions from a text to a value. Their ValueError says what the value must be."""

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SQLITE = "sqlite:///"
HOLDS_PASSWORD = re.compile(r"//[^@]*:[^@]*@|[?&][^=&]*(?:password|secret|scram_|%)[^=&]*=")
"""Found in a postgresql:// URL with a secret, or with an escape in the name of a parameter, which libpq decodes."""

UNPARSABLE_URL = "a URL that cannot be parsed"  # shown instead of the URL, of which any part may be a password

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOST_NAME = re.compile(r"[a-z0-9._-]{1,253}|\[?[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*\]?", re.ASCII)
_CONTACT = re.compile(
    r"[\w.+-]+@[a-z0-9.-]+\.[a-z]+|https://[a-z0-9.-]+(?::\d+)?(?:/[\w./%~?=&-]*)?", re.ASCII | re.IGNORECASE
)
_BASE_URL = re.compile(r"https?://[^\s\"<>?#\\^`{|}]+", re.IGNORECASE)  # the contract and the guide show it as it is
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_BROWSERS_HEADERS = re.compile(
    r"(accept|content|if|sec)-.+|accept|authorization|cache-control|connection|cookie|host|origin|range|referer|"
    r"transfer-encoding|upgrade|user-agent",
    re.IGNORECASE,
)
_MIN_SECRET = 32  # bytes
_ROLES = ("admin", "operator", "viewer")
_NOT_PARSED = "must be a valid URL; percent-encode special characters in its user name and password"
_NOT_DECODABLE = re.compile(r"\s|%(?![0-9A-Fa-f]{2})|%00")
_URL = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.-]*)://
    (?:[^/?#]*@)?                                      # user name and password, up to the last @ before the path
    (?P<host>(?:\[[0-9A-Fa-f:.]+\]|[\w.%-]*)(?::\d{1,5})?(?:,(?:\[[0-9A-Fa-f:.]+\](?::\d{1,5})?|[\w.:%-]*))*)
    (?P<path>/[\w./%+~-]*)?
    (?:[?\#][^@]*)?                                    # an @ here may belong to a password with a ? in it
    """,
    re.ASCII | re.VERBOSE,
)

# What the driver does not misread: it takes the database 0 for a path that is not a number, a default for the port 0,
# and the first of several values. Without a host it takes this one, as meant.
_REDIS = re.compile(
    r"""(?!.*[?&](\w+)=.*&\1=) (?!.*/\d+\?.*\bdb=)
    (?:rediss?://(?:[^/?#]*@)?(?:\[[^]]+\]|[^:/?#,]*)(?::[1-9]\d{0,4})?(?:/\d{0,5})?
    |rediss?\+sentinel://(?:[^/?#]*@)?(?:\[[^]]+\]|[^:/?#,]+)(?::[1-9]\d{0,4})?(?:,(?:\[[^]]+\]|[^:/?#,]+)(?::[1-9]\d{0,4})?)*
        /[\w.%-]+(?:/\d{0,5})?
    |unix://(?:[^/?#]*@)?/[^?#]+)
    (?:[?&](?:db=\d{1,5}|(?!db=|decode_responses=)\w+=[^&#]*))*""",
    re.ASCII | re.VERBOSE,
)


_REDIS_SCHEMES = ("redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "unix://")


_NOT_OF_HOST = re.compile(r"[][\s/?#@\\*]")  # the C library would take * for the loopback interface


def host(value: str) -> str:
    if not value or _NOT_OF_HOST.search(value) or not (parse_address(value) if ":" in value else _is_host(value)):
        raise ValueError("must be an address or a host name, without brackets or a port")
    return value


def parse_address(text: str) -> Address | None:
    """The address in a text, None if it has none. An IPv4-mapped IPv6 address is an IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


def _is_host(name: str) -> bool:
    """Whether a name can be looked up: Python encodes it first."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def one_of(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value.lower()

    return read


def integer(lowest: int, highest: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"\d{1,12}", value, re.ASCII) or not lowest <= int(value) <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}")
        return int(value)

    read.__doc__ = f"From {lowest:,} to {highest:,}."  # the documentation of the setting shows it
    return read


def identifier(value: str) -> int:
    """From 2 to 9,007,199,254,740,991; or empty."""
    if value and not (re.fullmatch(r"[1-9]\d{0,15}", value, re.ASCII) and 2 <= int(value) < 2**53):
        raise ValueError(f"must be empty, or a whole number from 2 to {2**53 - 1}")
    return int(value or 1)


port = integer(0, 65_535)


def seconds(highest: int) -> Callable[[str], float]:
    def read(value: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII) or float(value) > highest:
            raise ValueError(f"must be a number of seconds from 0 to {highest}")
        return float(value)

    read.__doc__ = f"From 0 to {highest:,}, also with a fraction."
    return read


def database_url(value: str) -> str:
    if value.startswith(SQLITE) and len(value) > len(SQLITE):
        if "?" in value:
            raise ValueError("must not have a ?: a SQLite file has no user, password or parameters")
        return value
    if not value.startswith(("postgresql://", "postgres://")):
        problem = "must be sqlite:///FILE, such as sqlite:///orders.db for a file in the current directory, or "
        raise ValueError(problem + "postgresql://USER@HOST/NAME")
    # libpq ends the password at the first @, and decodes every %.
    if value.count("@") > 1 or _NOT_DECODABLE.search(value):
        raise ValueError(_NOT_PARSED)
    return _parsed_url(value)


def redis_url(value: str) -> str | None:
    if not value:
        return None
    if not value.startswith(_REDIS_SCHEMES) or not _REDIS.fullmatch(_parsed_url(value)):
        problem = (
            "must be redis://HOST:PORT/0 with one host and the number of a database, redis+sentinel://HOST,HOST/NAME/0 "
            "with Sentinels and the name of a primary, rediss in place of redis for TLS, unix://FILE for a socket, or "
            "empty; "
        )
        raise ValueError(problem + "docs/reference.md lists its parameters, each of them once")
    return value


def absolute_path(value: str) -> str | None:
    if value and not value.startswith("/"):
        raise ValueError("must be the absolute path of a file")
    return value or None


def optional_text(value: str) -> str | None:
    return value or None


def webhook_secret(value: str) -> str | None:
    """Text of at least 32 bytes; or empty."""
    if value and len(value.encode()) < _MIN_SECRET:
        remedy = "such as the output of: openssl rand -hex 32"
        raise ValueError(f"must be empty, or have at least {_MIN_SECRET} bytes, {remedy}")
    return value or None


def proxy_url(value: str) -> str | None:
    if value and not re.match(r"https?://", value):
        raise ValueError("must be empty, or the http:// or https:// URL of a proxy")
    if not value.isascii():
        raise ValueError(_NOT_PARSED)
    return _with_server(_parsed_url(value)) if value else None


def _with_server(url: str) -> str:
    """Return a URL that names the one server to which a connection is made. Raises ValueError."""
    parts = urlsplit(url)
    if not parts.hostname or re.search("[,%]", parts.hostname):
        raise ValueError("must name one host")
    with suppress(ValueError):  # larger than 65535
        if parts.port != 0:
            return url
    raise ValueError("must have a port from 1 to 65535, or none")


def _parsed_url(value: str) -> str:
    parts = _URL.fullmatch(value)
    if parts is None:
        raise ValueError(_NOT_PARSED)
    names = [host_and_port.split(":")[0] for host_and_port in parts["host"].split(",")]
    if not all("%" in name or _is_host(name) for name in names):  # a % is in the directory of a socket
        raise ValueError("must have a valid host name")
    return value


def describe_url(url: str) -> str:
    """Describe a database or Redis URL without its secrets: scheme, host, port, and database or path only.

    A URL that cannot be parsed with certainty, such as one whose password has a `/`, gets a text with no part of it.
    """
    if url.startswith(SQLITE):
        return UNPARSABLE_URL if "?" in url else url
    parts = _URL.fullmatch(url)
    return f"{parts['scheme']}://{parts['host']}{parts['path'] or ''}" if parts else UNPARSABLE_URL


def base_url(value: str) -> str | None:
    if not value:
        return None
    try:
        parts = urlsplit(value)
        valid = _BASE_URL.fullmatch(value) and parts.hostname and parts.port != 0  # reading the port checks its range
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("must be an http:// or https:// URL without ? and #, such as https://api.example.com/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user name or password: the contract shows it to everyone")
    if not parts.path.rstrip("/").endswith("/v1"):
        raise ValueError("must end with /v1")
    return value.rstrip("/")


def contact(value: str) -> str | None:
    if value and not _CONTACT.fullmatch(value):
        raise ValueError("must be an e-mail address or an https:// URL")
    return value or None


def host_names(value: str) -> frozenset[str]:
    names = [part.strip().lower().rstrip(".") for part in value.split(",") if part.strip()]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError("must be host names or addresses without ports, separated by commas")
    return frozenset(name.strip("[]") for name in names)


def header_name(value: str) -> str | None:
    if value and (not _HEADER_NAME.fullmatch(value) or _BROWSERS_HEADERS.fullmatch(value)):
        raise ValueError("must be the name of a header that only the proxy sets, such as X-Forwarded-Email")
    return value.lower() or None


def roles(value: str) -> tuple[tuple[str, str | None], ...]:
    pairs = []
    for part in value.split(","):
        role, _, group = map(str.strip, part.partition(":"))
        if part.strip() and (role not in _ROLES or not group):
            problem = f"must be pairs of a role ({', '.join(_ROLES)}) and a group, such as admin:pets-admins,viewer:*"
            raise ValueError(problem)
        if role:
            pairs.append((role, None if group == "*" else group))  # None for every operator
    return tuple(pairs)


def on_off(value: str) -> bool:
    return one_of("on", "off")(value) == "on"


def networks(value: str) -> tuple[Network, ...]:
    try:
        return tuple(_network(part.strip()) for part in value.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"must be addresses or networks separated by commas ({error})") from None


def _network(text: str) -> Network:
    """One of IPv4-mapped IPv6 addresses is one of IPv4: so are the addresses of clients."""
    network = ipaddress.ip_network(text)
    address, bits = network.network_address, network.prefixlen - 96
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) and bits >= 0 else None
    return ipaddress.IPv4Network((mapped, bits)) if mapped else network


def timestamp(value: str) -> datetime:
    try:
        read = datetime.fromisoformat(value)
        read = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date (2027-12-01) or an RFC 3339 date-time") from None
    if read < _EPOCH:  # RFC 9745 gives it in Unix seconds
        raise ValueError("must not be before 1970-01-01")
    return read
