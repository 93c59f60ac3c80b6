"""The contracts as they are served: maintained by hand, with this deployment's addresses and dates (D18)."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from petstore_server.api.headers import deprecation_dates
from petstore_server.domain.timestamps import format_timestamp
from petstore_server.settings import Settings

CONTRACTS = {"v1": "openapi", "v2": "openapi-v2"}
"""The contract of each version of the API: its file's name, and its path, without the extension."""


@cache
def shipped_text(version: str = "v1") -> str:
    """The contract in the package, with the default addresses and dates."""
    return (files("petstore_server.api") / f"{CONTRACTS[version]}.yaml").read_text("utf-8")


def load_contract(settings: Settings, version: str = "v1") -> dict[str, Any]:
    """The contract as a tree of plain values."""
    contract = _parse(shipped_text(version))
    servers = [
        {"url": address.removesuffix("v1") + version, "description": name}
        for name, address in (("Production", settings.base_url), ("Staging", settings.staging_base_url))
        if address
    ]
    if servers:  # without any, the contract is relative to itself
        contract["servers"] = servers
    if settings.base_url:
        contract["externalDocs"]["url"] = settings.base_url.removesuffix("/v1") + contract["externalDocs"]["url"]
    if settings.contact:
        contract["info"]["contact"] = {"email" if "@" in settings.contact else "url": settings.contact}
    if version == "v1":
        headers = contract["components"]["headers"]
        dates = deprecation_dates(settings.pets_deprecated_at, settings.pets_sunset)
        headers["Deprecation"]["example"], headers["Sunset"]["example"] = dates
        contract["paths"]["/pets/{petId}"]["get"]["x-sunset"] = format_timestamp(settings.pets_sunset)
    return contract


def contract_json(settings: Settings, version: str = "v1") -> bytes:
    """The contract as JSON, indented for reading."""
    return json.dumps(load_contract(settings, version), ensure_ascii=False, indent=2).encode() + b"\n"


def contract_yaml(settings: Settings, version: str = "v1") -> bytes:
    """The contract as YAML: the text in the package, unless the settings change something."""
    text, contract = shipped_text(version), load_contract(settings, version)
    return (text if contract == _parse(text) else _written(contract)).encode()


def _parse(text: str) -> dict[str, Any]:
    import yaml  # when it is needed: a server without requests for a contract starts without it

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is not in every build of PyYAML
    contract: dict[str, Any] = yaml.load(text, loader)  # noqa: S506 - a safe loader, if in C
    return contract


def _written(contract: dict[str, Any]) -> str:
    """The tree as YAML in its own order, with texts of several lines as blocks."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump(contract, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
