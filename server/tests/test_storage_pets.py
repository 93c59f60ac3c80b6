"""Pets in the store."""

import pytest

from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.imports import ImportOutcome
from petstore_server.domain.orders import INT64_MAX, INT64_MIN
from petstore_server.domain.pets import Pet
from petstore_server.store import Store
from testing.stores import BY, batches, log


async def test_pets_are_created_left_unchanged_or_replaced(store: Store) -> None:
    assert [] == await store.pets.import_batch([], "import:0", BY)
    first = [Pet(INT64_MIN, "Ada\x00\ud800", "cat"), Pet(2), Pet(INT64_MAX, "Bo")]
    assert [ImportOutcome.CREATED] * 3 == await store.pets.import_batch(first, "import:1", BY)
    second = [Pet(2), Pet(INT64_MAX, None, "dog"), Pet(INT64_MAX, None, "dog"), Pet(4)]
    expected = [ImportOutcome.UNCHANGED, ImportOutcome.REPLACED, ImportOutcome.UNCHANGED, ImportOutcome.CREATED]
    assert expected == await store.pets.import_batch(second, "import:2", BY)
    assert [first[0], *second[1:]] == [await store.pets.find(pet.id) for pet in (first[0], *second[1:])]
    with pytest.raises(PetNotFound):
        await store.pets.find(3)
    recorded = [(entry.action, entry.subject, entry.before, entry.after) for entry in await log(store)]
    assert [
        ("pets.import", "import:1", None, {"created": 3}),
        ("pets.import", "import:2", None, {"created": 1, "replaced": 1, "unchanged": 2}),
    ] == recorded
    [batch] = await batches(store, "import:2")
    assert {"pets": [{"id": INT64_MAX, "name": "Bo"}]} == batch.before
    assert [{"id": INT64_MAX, "tag": "dog"}] == batch.after["pets"]
