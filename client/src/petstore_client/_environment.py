"""The proxy and TLS settings of the environment, which httpx2 reads when it makes a client."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

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
    except (ImportError, ValueError, httpx2.InvalidURL) as error:  # whose text can contain a part of the password
        hint = "is not a valid proxy; it must look like http://HOST:PORT."
        if isinstance(error, ImportError):
            hint = "is a SOCKS proxy, for which the package socksio is missing: pip install 'httpx2[socks]'."
        raise ConfigurationError(f"{proxy_variables()} {hint}") from None


def proxy_variables() -> str:
    """The variables that set a proxy, for messages; "" if there are none."""
    return " or ".join(_names(_PROXIES))


def _names(wanted: tuple[str, ...]) -> list[str]:
    """The variables that are set, in either case."""
    return [name for name, value in os.environ.items() if value and name.lower() in wanted]
