"""The client of the Redis that a URL names: of one server, or of the primary that Sentinels name (D12)."""

import os
import re
import ssl
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

SENTINEL_SECONDS = 0.3
"""For which one Sentinel may take: then another one is asked, within the time for connecting."""

SENTINEL_PORT = 26379
_SENTINELS = re.compile(r"(?P<scheme>rediss?)\+sentinel://(?P<user>.*@)?(?P<hosts>[^/?@]+)/(?P<name>[^/?]+)(?P<end>.*)")
URL_FAULTS = (ValueError, TypeError, AttributeError, LookupError)  # which the driver raises for values of the URL
_REFUSALS = (AuthenticationError, NoPermissionError, *URL_FAULTS)
_NO_DATABASE = "DB index is out of range"
_WRITE_FAULTS = {
    "used memory > 'maxmemory'": "its memory is used up: raise maxmemory",
    "read only replica": "it is a read-only replica: use the primary",
    "The previous master is now a slave": "it is a read-only replica: use the primary",
    "stop-writes-on-bgsave-error": "it cannot save its data to the disk: its log has the cause",
}
"""Parts of the texts with which Redis and Valkey, in any version, refuse to run a script that writes."""


class RedisAddress(NamedTuple):
    """The URL of Redis, the file of the authorities for its certificate, and the password of the Sentinels.

    Without a file, they are the system's.
    """

    url: str
    ca_file: str | None = None
    sentinel_password: str | None = None


class RedisClient(NamedTuple):
    """A client, and what asks the Sentinels for its primary, if they do."""

    redis: Redis
    sentinel: Sentinel | None = None
    name: str = ""

    async def primary(self) -> tuple[str, int] | None:
        """The address of the primary now, as the Sentinels say; None without them, or if none of them says one."""
        if self.sentinel is None:
            return None
        try:
            host, port = await self.sentinel.discover_master(self.name)
        except (RedisError, OSError):  # what needs the primary reports that
            return None
        return str(host), int(port)

    async def refusal(self) -> Exception | None:
        """What a Sentinel refuses this process for, if one does: `primary` does not say it."""
        for each in self.sentinel.sentinels if self.sentinel is not None else ():
            try:
                await each.ping()
            except (RedisError, OSError) as error:
                if is_refusal(error):
                    return error
        return None

    async def close(self) -> None:
        """Close all connections."""
        await self.redis.aclose()
        if self.sentinel is not None:
            await self.sentinel.aclose()


def make_client(address: RedisAddress, connect_seconds: float) -> RedisClient:
    """One connection, without retries by the library: a script that counts must not be sent twice.

    Raises one of URL_FAULTS for a value of the URL, and TypeError for an unknown parameter when the client connects.
    """
    own: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": connect_seconds,
        "socket_timeout": None,  # each call has its own limit, and this one ends a call whose response has arrived
        "client_name": "petstore",
        "protocol": 2,
    }
    tls: dict[str, Any] = {} if address.ca_file is None else {"ssl_ca_certs": address.ca_file}
    parts = _SENTINELS.fullmatch(address.url)
    if parts is None:
        return RedisClient(Redis.from_url(address.url, **own, **tls))
    given: dict[str, Any] = {**parse_url(f"{parts['scheme']}://{parts['user'] or ''}primary{parts['end']}")}
    if parts["scheme"] == "rediss":
        tls["ssl"] = True
        tls |= {name: value for name, value in given.items() if name.startswith("ssl_")}
    given = {name: value for name, value in given.items() if name not in ("host", "connection_class")}
    asked = {**own, "socket_connect_timeout": SENTINEL_SECONDS, "socket_timeout": SENTINEL_SECONDS, **tls}
    sentinels = [_host_and_port(text) for text in parts["hosts"].split(",")]
    sentinel = Sentinel(sentinels, sentinel_kwargs={**asked, "password": address.sentinel_password})  # type: ignore[no-untyped-call]
    name = unquote(parts["name"])
    return RedisClient(sentinel.master_for(name, **{**own, **given, **tls}), sentinel, name)


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or SENTINEL_PORT


def is_refusal(error: Exception) -> bool:
    """Whether waiting cannot end the fault."""
    untrusted = isinstance(_cause(error), ssl.SSLCertVerificationError)
    return untrusted or isinstance(error, _REFUSALS) or _NO_DATABASE in str(error)


def reason_of(error: Exception) -> str:
    """The fault, without a full stop. The driver's text of a failed connection repeats its address twice."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no response in time"
    cause, text = _cause(error), str(error) or type(error).__name__
    if isinstance(cause, ssl.SSLCertVerificationError):  # its number would be that of a missing permission
        return f"its certificate is not trusted: {cause.verify_message.rstrip('.')}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {getattr(cause, 'reason', None) or cause.args[-1]}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)  # below 0: a name was not resolved
    if isinstance(error, MasterNotFoundError):
        return "no Sentinel that responds names a primary"
    if unknown := re.search(r"unexpected keyword argument ('\w+')", text):  # Python 3.13 adds a suggestion
        return f"its URL has an unknown parameter, {unknown[1]}"
    if isinstance(error, URL_FAULTS) and not isinstance(error, ValueError):
        return f"its URL has a parameter with a value that the driver cannot use: {text}"
    known = [plain for part, plain in _WRITE_FAULTS.items() if part in text]
    return known[0] if known else text.rstrip(".")


def _cause(error: Exception) -> BaseException | None:
    return error.__cause__ or error.__context__
