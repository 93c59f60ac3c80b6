"""Corrections by files: of orders that exist, and of orders that have shipped."""

from dataclasses import replace

import pytest

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.orders import Order, Status, ship_on
from petstore_server.domain.placements import Placement
from petstore_server.imports.options import ReadOptions
from petstore_server.store import Store
from testing.import_files import imported
from testing.stores import BY

DATE = "2026-12-01T10:00:00Z"
SHIPPED = Order(1, 5, 2, DATE, False, Status.SHIPPED, "PO-1")
HEADER = "id,petId,quantity,shipDate,complete,status,reference\n"
CORRECT = ReadOptions("csv", correct_shipped=True)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("1,6,3,2026-12-02T10:00:00Z,true,shipped,PO-1", SHIPPED._replace(pet_id=6, quantity=3, complete=True)),
        ("1,5,9,2026-12-01T10:00:00Z,false,shipped,", SHIPPED._replace(quantity=9)),
        ("1,5,2,2026-12-01T10:00:00Z,false,shipped,", SHIPPED),
        ("1,5,9,2026-12-01T10:00:00Z,false,shipped,PO-2", None),
        ("1,5,2,2026-12-01T10:00:00Z,false,pending,PO-1", None),
        ("1,5,2,2026-12-01T10:00:00Z,false,cancelled,PO-1", None),
    ],
)
async def test_a_row_corrects_a_shipped_order_but_neither_its_status_nor_its_reference(
    store: Store, row: str, expected: Order | None
) -> None:
    await store.orders.import_batch([SHIPPED], "import-1", BY)
    run = await imported(store, HEADER + row, options=CORRECT)
    outcome = "rejected" if expected is None else "unchanged" if expected == SHIPPED else "replaced"
    assert 1 == run.counts[outcome]
    found = await store.orders.find(1)
    if expected is not None and "12-02" in row:
        expected = expected._replace(ship_date="2026-12-02T10:00:00Z")
    assert (expected or SHIPPED) == found
    batches = [entry async for entry in store.imports.batches(run.import_id)]
    assert (outcome == "replaced") == bool(batches), "a correction is audited with both states, like any change"


@pytest.mark.anyio
async def test_a_file_of_numbers_and_accounts_names_owners_and_changes_nothing_else(store: Store) -> None:
    """Also of orders that have shipped or were cancelled."""
    await store.accounts.create("zoo", Plan.FREE, Limits(1, 1), BY)
    orders = [SHIPPED, Order(2, 7, 1, DATE, True, Status.CANCELLED, "PO-2"), Order(3, 8, 4, DATE, False)]
    await store.orders.import_batch(orders, "import-1", BY)
    owners = "id,account\n1,zoo\n2,zoo\n3,zoo\n4,zoo\n"
    run = await imported(store, owners, options=ReadOptions("csv", update_only=True))
    assert {"replaced": 3, "created": 0, "rejected": 1}.items() <= run.counts.items()
    assert [order._replace(account="zoo") for order in orders] == [await store.orders.find(each.id) for each in orders]


@pytest.mark.anyio
async def test_without_the_option_the_reason_names_it_and_a_cancelled_order_is_not_corrected(store: Store) -> None:
    await store.orders.import_batch([SHIPPED, Order(2, status=Status.CANCELLED)], "import-1", BY)
    content = f"{HEADER}1,6,2,{DATE},false,shipped,PO-1\n2,6,,,,cancelled,\n"
    run = await imported(store, content, options=ReadOptions("csv"))
    first, second = run.rejects.summary()
    assert "line 2: The order has shipped, and differs from this row; it was not changed; give --correct" in first
    assert "line 3: The order is no longer pending" in second
    assert {"replaced": 1, "rejected": 1}.items() <= (await imported(store, content, options=CORRECT)).counts.items()


@pytest.mark.anyio
async def test_a_shipped_order_that_was_placed_is_corrected_by_its_account_and_reference_only(store: Store) -> None:
    await store.accounts.create("acme", Plan.FREE, Limits(60, 1000), BY)
    [account] = await store.accounts.list()
    placed = await store.orders.place(Placement(account.id, "a", 5, 2, None, "PO-1"), BY)
    await store.orders.change(placed.order_id, ship_on(DATE), BY)
    for replaced, outcome in ((False, "rejected"), (True, "replaced")):
        content = f"id,quantity,reference,account\n{placed.order_id},7,PO-1,acme\n"
        run = await imported(store, content, options=replace(CORRECT, replace_placed=replaced))
        assert 1 == run.counts[outcome], list(run.rejects.summary())
    other = f"id,quantity\n{placed.order_id},8\n"
    assert 1 == (await imported(store, other, options=replace(CORRECT, replace_placed=True))).counts["rejected"]


@pytest.mark.anyio
async def test_an_order_that_does_not_exist_is_not_created_where_only_updates_are_wanted(store: Store) -> None:
    await store.orders.import_batch([Order(1, 5)], "import-1", BY)
    run = await imported(store, "id,quantity\n1,7\n11,7\n", options=ReadOptions("csv", update_only=True))
    assert {"created": 0, "replaced": 1, "rejected": 1}.items() <= run.counts.items()
    assert ["line 3: There is no such order to update; check the number."] == list(run.rejects.summary())
    assert [1] == [order.id for order in await store.orders.find_many([1, 11])]
