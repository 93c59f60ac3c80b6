"""The error tree. An error has a code and a message of whole sentences.

`api.errors` maps it to an HTTP status, `cli.failures` to an exit code. A message may say what to do, but names no
command, option or form field: the command line and the console add how it is done there (`remedies.py`).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from petstore_server.domain.remedies import Remedy

_MAX_QUOTED = 60


# Kinds of errors, by what becomes of them


class DomainError(Exception):
    """Anything the service refuses. `code` is for programs; `message` has a {} for each of the `values`, in order.

    `explanation` is what operators see, and `remedy` what they can do about it.
    """

    code = "internal_error"
    message = "{}"
    remedy: Remedy | None = None

    def __init__(self, *values: object) -> None:
        self.values = values
        self.message = self.explanation = self.message.format(*values)
        super().__init__(self.message)


class InvalidInput(DomainError):
    """Something an operator typed or a file holds is malformed."""

    code = "invalid_input"


class NotFound(DomainError):
    code = "not_found"


class Conflict(DomainError):
    code = "conflict"


class ServiceUnavailable(DomainError):
    """The store cannot be used now. `reason`, and `explanation` in sentences, are not for responses.

    `damaged`: because damage to it was seen, perhaps by another process. `full`: because the disk of its file is full.
    """

    code = "service_unavailable"
    message = "The service is temporarily unavailable; retry after the seconds in Retry-After."

    def __init__(self, reason: str, *, damaged: bool = False, full: bool = False) -> None:
        super().__init__()
        self.reason = reason
        self.damaged = damaged
        self.full = full
        self.explanation = f"{reason[:1].upper()}{reason[1:]}."


# API keys of requests


class MissingApiKey(DomainError):
    """No bearer credential came with the request (spec S5.2)."""

    code = "missing_api_key"
    message = "Send your API key in the Authorization header: 'Authorization: Bearer <key>'."


class InvalidApiKey(DomainError):
    """Unknown, expired, revoked, of the other environment or of a suspended account: one response for all.

    `known` is for the log: `key`, `account` and `state` of a key that is known.
    """

    code = "invalid_api_key"
    message = "This API key is not valid here; check it for typing errors or ask the store for a new one."

    def __init__(self, **known: str) -> None:
        super().__init__()
        self.known = known


class InsufficientScope(DomainError):
    """The key is valid but was narrowed to other scopes than this one (D9)."""

    code = "insufficient_scope"
    message = "This API key lacks the scope '{}'; ask the store for a key that has it."


# Orders and pets


class InvalidOrderId(InvalidInput):
    code = "invalid_order_id"
    message = "An order identifier is a whole number of at most 64 bits in plain digits, such as 42."


class OrderNotFound(NotFound):
    code = "order_not_found"
    message = "There is no order {}; list the orders to see which identifiers exist."


class PetNotFound(NotFound):
    code = "pet_not_found"
    message = "There is no pet with this identifier; pet identifiers come from an order's petId."


class OrderConflict(Conflict):
    """The order's state does not allow the transition (spec S3)."""


class OrderAlreadyShipped(OrderConflict):
    """The second value completes the message for the change that was asked for."""

    code = "order_already_shipped"
    message = "Order {} has already shipped and {}."


class OrderAlreadyCancelled(OrderConflict):
    """The second value completes the message for the change that was asked for."""

    code = "order_already_cancelled"
    message = "Order {} is already cancelled{}."


class OrderNotShipped(OrderConflict):
    code = "order_not_shipped"
    message = "Order {} is {}; only a shipped order can be completed."


class OrderAlreadyComplete(OrderConflict):
    code = "order_already_complete"
    message = "Order {} is already complete; nothing is left to do."


class AccountMismatch(OrderConflict):
    """Only a request that names the account of an order that an account placed may replace it (D22)."""

    code = "account_mismatch"
    message = "Order {} belongs to an account that the request does not name; name it to replace the order."


class UnknownAccount(InvalidInput):
    code = "unknown_account"
    message = "The field 'account' does not name an account of this store; use a name that exists, or leave it out."


class IdentifierReserved(Conflict):
    """An order with this identifier can only be placed: the values are the identifier and the first of these (D22)."""

    code = "identifier_reserved"
    message = "There is no order {}, and the service assigns the identifiers from {} on; use a smaller number."


class NoIdentifierLeft(DomainError):
    """An imported order has the last identifier that could be assigned, or nearly (D20)."""

    message = "No identifier is left for a new order: an imported order has one of the largest; report it to the store."


class ReferenceInUse(Conflict):
    """An order of the same owner, whose id is the value, has this reference (D21). `step` says what to do."""

    code = "reference_in_use"

    def __init__(self, order_id: int, step: str = "if it is the same order, do not place it again") -> None:
        self.message = f"Order {{}} already has this reference; {step}."
        super().__init__(order_id)


class IdempotencyKeyReused(DomainError):
    code = "idempotency_key_reused"
    message = "This Idempotency-Key was used for another body; use a new key for each order."


class IdempotencyKeyInUse(DomainError):
    code = "idempotency_key_in_use"
    message = "A request with this Idempotency-Key is being processed; retry after Retry-After."


class PreconditionFailed(DomainError):
    """If-Match or If-None-Match excludes the change (RFC 9110 section 13.1); the value says why."""

    code = "precondition_failed"
    message = "Nothing was changed: {}."


# Positions in lists and changes


class InvalidCursor(DomainError):
    """The cursor was altered, or belongs to other filters, another sort or another store."""

    code = "invalid_cursor"
    message = (
        "This cursor does not belong to this request; keep the filters and the sort of the page that it came from, or "
        "start again without a cursor."
    )


class InvalidToken(InvalidCursor):
    """The token of changes is none, or was altered."""

    message = (
        "This is not the 'next' of a response of listChanges or of a webhook's message; send one unchanged, or begin "
        "again: listChanges without 'after', a webhook with 'beginning'."
    )


class ChangesReset(DomainError):
    """The token is of another history of the store, or its account saw other orders: what was seen may be gone."""

    code = "changes_reset"
    message = (
        "The store has returned to an earlier state, or your account sees other orders than before; read all changes "
        "again, into an empty copy: listChanges without 'after', a webhook with 'beginning'."
    )


# Webhooks


class UrlRefused(InvalidInput):
    """A webhook may not send to this URL; the value is a clause with the reason (D24)."""

    message = "The URL is refused: {}."


class WebhookNotFound(NotFound):
    code = "webhook_not_found"
    message = "There is no webhook {}; list the webhooks to see which exist."


class TooManyWebhooks(Conflict):
    """The value is how many an account, or the whole store, may have."""

    code = "too_many_webhooks"
    message = "There are {} webhooks already, and no more are possible; delete one that is not needed."


class WebhookEnded(Conflict):
    """Its receiver has answered 410, or its account is closed."""

    code = "webhook_ended"
    message = "Webhook {} has ended; delete it, and create another one."


class WebhookSecretChanged(ServiceUnavailable):
    """The store's webhooks were made with another PETSTORE_WEBHOOK_SECRET."""

    def __init__(self) -> None:
        super().__init__("PETSTORE_WEBHOOK_SECRET is not the one with which the webhooks of this store were created")


# Accounts, keys, imports and sessions, as operators manage them


class MissingLimits(InvalidInput):
    message = "The plan enterprise has no fixed limits; give its requests per minute and per day."


class AccountNotFound(NotFound):
    code = "account_not_found"
    message = "There is no account '{}'."


class AccountExists(Conflict):
    code = "account_exists"
    message = "The account '{}' exists already; choose another name."


class AccountClosed(Conflict):
    code = "account_closed"
    message = "The account '{}' is closed, which cannot be reversed; create another account."


class KeyNotFound(NotFound):
    code = "key_not_found"
    message = "There is no key with the id '{}'."


class TooManyKeys(Conflict):
    code = "too_many_keys"
    message = "The account '{}' has {} keys that have not ended, and {} are allowed; revoke those that are not used."


class KeyNotUsable(Conflict):
    code = "key_not_usable"
    message = "Key {} is {}; create a new one."


class KeyRotated(KeyNotUsable):
    message = "Key {} is already rotated to {}; rotate that one."


class KeyNotBanned(Conflict):
    code = "key_not_banned"
    message = "Key {} is not banned; nothing was changed."


class ImportNotFound(NotFound):
    code = "import_not_found"
    message = "There is no import '{}'."


class SessionNotFound(NotFound):
    code = "session_not_found"
    message = "There is no session '{}' of the console; it may have ended."


class ChangedMeanwhile(Conflict):
    code = "changed_meanwhile"
    message = "This was changed meanwhile, so nothing was done. Check what it is now, then repeat."


# Fields of records


class InvalidField(InvalidInput):
    """One field of a record is malformed. The message quotes its value, unless that is None.

    `problem` completes a sentence about the field and does not contain the value, so that equal ones can be counted.
    """

    def __init__(self, field: str, problem: str, value: object = None, remedy: Remedy | None = None) -> None:
        super().__init__(f"{_quote(field)} {problem}." if value is None else f"{field} {_quote(value)} {problem}.")
        self.field = field
        self.problem = problem
        self.value = value
        self.quoted = None if value is None else _quote(value)
        self.remedy = remedy


def _quote(value: object) -> str:
    """The value in quotes, at most 60 characters of it."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"'{text}'" if len(text) <= _MAX_QUOTED else f"'{text[:_MAX_QUOTED]}…'"


# The store and Redis


class StatementFailed(DomainError):
    """The store works, and refuses what one caller asked: to repeat it would fail again. The cause says more."""

    code = "statement_failed"
    message = "The store refuses this: {}."


class Unreachable(ServiceUnavailable):
    """Redis or a server that an operator's command or page asks cannot be used. `explanation` is for operators only.

    `refused`: it rejects this process, so that no server starts.
    """

    def __init__(self, problem: str, reason: str, remedy: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused
        self.explanation = f"{problem} ({reason}). {remedy}"


class DamagedRecord(DomainError):
    code = "damaged_record"
    message = "The stored record of {} is damaged."

    def __init__(self, order_id: int | None) -> None:
        super().__init__("an order" if order_id is None else f"order {order_id}")


class StoreUnusable(DomainError):
    """The store cannot be opened. `problem` is the message without the remedy, for callers that know a better one."""

    code = "store_unusable"

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem} {remedy}".rstrip())
        self.problem = problem


class NoStore(StoreUnusable):
    """There is no store under the address."""


class StoreOutdated(StoreUnusable):
    """The store lacks migrations of this version."""


class StoreNewer(StoreUnusable):
    """A later version of this program wrote the store."""


class StoreDamaged(StoreUnusable):
    """The file is damaged or empty, or it is not a store."""


@contextmanager
def replacing_remedy(remedy: str) -> Iterator[None]:
    """Replace the remedy of a StoreUnusable that the block raises."""
    try:
        yield
    except StoreUnusable as error:
        raise StoreUnusable(error.problem, remedy) from error
