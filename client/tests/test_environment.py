"""Proxies and certificates that environment variables name."""

import os
from typing import Any

import httpx2
import pytest

from petstore_client import APIConnectionError, AsyncClient, Client, ConfigurationError

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower() in VARIABLES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("SSL_CERT_DIR", "/")  # with certificates of its own, Python reads SSLKEYLOGFILE as well


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ALL_PROXY", "socks5://user:secret@127.0.0.1:1", "socksio"),
        ("ALL_PROXY", "foo://user:secret@127.0.0.1:1", "http://HOST:PORT"),
        ("http_proxy", "http://user:secret@[::1", "http://HOST:PORT"),
        ("https_proxy", "http://user:secret/1@127.0.0.1:1", "http://HOST:PORT"),
        ("http_proxy", "http://user:secret\udcff@127.0.0.1:1", "http://HOST:PORT"),
        ("The proxy of the system's settings", "socks4://user:secret@127.0.0.1:1", "http://HOST:PORT"),
        ("SSL_CERT_FILE", "/nonexistent/ca.pem", "SSL_CERT_FILE=/nonexistent/ca.pem"),
        ("SSL_CERT_FILE", __file__, "certificate"),
        ("SSLKEYLOGFILE", "/nonexistent/keys", "SSLKEYLOGFILE=/nonexistent/keys"),
    ],
)
def test_an_invalid_setting_of_the_environment_is_rejected_and_named(
    monkeypatch: pytest.MonkeyPatch, kind: type[Client] | type[AsyncClient], name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    if "system" in name:
        monkeypatch.setattr("httpx2._utils.getproxies", lambda: {"all": value})  # as on Windows and macOS
    with pytest.raises(ConfigurationError, match=name) as caught:
        kind("http://127.0.0.1:1/v1", api_key="key")
    assert says in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    ("variables", "named", "options"),
    [
        ({"http_proxy": "http://user:secret@127.0.0.1:1"}, "if http_proxy applies, through that proxy", {}),
        ({"ALL_PROXY": "127.0.0.1:1"}, "if ALL_PROXY applies, through that proxy", {}),
        ({"http_proxy": "http://user:secret@proxy..test:1"}, "if http_proxy applies, through that proxy", {}),
        ({"http_proxy": ""}, None, {}),
        ({}, None, {}),
        ({"http_proxy": "http://127.0.0.1:1"}, None, {"transport": httpx2.HTTPTransport}),  # which bypasses it
    ],
    ids=repr,
)
def test_a_failed_connection_names_the_variables_that_set_a_proxy(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str | None, options: dict[str, Any]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = {name: make() for name, make in options.items()}
    with (
        Client("http://127.0.0.2:1/v1", api_key="key", max_retries=0, **given) as petstore,
        pytest.raises(APIConnectionError, match="is the address right") as caught,
    ):
        petstore.cancel_order(1)
    message = str(caught.value)
    assert (False, False) == (caught.value.sent, caught.value.may_have_been_applied)
    assert "secret" not in message
    assert (named in message) if named else ("proxy" not in message)
