"""Requests to change one order: the order that each leads to, and its preconditions (D5, D6, D22)."""

from collections.abc import Callable
from typing import NamedTuple

from petstore_server.domain import errors
from petstore_server.domain.audit import Actor
from petstore_server.domain.imports import ImportOutcome, evaluate_import, kept_of
from petstore_server.domain.orders import Order, Status, TrackedOrder
from petstore_server.domain.transitions import Transition

NOT_YET = 0  # the time of a change that is not written yet: no ETag is of it
_NOTHING_LEFT = (errors.OrderAlreadyShipped, errors.OrderAlreadyCancelled, errors.OrderAlreadyComplete)


class StoredOrder(NamedTuple):
    """An order as the store has it. Times are Unix microseconds; `placed`: over the API."""

    order: Order
    updated_at: int
    created_at: int
    placed: bool = False

    def written(self, at: int) -> "StoredOrder":
        """The order with this time for what was not written yet."""
        return StoredOrder(self.order, self.updated_at or at, self.created_at or at, self.placed)

    def tracked(self, *, with_account: bool) -> TrackedOrder:
        """The order of version 2, with the name of its owner if the caller sees it."""
        order = self.order
        account = order.account if with_account else None
        return TrackedOrder(order.record(), order.status, self.updated_at, self.created_at, order.reference, account)


class Put(NamedTuple):
    """Makes an order equal to this one, or creates it: the outcomes of an import of one record."""

    order: Order
    creates_only: bool = False  # If-None-Match: *

    @property
    def action(self) -> str:
        """The name of the change in the audit log."""
        return "order.put"

    def apply(self, stored: StoredOrder) -> Order:
        """Return the order after it.

        Raises PreconditionFailed, OrderAlreadyShipped, OrderAlreadyCancelled, AccountMismatch.
        """
        if self.creates_only:
            raise errors.PreconditionFailed("the order exists already, and If-None-Match asks for a new one")
        order = kept_of(stored.order, self.order)
        match evaluate_import(stored.order, order, placed=stored.placed and self.order.account is None):
            case ImportOutcome.UNCHANGED | ImportOutcome.REPLACED:
                return order
            case ImportOutcome.REJECTED | ImportOutcome.CORRECTABLE if stored.order.status is Status.SHIPPED:
                raise errors.OrderAlreadyShipped(order.id, "can no longer be replaced; correct it instead")
            case ImportOutcome.REJECTED:
                raise errors.OrderAlreadyCancelled(order.id, " and can no longer be replaced")
        raise errors.AccountMismatch(order.id)


class OrderChange(NamedTuple):
    """A request to change an order. With an `owner`, the orders of others do not exist.

    `matches` is If-Match: whether the order is as the caller saw it; None: it may have changed. `sees_account`: the
    caller needs the name of the owner.
    """

    order_id: int
    transition: Transition[Order] | Put
    actor: Actor
    owner: int | None = None
    matches: Callable[[StoredOrder], bool] | None = None
    sees_account: bool = False

    def apply(self, stored: StoredOrder | None) -> Order:
        """Return the order after the change, which may be equal to the one before.

        `stored` is None if there is no such order for the caller. What is done already comes before the precondition,
        so that a request that is repeated after a lost response is never refused for what it did itself; everything
        else comes after it. Raises OrderNotFound, OrderConflict, PreconditionFailed.
        """
        transition = self.transition
        try:
            if isinstance(transition, Put):
                order = self._put(transition, stored)
            elif stored is None:
                raise errors.OrderNotFound(self.order_id)
            else:
                order = transition.apply(stored.order)
        except _NOTHING_LEFT:
            raise
        except errors.DomainError:
            self._require_match(stored)
            raise
        if stored is None or order != stored.order:
            self._require_match(stored)
        return order

    def _put(self, put: Put, stored: StoredOrder | None) -> Order:
        if stored is not None:
            return put.apply(stored)
        if self.owner is not None:
            raise errors.OrderNotFound(self.order_id)
        return put.order

    def _require_match(self, stored: StoredOrder | None) -> None:
        if self.matches is not None and (stored is None or not self.matches(stored)):
            raise errors.PreconditionFailed(
                "the order is not as If-Match says; it has changed, or does not exist: read it again"
            )


class ChangedOrder(NamedTuple):
    """An order after a change, durable. It has its account only if the request asked for it.

    `decided` is the order as it was decided, `before` the one before the change, None if the change created it, and
    `at` the time of what was written (Unix microseconds).
    """

    decided: StoredOrder
    before: Order | None
    at: int

    @property
    def order(self) -> Order:
        return self.decided.order

    @property
    def stored(self) -> StoredOrder:
        """The order with its times."""
        return self.decided.written(self.at)

    @property
    def created(self) -> bool:
        return self.before is None

    @property
    def cancelled(self) -> bool:
        """Whether the change cancelled an order that was not cancelled before."""
        cancelled = Status.CANCELLED
        return self.before is not None and self.before.status is not cancelled and self.order.status is cancelled
