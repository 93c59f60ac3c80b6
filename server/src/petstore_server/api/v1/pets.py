"""The deprecated operation GET /v1/pets/{petId} (spec S8.3; D16)."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from petstore_server.api.call import Call
from petstore_server.api.errors import Gone
from petstore_server.api.representation import body_response
from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.keys import Principal
from petstore_server.domain.orders import is_int64
from petstore_server.domain.windows import Decision
from petstore_server.server.response import Response
from petstore_server.store import Store

_CACHING = b"cache-control: private, no-cache\r\nvary: Authorization\r\n"


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
        body = msgspec.json.encode(pet.fields())
        return body_response((body,), len(body), "application/json", _CACHING)
