"""The proxy and TLS settings of the environment, which httpx2 reads when it makes a client."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from petstore_client._parsing import read_url
from petstore_client.errors import ConfigurationError

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_TLS = ("ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")


@contextmanager
def checked_environment() -> Iterator[None]:
    """Raise ConfigurationError if httpx2 cannot use the settings. Its message never contains a proxy's password."""
    try:
        yield
    except OSError as error:
        values = ", ".join(f"{name}={os.environ[name]}" for name in _names(_TLS))
        raise ConfigurationError(
            f"The TLS settings of the environment ({values}) cannot be used: {error.strerror or error}."
        ) from error
    except ImportError:
        raise ConfigurationError(
            f"{_proxy_names()} names a SOCKS proxy, for which the package socksio is missing: "
            "pip install 'httpx2[socks]'."
        ) from None
    except (ValueError, httpx2.InvalidURL):  # whose text can contain a part of the password
        raise ConfigurationError(
            f"{_proxy_names()} does not name a valid proxy; it must look like http://HOST:PORT."
        ) from None


@checked_environment()
def proxy_for(url: str) -> str:
    """The proxy through which httpx2 sends to this URL, without its user and password, for messages; "" if none.

    NO_PROXY can have networks, ports and patterns, which only httpx2 interprets. Raises ConfigurationError.
    """
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return ""
    address = read_url(proxy if "://" in proxy else f"http://{proxy}")
    exception = ", unless NO_PROXY excludes it," if proxies.get("no") else ""
    return f"{address.scheme}://{address.netloc.decode('ascii')}{exception}"


def _proxy_names() -> str:
    return " or ".join(_names(_PROXIES)) or "The proxy setting of the system"


def _names(wanted: tuple[str, ...]) -> list[str]:
    """The variables that are set, in either case."""
    return [name for name, value in os.environ.items() if value and name.lower() in wanted]
