"""What Client and AsyncClient have in common: everything except I/O."""

import os
import warnings
from dataclasses import replace
from datetime import datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Generic

import httpx2

from petstore_client._admission import Session
from petstore_client._effects import Send
from petstore_client._gate import gate_for
from petstore_client._http import Target, read_target
from petstore_client._limits import RateLimit
from petstore_client._operations import Listed
from petstore_client._options import HttpT, Options, TransportT
from petstore_client._retry import RetryBudget
from petstore_client._types import Order


class BaseClient(Generic[HttpT, TransportT]):
    """State and properties of both clients. Raises ConfigurationError."""

    _http: HttpT

    def _configure(self, options: Options[HttpT, TransportT]) -> None:
        target = read_target(options.base_url, options.api_key, os.environ)
        self._options = replace(options, base_url=target.base_url, api_key=None)
        self._session = Session(
            target,
            self._options,
            gate_for(target.base_url, target.key.text, options.clock),
            RetryBudget(options.retry_budget),
        )
        self._listed: Listed | None = None

    @property
    def rate_limit(self) -> RateLimit | None:
        """The limits as of the last response that described them; None before the first."""
        return self._session.rate_limit

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._session.target.base_url}>"

    def __reduce__(self) -> str:
        raise TypeError("A client cannot be copied or pickled; make one in the process that uses it.")

    def _known_list(self) -> Listed | None:
        """The last list, for a conditional request."""
        return self._listed if self._options.conditional else None

    def _keep(self, listed: Listed) -> list[Order]:
        """Keep a list for the next request, and return a copy, which the caller may change."""
        if self._options.conditional:
            self._listed = listed if listed.etag else None
        return list(listed.orders)

    def _http_options(self) -> dict[str, Any]:
        """Arguments of the HTTP client: it follows no redirects and keeps no cookies."""
        return {
            "transport": self._options.transport,
            "timeout": self._options.timeout,
            "follow_redirects": False,
            "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        }


def build_request(http: httpx2.Client | httpx2.AsyncClient, effect: Send, target: Target) -> httpx2.Request:
    """The request to send, with the key."""
    request = http.build_request(effect.method, effect.url, headers=effect.headers)
    target.authorize(request)
    return request


def warn_of_sunset(sunset: datetime | None, stacklevel: int) -> None:
    """Warn the caller of `get_pet`."""
    until = f"works until {sunset.date().isoformat()}" if sunset else "will end; the server did not say when"
    warnings.warn(f"get_pet is deprecated: GET /pets/{{petId}} {until}.", DeprecationWarning, stacklevel + 1)
