"""Orders without a number of the service's kind: found, or created, by their owner and reference."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.changes import OrderChange
from petstore_server.domain.errors import NoIdentifierLeft
from petstore_server.domain.imports import ImportOutcome
from petstore_server.domain.orders import MAX_ASSIGNED_ID, UNASSIGNED, Order, Status, correct
from petstore_server.domain.placements import Placement
from petstore_server.imports import files
from petstore_server.imports.options import ReadOptions
from petstore_server.store import Store, orders
from testing.import_files import dry_run, imported, read
from testing.stores import BY, all_orders

pytestmark = pytest.mark.anyio
CSV = ReadOptions("csv")


@pytest.fixture
async def shop(store: Store) -> Store:
    """A store with the account acme."""
    await store.accounts.create("acme", Plan.FREE, Limits(60, 1000), BY)
    return store


@pytest.mark.parametrize("rows", [1, 2, 1000])
async def test_an_order_with_a_reference_only_is_created_once_and_found_again(
    shop: Store, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    await shop.orders.import_batch([Order(7), Order(8, 1, reference="#1002", account="acme")], "import-1", BY)
    content = (
        "reference,account,petId,quantity\n#1001,acme,5,1\n#1002,acme,6,2\n#1001,,7,3\n#1001,acme,5,1\n#1001,acme,9,9\n"
    )
    expected = {"created": 2, "unchanged": 1, "replaced": 1, "rejected": 1}
    before = await all_orders(shop)
    assert expected == (await dry_run(shop, content, CSV)).counts
    assert before == await all_orders(shop)
    run = await imported(shop, content, options=CSV)
    [reason] = run.rejects.summary()
    assert (expected, True) == (
        run.counts,
        reason.startswith("line 6: Order #1001 is also in line 2; an order here has"),
    )
    assert [
        Order(7),
        Order(8, 6, 2, reference="#1002", account="acme"),
        Order(9, 5, 1, reference="#1001", account="acme"),
        Order(10, 7, 3, reference="#1001"),
    ] == await all_orders(shop)
    again = await imported(shop, content, options=CSV)
    assert {"created": 0, "unchanged": 4, "replaced": 0, "rejected": 1} == again.counts


async def test_a_dry_run_finds_more_references_than_one_statement_names(
    shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "AUDITED_TOGETHER", 2)
    content = "reference,account\n" + "".join(f"#{number},{'acme' * (number % 2)}\n" for number in range(10))
    await imported(shop, content, options=CSV)
    assert 10 == (await dry_run(shop, content, CSV)).counts["unchanged"]


async def test_a_dry_run_takes_an_order_once_that_gets_an_owner_between_two_reads(
    shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.orders.import_batch([Order(4001, reference="R-1")], "import-1", BY)
    read = shop.orders.with_references

    async def with_both(wanted: Collection[tuple[str | None, str]]) -> Sequence[Order]:
        found = await read(wanted)
        return [*found, *(order._replace(account="acme") for order in found)]

    monkeypatch.setattr(shop.orders, "with_references", with_both)
    run = await dry_run(shop, "reference\nR-1\n", CSV)
    assert {"created": 1, "unchanged": 0, "replaced": 0, "rejected": 0} == run.counts


async def test_what_a_file_has_no_column_for_stays_also_of_an_order_found_by_its_reference(shop: Store) -> None:
    order = Order(8, 1, 2, reference="A-1", account="acme")
    await shop.orders.import_batch([order], "import-1", BY)
    run = await imported(shop, "reference,quantity\nA-1,5\n", options=ReadOptions("csv", account="acme"))
    assert 1 == run.counts["replaced"]
    assert [order._replace(quantity=5)] == await all_orders(shop)


@pytest.mark.parametrize("each_at_once", [True, False])
async def test_orders_without_an_owner_may_share_a_reference_which_then_names_none_of_them(
    store: Store, monkeypatch: pytest.MonkeyPatch, each_at_once: bool
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", 1000 if each_at_once else 1)
    content = "id,petId,reference\n4001,1,R-1\n4002,2,R-1\n"
    assert 2 == (await imported(store, content, options=CSV)).counts["created"]
    assert 2 == (await imported(store, content, options=CSV)).counts["unchanged"]
    before = await all_orders(store)
    rows = "petId,reference\n3,R-1\n3,R-1\n1,R-1\n5,R-2\n"
    for import_ in (dry_run, imported):
        run = await import_(store, rows, options=CSV)
        assert {"created": 1, "unchanged": 0, "replaced": 0, "rejected": 3} == run.counts
        problem = "Orders 4001 and 4002 without an owner have the reference R-1; name the order by its id"
        assert [f"3 rows: {problem}, first in line 2"] == list(run.rejects.summary())
    assert [*before, Order(4003, 5, reference="R-2")] == await all_orders(store)


@pytest.mark.parametrize("update_only", [False, True])
async def test_a_row_of_an_owner_is_rejected_where_orders_from_before_share_its_reference(
    shop: Store, update_only: bool
) -> None:
    await shop.accounts.create("globex", Plan.FREE, Limits(60, 1000), BY)
    shared = [Order(number, number, reference="R-1", account="acme") for number in (7, 5, 9)]
    others = [Order(1, reference="R-1"), Order(2, reference="R-1", account="globex")]
    await shop.orders.copy([*shared, *others], BY.at)
    before = await all_orders(shop)
    rows = "reference,account,petId\nR-1,acme,1\nR-1,globex,2\nR-1,,3\nR-1,acme,5\n"
    options = ReadOptions("csv", update_only=update_only)
    problem = "Orders 5 and 9 of acme have the reference R-1; name the order by its id"
    for import_ in (dry_run, imported):
        run = await import_(shop, rows, options=options)
        assert {"created": 0, "unchanged": 0, "replaced": 2, "rejected": 2} == run.counts
        assert [f"2 rows: {problem}, first in line 2"] == list(run.rejects.summary())
    changed = {1: 3, 2: 2}
    expected = [order._replace(pet_id=changed.get(order.id, order.pet_id)) for order in before]
    assert expected == await all_orders(shop)
    named = "id,reference,account,petId\n9,R-1,acme,4\n"
    assert 1 == (await imported(shop, named, options=options)).counts["replaced"]


async def test_a_line_of_an_order_is_rejected_where_several_orders_have_its_reference(store: Store) -> None:
    await store.orders.import_batch([Order(5, reference="A/2"), Order(6, reference="A/2")], "import-1", BY)
    options = ReadOptions("csv", split_lines=True)
    run = await imported(store, "reference,petId\nA,1\nA,2\nA,3\n", options=options)
    assert {"created": 2, "unchanged": 0, "replaced": 0, "rejected": 1} == run.counts
    problem = "Orders 5 and 6 without an owner have the reference A/2; give one of them another reference."
    assert [f"line 3: {problem}"] == list(run.rejects.summary())
    assert ["A/2", "A/2", "A", "A/3"] == [order.reference for order in await all_orders(store)]


async def test_an_order_is_found_by_its_reference_after_the_other_one_has_got_another(store: Store) -> None:
    await store.orders.import_batch([Order(5, reference="R"), Order(6, reference="R")], "import-1", BY)
    row = Order(UNASSIGNED, 8, reference="R")
    rejected = await store.orders.import_batch([row, row], "import-2", BY, by_reference=True)
    assert [ImportOutcome.AMBIGUOUS] * 2 == rejected
    await store.orders.request(OrderChange(5, correct({"reference": "S"}), BY))
    found = await store.orders.import_batch([row], "import-3", BY, by_reference=True)
    assert [ImportOutcome.REPLACED] == found
    assert [Order(5, reference="S"), Order(6, 8, reference="R")] == await all_orders(store)


@pytest.mark.parametrize(
    ("file_format", "content"),
    [
        ("csv", "id,account,reference\n1,,\n2,globex,\n,,R\n"),
        ("jsonl", '{"id":1}\n{"id":2,"account":"globex"}\n{"reference":"R"}\n'),
        ("json", '[{"id":1},{"id":2,"account":"globex"},{"reference":"R","account":null}]'),
    ],
)
async def test_the_owner_given_is_that_of_each_row_that_names_none(shop: Store, file_format: str, content: str) -> None:
    await shop.accounts.create("globex", Plan.FREE, Limits(60, 1000), BY)
    await imported(shop, content, options=ReadOptions(file_format, account="acme"))
    assert ["acme", "globex", "acme"] == [order.account for order in await all_orders(shop)]


async def test_an_order_that_a_partner_placed_is_found_and_protected(shop: Store) -> None:
    [account] = await shop.accounts.list()
    placed = await shop.orders.place(Placement(account.id, "k", 5, 1, None, "PO-1"), BY)
    content = "reference,account,petId,quantity\nPO-1,acme,6,1\n"
    assert 1 == (await imported(shop, content, options=CSV)).counts["rejected"]
    assert 1 == (await imported(shop, content, options=ReadOptions("csv", replace_placed=True))).counts["replaced"]
    assert [Order(placed.order_id, 6, 1, reference="PO-1", account="acme")] == await all_orders(shop)


@pytest.mark.parametrize("rows", [1, 1000])
async def test_a_number_that_was_given_to_an_order_of_the_file_is_not_that_of_a_later_row(
    shop: Store, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    content = "id,reference,quantity\n,A,1\n1,,2\n5,B,3\n,B,4\n"
    run = await imported(shop, content, options=CSV)
    rejected = list(run.rejects.summary())
    if rows == 1:
        assert (
            "line 3: The file has another order, without a number of its own, that was given this number; restore"
            in rejected[0]
        )
        assert "set PETSTORE_ASSIGNED_IDS_FROM" in rejected[0]
    assert "line 5: The order is also in an earlier line; an order here has one animal" in rejected[-1]
    found = {order.quantity: order.id for order in await all_orders(shop)}
    assert {1: 1, 3: 5} == found if rows == 1 else {1: 6, 2: 1, 3: 5} == found
    again = await imported(shop, content, options=CSV)
    assert (0, 0) == (again.counts["created"], again.counts["replaced"]), "the row with number 1 replaced order A"


async def test_a_line_without_a_number_gets_a_number_after_all_of_its_batch(store: Store) -> None:
    content = "id,petId,quantity\n1003,1,1\n1003,2,1\n1002,1,1\n1001,1,1\n"  # the newest first, as shops export
    for created in (4, 0):
        run = await imported(store, content, options=ReadOptions("csv", split_lines=True))
        assert {"created": created, "unchanged": 4 - created, "replaced": 0, "rejected": 0} == run.counts
    assert [1001, 1002, 1003, 1004] == [order.id for order in await all_orders(store)]


async def test_a_row_whose_number_another_line_was_given_replaces_it_in_no_later_import(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", 1)
    content = "id,petId,quantity\n1001,1,1\n1001,2,1\n1002,3,1\n1002,4,1\n"
    first = await imported(store, content, options=ReadOptions("csv", split_lines=True))
    assert (3, 1) == (first.counts["created"], first.counts["rejected"])
    store.orders.first_assigned = 1_000_000  # which the operator sets then
    again = await imported(store, content, options=ReadOptions("csv", split_lines=True))
    assert {"created": 0, "unchanged": 3, "replaced": 0, "rejected": 1} == again.counts


@pytest.mark.parametrize("first", ["named", "numbered"])
async def test_an_order_that_a_file_names_by_number_and_by_reference_is_that_of_the_first_row(
    shop: Store, first: str
) -> None:
    """Each import replaced it twice, or the second one replaced it by the row that the first one had rejected."""
    named = '{"reference":"D","account":"acme","quantity":1}\n'
    numbered = '{"id":26,"reference":"D","account":"acme","quantity":5}\n'
    content, quantity = (named + numbered, 1) if first == "named" else (numbered + named, 5)
    for outcome in ("created", "unchanged"):
        run = await imported(shop, content)
        assert (1, 1) == (run.counts[outcome], run.counts["rejected"])
        assert next(run.rejects.summary()).startswith("line 2: The order is also in an earlier line;")
        assert [Order(26, quantity=quantity, reference="D", account="acme")] == await all_orders(shop)


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("first", ["named", "numbered"])
async def test_a_stored_order_that_a_file_names_in_two_ways_is_that_of_the_first_row(
    shop: Store, monkeypatch: pytest.MonkeyPatch, rows: int, first: str
) -> None:
    """In another block, the second row replaced it, and each later import replaced it by the other one."""
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    await shop.orders.import_batch([Order(26, quantity=1, reference="D", account="acme")], "import-1", BY)
    names = ['"reference":"D"', '"id":26,"reference":"D"']
    rows_of = [f'{{{name},"account":"acme","quantity":1}}\n' for name in names[:: 1 if first == "named" else -1]]
    content = "".join([*rows_of, rows_of[1].replace('"quantity":1', '"quantity":5')])
    for quantity in (1, 7):  # unchanged, then replaced
        given = content.replace('"quantity":1', f'"quantity":{quantity}')
        for import_ in (dry_run, imported, imported):
            run = await import_(shop, given)
            assert 1 == run.counts["rejected"]
            assert next(run.rejects.summary()).startswith("line 3: ")
        assert {"created": 0, "unchanged": 2, "replaced": 0, "rejected": 1} == run.counts
        assert [Order(26, quantity=quantity, reference="D", account="acme")] == await all_orders(shop)


@pytest.mark.parametrize("rows", [[",D,5\n", "26,D,7\n"], ["26,D,7\n", ",D,5\n"]], ids=["named", "numbered"])
async def test_a_row_without_an_owner_is_not_the_order_of_another_row_which_keeps_its_owner(
    shop: Store, rows: list[str]
) -> None:
    """The file has no column for owners: the order of the row with a number has one, and the other row names none."""
    await shop.orders.import_batch([Order(26, quantity=1, account="acme")], "import-1", BY)
    for import_ in (dry_run, imported):
        run = await import_(shop, "id,reference,quantity\n" + "".join(rows), options=CSV)
        assert {"created": 1, "unchanged": 0, "replaced": 1, "rejected": 0} == run.counts
    assert [Order(26, quantity=7, reference="D", account="acme"), Order(27, quantity=5, reference="D")] == (
        await all_orders(shop)
    )


async def test_a_dry_run_gives_no_new_order_the_number_of_a_stored_one(
    shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", 1)
    await shop.orders.import_batch([Order(1), Order(9)], "import-1", BY)
    content = "id,reference,quantity\n,A,1\n1,,2\n"
    found = [(await import_(shop, content, options=CSV)).counts for import_ in (dry_run, imported)]
    assert [{"created": 1, "unchanged": 0, "replaced": 1, "rejected": 0}] * 2 == found


async def test_new_orders_get_numbers_of_the_service_where_these_are_kept_apart(shop: Store) -> None:
    shop.orders.first_assigned = 1_000
    await imported(shop, "id,reference\n1,A\n,B\n2,C\n,D\n", options=CSV)
    assert {"A": 1, "C": 2, "B": 1000, "D": 1001} == {
        order.reference or "": order.id for order in await all_orders(shop)
    }


async def test_no_order_is_created_by_reference_where_no_number_is_left(shop: Store) -> None:
    await shop.orders.import_batch([Order(MAX_ASSIGNED_ID)], "import-1", BY)
    with pytest.raises(NoIdentifierLeft):
        await shop.orders.import_batch([Order(UNASSIGNED, reference="A")], "import-2", BY, by_reference=True)
    assert [Order(MAX_ASSIGNED_ID)] == await all_orders(shop)


async def test_only_updates_create_no_order_by_reference(shop: Store) -> None:
    run = await imported(shop, "reference\nA\n", options=ReadOptions("csv", update_only=True))
    assert ({"created": 0, "unchanged": 0, "replaced": 0, "rejected": 1}, []) == (run.counts, await all_orders(shop))
    assert 0 == await shop.orders.last_identifier()


async def test_references_of_two_files_at_the_same_time_make_one_order(shop: Store) -> None:
    content = "reference,quantity\n" + "".join(f"R{number},1\n" for number in range(300))
    runs = await asyncio.gather(*[imported(shop, content, options=CSV) for _ in range(3)])
    assert 300 == sum(run.counts["created"] for run in runs) == len(await all_orders(shop))


def test_rows_by_reference_are_read_in_bulk_like_row_by_row() -> None:
    found = read(b"id,reference,petId\n1,A,2\n,B,3\n", CSV)
    assert [("A", Status.PENDING), ("B", Status.PENDING)] == [(order.reference, order.status) for order in found.orders]
