"""The deprecated operation GET /v1/pets/{petId} (spec S8.3; D16)."""

from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime

import msgspec

from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.orders import is_int64
from petstore_server.http.errors import Gone
from petstore_server.http.request import Request
from petstore_server.http.responses import Headers, Response, content
from petstore_server.ports import Pets


class PetOperations:
    """Handlers over the pets port, until the sunset. `clock` gives Unix seconds."""

    def __init__(self, pets: Pets, clock: Callable[[], float], sunset: datetime) -> None:
        self._pets = pets
        self._clock = clock
        self._sunset = sunset.timestamp()

    async def get_pet(self, request: Request) -> Response:
        """One pet. Raises Gone, PetNotFound (also for an identifier that is no int64)."""
        if self._clock() >= self._sunset:
            raise Gone
        text = request.segments[-1]
        if not is_int64(text):
            raise PetNotFound
        pet = await self._pets.find(int(text))
        headers = [(b"cache-control", b"private, no-cache"), (b"vary", b"Authorization")]
        return content(msgspec.json.encode(pet.fields()), b"application/json", headers)


def deprecation_notices(deprecated_at: datetime, sunset: datetime) -> Headers:
    """Deprecation (RFC 9745), Sunset (RFC 8594) and the links that explain both."""
    return [
        (b"deprecation", b"@%d" % int(deprecated_at.timestamp())),
        (b"sunset", format_datetime(sunset, usegmt=True).encode()),
        (b"link", b'</docs>; rel="deprecation"; type="text/html", </docs>; rel="sunset"; type="text/html"'),
    ]
