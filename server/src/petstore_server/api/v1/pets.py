"""The deprecated operation GET /v1/pets/{petId} (spec S8.3; D16)."""

from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime

import msgspec

from petstore_server.api.call import Call
from petstore_server.api.errors import Gone
from petstore_server.api.responses import content, lines
from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.keys import Principal
from petstore_server.domain.orders import is_int64
from petstore_server.domain.windows import Decision
from petstore_server.server.response import Response
from petstore_server.store import Store

_CACHING = lines(("cache-control", "private, no-cache"), ("vary", "Authorization"))


class PetOperations:
    """Handlers over the store's pets, until the sunset. `clock` gives Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float], sunset: datetime) -> None:
        self._store = store
        self._clock = clock
        self._sunset = sunset.timestamp()

    async def get_pet(self, call: Call, _: Principal, __: Decision) -> Response:
        """One pet. Raises Gone, and PetNotFound (also for an identifier that is not an int64)."""
        if self._clock() >= self._sunset:
            raise Gone
        text = call.segments[-1]
        if not is_int64(text):
            raise PetNotFound
        pet = await self._store.pets.find(int(text))
        return content(msgspec.json.encode(pet.fields()), "application/json", _CACHING)


def deprecation_dates(deprecated_at: datetime, sunset: datetime) -> tuple[str, str]:
    """The values of the headers Deprecation (RFC 9745) and Sunset (RFC 8594)."""
    return f"@{int(deprecated_at.timestamp())}", format_datetime(sunset, usegmt=True)


def deprecation_notices(deprecated_at: datetime, sunset: datetime) -> bytes:
    """Header lines: Deprecation, Sunset, and links to what explains both."""
    deprecation, sunset_date = deprecation_dates(deprecated_at, sunset)
    return lines(
        ("deprecation", deprecation),
        ("sunset", sunset_date),
        ("link", '</docs>; rel="deprecation"; type="text/html", </docs>; rel="sunset"; type="text/html"'),
    )
