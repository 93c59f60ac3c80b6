"""The contracts as they are served: maintained by hand, with this deployment's addresses and dates (D18).

The files contain the default values. Settings replace these in the text itself, so that the YAML keeps its order and
comments, and the JSON has the same content.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from petstore_server.api.v1.pets import deprecation_dates
from petstore_server.domain.timestamps import format_timestamp
from petstore_server.settings import Settings

CONTRACTS = {"v1": "openapi", "v2": "openapi-v2"}
"""The contract of each version of the API: its file's name, and its path, without the extension."""

_SERVERS = "servers:\n  - url: /{version}\n    description: This server\n"
_SUNSET = "'2027-12-01T00:00:00Z'"
_SUNSET_HEADER = "Wed, 01 Dec 2027 00:00:00 GMT"
_DEPRECATION_HEADER = "'@1793491200'"


@cache
def shipped_text(version: str = "v1") -> str:
    """The contract in the package, with the default addresses and dates."""
    return (files("petstore_server.api") / f"{CONTRACTS[version]}.yaml").read_text("utf-8")


def contract_yaml(settings: Settings, version: str = "v1") -> str:
    """The contract as YAML text."""
    text = shipped_text(version)
    for default, value in _replacements(settings, version).items():
        if default not in text:
            raise ValueError(f"{CONTRACTS[version]}.yaml no longer contains {default!r}, which a setting replaces.")
        text = text.replace(default, value)
    return text


def load_contract(settings: Settings, version: str = "v1") -> dict[str, Any]:
    """The contract as a tree of plain values."""
    return _parse(contract_yaml(settings, version))


def contract_json(settings: Settings, version: str = "v1") -> bytes:
    """The contract as JSON, indented for reading."""
    return _as_json(contract_yaml(settings, version))


@cache
def _as_json(text: str) -> bytes:
    return json.dumps(_parse(text), ensure_ascii=False, indent=2).encode() + b"\n"


def _parse(text: str) -> dict[str, Any]:
    import yaml  # when it is needed: a server without requests for a contract starts without it

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is not in every build of PyYAML
    contract: dict[str, Any] = yaml.load(text, loader)  # noqa: S506 - a safe loader, if in C
    return contract


def _replacements(settings: Settings, version: str) -> dict[str, str]:
    """What each default value gives way to."""
    servers = {_SERVERS.format(version=version): _servers(settings, version)}
    if version != "v1":
        return servers
    deprecation, sunset = deprecation_dates(settings.pets_deprecated_at, settings.pets_sunset)
    return {
        **servers,
        _SUNSET: f"'{format_timestamp(settings.pets_sunset)}'",
        _SUNSET_HEADER: sunset,
        _DEPRECATION_HEADER: f"'{deprecation}'",
    }


def _servers(settings: Settings, version: str) -> str:
    """The public addresses in the settings, which end in `/v1`; without any, the contract is relative to itself."""
    lines = [
        f"  - url: {json.dumps(address.removesuffix('v1') + version, ensure_ascii=False)}\n    description: {name}\n"
        for name, address in (("Production", settings.base_url), ("Staging", settings.staging_base_url))
        if address
    ]
    return "".join(["servers:\n", *lines]) if lines else _SERVERS.format(version=version)
