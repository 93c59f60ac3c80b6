"""Version 2 of the API: its methods in both clients."""

import uuid
from collections.abc import Generator, Iterable
from datetime import datetime
from typing import Any, SupportsIndex, Unpack

from petstore_client import _arguments as arguments
from petstore_client import _operations as operations
from petstore_client import _shop as shop
from petstore_client import v2
from petstore_client._methods import Runner, awaited, iterated
from petstore_client._webhooks import AsyncWebhooks, Webhooks


class V2:
    """Version 2 of the API (beta), with the limits, the retries and the options of its client.

    The errors of a call are those of `Client.list_orders`, and those that its method names.
    """

    def __init__(self, client: Runner) -> None:
        self._client = client

    def list_orders(
        self, *, limit: SupportsIndex = 100, cursor: str | None = None, **filters: Unpack[v2.Filters]
    ) -> v2.Page:
        """One page of the orders that match all filters.

        limit: the most orders on the page, from 1 to 1000.
        cursor: the `next_cursor` of the page before, for the same filters and sort; None for the first page.
        filters: status, pet_id, complete, ship_date_from, ship_date_to, updated_from, reference, sort; see
            `petstore_client.v2.Filters`.

        Raises APIStatusError 400 `invalid_parameter` or `invalid_cursor`; TypeError, ConfigurationError (a ValueError).
        """
        return self._client._run(operations.list_page(self._client._session(), limit=limit, cursor=cursor, **filters))

    def iter_orders(
        self, *, limit: SupportsIndex = 1000, **filters: Unpack[v2.Filters]
    ) -> Generator[v2.Order, None, None]:
        """The orders that match all filters, one by one, in the memory of one page.

        limit: the most orders in one request, from 1 to 1000; the iteration has no limit.
        filters: those of `list_orders`.

        Each page is a separate call: it is retried, and `deadline` applies to it. Raises the errors of `list_orders`.
        """
        arguments.query({"limit": limit, **filters})  # which raises here, not when the iteration begins
        return self._client._iterate(operations.iter_pages(self._client._session, limit=limit, **filters))

    def list_changes(
        self, *, after: str | None = None, limit: SupportsIndex = 1000, wait: SupportsIndex = 0
    ) -> v2.Changes:
        """One page of changes after a token, which may be empty. Store its `next` when it is handled.

        after: the `next` of an earlier page; "now"; or None for the beginning: every order once, then every change.
        limit: the most orders on the page, from 1 to 1000.
        wait: seconds, up to 30, for which the server holds the request until something changes. Neither the first
            request of a client, for whose response its others wait, nor one after "now" is held.

        Raises ChangesResetError if the store was restored since `after`, or the account sees other orders than then.
        """
        hold = arguments.integer("wait", wait)
        return self._client._run(operations.list_changes(self._client._session(), hold, after, limit=limit))

    def follow_changes(
        self, *, after: str | None = None, limit: SupportsIndex = 1000, wait: SupportsIndex = 30
    ) -> Generator[v2.Changes, None, None]:
        """The pages of changes after a token, as they happen. No page is empty; store its `next` when it is handled.

        after, limit, wait: as in `list_changes`, which returns one page.

        The iteration ends only when the client is closed, which another thread may do. Each page is a separate call:
        it is retried, and `deadline` applies to it. Raises the errors of `list_changes`.
        """
        arguments.query({"after": after, "limit": limit})
        enter, core, hold = self._client._session, self._client._core, arguments.integer("wait", wait)
        return self._client._iterate(operations.follow_changes(enter, lambda: core.closed, hold, after, limit=limit))

    def get_order(self, order_id: SupportsIndex) -> v2.Order:
        """One order. Raises NotFoundError."""
        return self._client._run(operations.get_order(self._client._session(), order_id))

    def cancel_order(self, order_id: SupportsIndex, *, if_match: str | None = None) -> None:
        """Cancel a pending order, as `Client.cancel_order` does.

        if_match: the `etag` of the order as you read it; if the order has changed since, PreconditionFailedError. None
            sets no condition: an Order of a list has no `etag`.
        """
        session, operation = self._client._session(), operations.CANCEL_ORDER_V2
        return self._client._run(operations.cancel_order(session, order_id, operation, if_match))

    def put_order(
        self,
        order_id: SupportsIndex,
        *,
        pet_id: SupportsIndex | None = None,
        quantity: SupportsIndex | None = None,
        ship_date: datetime | None = None,
        complete: bool | None = None,
        status: v2.Status | None = None,
        reference: str | None = None,
        account: str | None = None,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> v2.Order:
        """Put an order under your own number: create it, replace it while it is pending, or find it unchanged.

        pet_id, quantity, ship_date, complete: the whole order; None leaves a field without a value. ship_date is an
            aware datetime.
        status: "pending" (also for None), "shipped" or "cancelled".
        reference: the number of the order in the system of its owner, which has no other order with it.
        account: the name of the account that owns the order; None leaves the owner as it is. An order that an account
            placed is replaced only if this names its account.
        if_match: as in `cancel_order`.
        create_only: raise PreconditionFailedError if the order exists, instead of replacing it.

        The key needs the scope `orders:manage`. The request is repeated if its response was lost; what is equal then
        stays as it is. If that finds something else, `may_have_been_applied` is True, because another program may have
        changed the order since.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` (also for an unknown account),
        PreconditionFailedError, and ConflictError `order_already_shipped`, `order_already_cancelled`,
        `account_mismatch`, `identifier_reserved` or `reference_in_use`; NotFoundError if the account sees only its own
        orders, and this is none of them.
        """
        put = v2.Put(
            order_id, pet_id=pet_id, quantity=quantity, ship_date=ship_date, complete=complete, status=status,
            reference=reference, account=account, if_match=if_match, create_only=create_only,
        )  # fmt: skip
        return self._change(put)

    def update_order(
        self,
        order_id: SupportsIndex,
        *,
        pet_id: SupportsIndex | v2.UnsetType | None = v2.UNSET,
        quantity: SupportsIndex | v2.UnsetType | None = v2.UNSET,
        ship_date: datetime | v2.UnsetType | None = v2.UNSET,
        complete: bool | v2.UnsetType | None = v2.UNSET,
        reference: str | v2.UnsetType | None = v2.UNSET,
        if_match: str | None = None,
    ) -> v2.Order:
        """Correct fields of a pending or shipped order.

        pet_id, quantity, ship_date, complete, reference: the new values; None removes a value, and UNSET of
            `petstore_client.v2`, the default, leaves it. ship_date is an aware datetime.
        if_match: as in `cancel_order`.

        Of a cancelled order only the reference can be removed. The scope and repetitions are as for `put_order`. Raises
        PermissionDeniedError, NotFoundError, APIStatusError 400 `invalid_body`, PreconditionFailedError, and
        ConflictError `order_already_cancelled`, `order_not_shipped` (`complete=True` of a pending order) or
        `reference_in_use`.
        """
        update = v2.Update(
            order_id, pet_id=pet_id, quantity=quantity, ship_date=ship_date, complete=complete,
            reference=reference, if_match=if_match,
        )  # fmt: skip
        return self._change(update)

    def ship_order(
        self, order_id: SupportsIndex, *, ship_date: datetime | None = None, if_match: str | None = None
    ) -> v2.Order:
        """Ship a pending order.

        ship_date: when it was shipped, an aware datetime; None is the present time of the service.
        if_match: as in `cancel_order`.

        The key needs the scope `orders:manage`, and after a lost response `orders:read`: the request is repeated, and
        if the order has shipped then, the call succeeds and reads the order. Raises PermissionDeniedError,
        NotFoundError, PreconditionFailedError, and ConflictError `order_already_shipped`, or
        `order_already_cancelled`: do not send it.
        """
        return self._change(v2.Ship(order_id, ship_date=ship_date, if_match=if_match))

    def complete_order(self, order_id: SupportsIndex, *, if_match: str | None = None) -> v2.Order:
        """Mark a shipped order as complete.

        if_match: as in `cancel_order`.

        The scopes and repetitions are as for `ship_order`. Raises PermissionDeniedError, NotFoundError,
        PreconditionFailedError, and ConflictError `order_not_shipped`, `order_already_complete` or
        `order_already_cancelled`.
        """
        return self._change(v2.Complete(order_id, if_match=if_match))

    def batch_orders(self, operations: Iterable[v2.BatchOperation]) -> list[v2.BatchResult]:
        """Carry out many operations, and return the outcome of each, in their order. An outcome is not raised.

        operations: any number of Put, Update, Ship, Complete and Cancel of `petstore_client.v2`. A Cancel needs the
            scope `orders:cancel` too.

        Up to 500 operations, or 256 KiB, are one request; the requests are sent one after another. Each is a call of
        its own: it is retried, and `deadline` applies to it. Operations on the same order are carried out in their
        sequence. Those that the service cannot carry out (503) are sent again, with the later ones on the same orders.
        After a lost response the outcomes are those of the single calls.

        If a request fails as a whole, its exception is raised, and its `batch_results` are the outcomes of the requests
        before. All operations may be sent again: what is done is then unchanged, or a ConflictError `order_already_…`.
        Raises PermissionDeniedError.
        """
        changes = arguments.batch_operations(operations)
        return self._client._run(shop.batch_orders(self._client._session, changes))

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks of the account, to which the service sends changes of orders (experimental)."""
        return Webhooks(self._client)

    def _change(self, operation: v2.BatchOperation) -> v2.Order:
        return self._client._run(shop.change_order(self._client._session(), arguments.batch_operation(operation)))

    def place_order(
        self,
        *,
        pet_id: SupportsIndex,
        quantity: SupportsIndex,
        ship_date: datetime | None = None,
        reference: str | None = None,
        idempotency_key: str | uuid.UUID | None = None,
    ) -> v2.Order:
        """Place an order, once, however often the request is repeated. When this returns, it is stored durably.

        pet_id, quantity: the pet, and the number of units, at least 1.
        ship_date: when the order should ship, an aware datetime.
        reference: your own number of the order, 1 to 64 visible characters, by which a list can be filtered. An account
            has one order with it: another one is ConflictError `reference_in_use`, whose `order_id` is the first.
        idempotency_key: 1 to 255 visible ASCII characters, or a UUID; None makes a new key for this call. Pass the key
            of an earlier call to repeat that call.

        The key needs the scope `orders:write`.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` or 422 `idempotency_key_reused`, and
        ConflictError `idempotency_key_in_use` or `reference_in_use`. Every exception but one for a wrong argument, a
        KeyboardInterrupt or CancelledError too, has the `idempotency_key` with which another call does not place a
        second order.
        """
        body, key = arguments.new_order(pet_id, quantity, ship_date, reference, idempotency_key)
        return self._client._run(operations.place_order(self._client._session, body, key), key)

    def get_usage(
        self, *, granularity: v2.Granularity = "hour", start: datetime | None = None, end: datetime | None = None
    ) -> v2.Usage:
        """The plan, the key and the limits of the account, which orders it sees, and its requests by hour or day.

        granularity: "hour" or "day", the length of the entries of the history.
        start, end: aware datetimes between which the history lies; by default the last 24 hours.

        Raises APIStatusError 400 `invalid_parameter`.
        """
        usage = operations.get_usage(self._client._session(), granularity=granularity, start=start, end=end)
        return self._client._run(usage)


class AsyncV2:
    """Version 2 of the API (beta) for asyncio. The arguments and errors are those of `V2`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    list_orders, iter_orders = awaited(V2.list_orders), iterated(V2.iter_orders)
    get_order, cancel_order = awaited(V2.get_order), awaited(V2.cancel_order)
    place_order, get_usage = awaited(V2.place_order), awaited(V2.get_usage)
    put_order, update_order = awaited(V2.put_order), awaited(V2.update_order)
    ship_order, complete_order = awaited(V2.ship_order), awaited(V2.complete_order)
    batch_orders = awaited(V2.batch_orders)
    _change = V2._change
    list_changes, follow_changes = awaited(V2.list_changes), iterated(V2.follow_changes)

    @property
    def webhooks(self) -> AsyncWebhooks:
        """The webhooks of the account, to which the service sends changes of orders (experimental)."""
        return AsyncWebhooks(self._client)
