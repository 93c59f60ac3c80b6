"""The contract as it is served: the hand-kept `openapi.yaml`, with this deployment's addresses and dates in it (D18).

The file holds the default values; here they give way to the settings, in the text itself, so that the YAML that is
served keeps its order and comments, and the JSON is nothing but the same text read.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from petstore_server.domain.timestamps import format_timestamp
from petstore_server.http.pets import deprecation_notices
from petstore_server.settings import Settings

_SERVERS = "servers:\n  - url: /v1\n    description: This server\n"
_SUNSET = "'2027-12-01T00:00:00Z'"
_SUNSET_HEADER = "Wed, 01 Dec 2027 00:00:00 GMT"
_DEPRECATION_HEADER = "'@1793491200'"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is not in every build of PyYAML


@cache
def shipped_text() -> str:
    """The contract as it stands in the package, with the default addresses and dates."""
    return (files("petstore_server.http") / "openapi.yaml").read_text("utf-8")


def contract_yaml(settings: Settings) -> str:
    """The contract as YAML text."""
    text = shipped_text()
    notices = dict(deprecation_notices(settings.pets_deprecated_at, settings.pets_sunset))
    replacements = {
        _SERVERS: _servers(settings),
        _SUNSET: f"'{format_timestamp(settings.pets_sunset)}'",
        _SUNSET_HEADER: notices[b"sunset"].decode(),
        _DEPRECATION_HEADER: f"'{notices[b'deprecation'].decode()}'",
    }
    for default, value in replacements.items():
        if default not in text:
            raise ValueError(f"openapi.yaml no longer holds {default!r}, which a setting is to replace.")
        text = text.replace(default, value)
    return text


def load_contract(settings: Settings) -> dict[str, Any]:
    """The contract as a tree of plain values."""
    contract: dict[str, Any] = yaml.load(contract_yaml(settings), _Loader)  # noqa: S506 - a safe loader, if in C
    return contract


def contract_json(settings: Settings) -> bytes:
    """The contract as JSON, indented for reading."""
    return json.dumps(load_contract(settings), ensure_ascii=False, indent=2).encode() + b"\n"


def _servers(settings: Settings) -> str:
    """The public addresses that are set; where none is, the contract stays relative to where it was read."""
    lines = [
        f"  - url: {json.dumps(address, ensure_ascii=False)}\n    description: {name}\n"
        for name, address in (("Production", settings.base_url), ("Staging", settings.staging_base_url))
        if address
    ]
    return "".join(["servers:\n", *lines]) if lines else _SERVERS
