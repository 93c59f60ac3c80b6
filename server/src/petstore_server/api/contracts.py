"""The contracts as they are served: maintained by hand, with this deployment's addresses and dates (D18)."""

import json
from functools import partial
from importlib.resources import files
from typing import Any

from petstore_server.api.headers import deprecation_dates
from petstore_server.domain.timestamps import format_timestamp
from petstore_server.settings import Settings

CONTRACTS = {"v1": "openapi", "v2": "openapi-v2"}  # by version: the name of the file, and of the path, before the dot

_dumps = partial(json.dumps, ensure_ascii=False)  # also for values in the YAML, of which JSON is a part


def contract_yaml(settings: Settings, version: str = "v1") -> bytes:
    """The contract as YAML: the text in the package, in which the settings replace the default addresses and dates."""
    text = (files("petstore_server.api") / f"{CONTRACTS[version]}.yaml").read_text("utf-8")
    text = text[text.index("openapi: ") :]  # what is before it is for maintainers
    addresses = (("Production", settings.base_url), ("Staging", settings.staging_base_url))
    servers = [
        {"url": address.removesuffix("v1") + version, "description": name}
        # Its own address first: what is generated from the contract sends to that one, with keys of this service.
        for name, address in sorted(addresses, key=lambda each: each[1] != settings.own_base_url)
        if address
    ]
    if servers:  # without any, the contract is relative to itself
        own = f"servers:\n  - url: /{version}\n    description: This server\n"
        text = text.replace(own, f"servers: {_dumps(servers)}\n")
    if settings.own_base_url:  # without it there is no absolute address to name, and generators refuse a relative one
        guide = {
            "description": "Guide for partners, with examples",
            "url": f"{settings.own_base_url.removesuffix('/v1')}/docs/guide",
        }
        text = text.replace("\nservers:", f"\nexternalDocs: {_dumps(guide)}\n\nservers:", 1)
    if settings.contact:
        contact = {"email" if "@" in settings.contact else "url": settings.contact}
        text = text.replace("\ninfo:\n", f"\ninfo:\n  contact: {_dumps(contact)}\n")
    deprecation, sunset = deprecation_dates(settings.pets_deprecated_at, settings.pets_sunset)
    text = text.replace("example: '@1793491200'", f"example: '{deprecation}'")
    text = text.replace("example: Wed, 01 Dec 2027 00:00:00 GMT", f"example: {sunset}")
    text = text.replace("x-sunset: '2027-12-01T00:00:00Z'", f"x-sunset: '{format_timestamp(settings.pets_sunset)}'")
    return text.encode()


def load_contract(settings: Settings, version: str = "v1") -> dict[str, Any]:
    """The contract as a tree of plain values."""
    import yaml  # when it is needed: a server without requests for a contract starts without it

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is not in every build of PyYAML
    contract: dict[str, Any] = yaml.load(contract_yaml(settings, version), loader)  # noqa: S506 - a safe loader, if in C
    return contract


def contract_json(settings: Settings, version: str = "v1") -> bytes:
    """The contract as JSON, indented for reading."""
    return _dumps(load_contract(settings, version), indent=2).encode() + b"\n"
