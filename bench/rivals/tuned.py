"""The operations as a good engineer would write them in two days with FastAPI and SQLAlchemy.

    python bench/rivals/tuned.py ORDERS     create the database and print an API key
    uvicorn --app-dir bench/rivals tuned:app

Keys and the list are kept in memory, limits are counted there, msgspec
encodes bodies, reads run on the event loop and changes on one thread. Responses have the header fields of the product.
Each change is a commit, as durable as the product's: SQLite with a write-ahead log and `synchronous = FULL`. The
file that RIVAL_DATABASE names holds the database.
"""

import asyncio
import gzip
import hashlib
import itertools
import os
import secrets
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import msgspec
import sqlalchemy as sa
from fastapi import Depends, FastAPI, Query, Request, Response

LIMIT = 1_000_000_000
WINDOWS = {"minute": 60, "day": 86_400}
POLICY = ", ".join(f'"{name}";q={LIMIT};w={seconds}' for name, seconds in WINDOWS.items())
KEY_SECONDS = 1.0  # a revoked key is refused after this time

metadata = sa.MetaData()
orders = sa.Table(
    "orders",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("pet_id", sa.Integer, nullable=False, index=True),
    sa.Column("quantity", sa.Integer, nullable=False),
    sa.Column("ship_date", sa.String),
    sa.Column("complete", sa.Boolean),
    sa.Column("created_at", sa.String, nullable=False),
    sa.Column("updated_at", sa.String, nullable=False),
)
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("digest", sa.String, primary_key=True),
    sa.Column("account", sa.String, nullable=False),
)
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", sa.String, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("order_id", sa.Integer, nullable=False),
)
idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("account", sa.String, primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("order_id", sa.Integer, nullable=False),
)

CANCEL = (
    sa.update(orders)
    .where(orders.c.id == sa.bindparam("order_id"), orders.c.status == "pending")
    .values(status="cancelled", updated_at=sa.bindparam("now"))
)
ORDER = sa.select(orders).where(orders.c.id == sa.bindparam("order_id"))
PAGE = sa.select(orders).where(orders.c.id > sa.bindparam("after")).order_by(orders.c.id).limit(sa.bindparam("number"))


class NewOrder(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a request that places an order."""

    pet_id: int
    quantity: int
    ship_date: datetime | None = None


class Refused(Exception):
    """A response instead of the one that was asked for."""

    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.body = msgspec.json.encode({"code": code, "message": code, "status": status})


class Reply(NamedTuple):
    """A response without the header fields of the limits."""

    status: int
    body: bytes
    headers: dict[str, str]


@dataclass
class Account:
    """An account whose key was seen lately, and what it used of its windows."""

    name: str
    known_until: float
    used: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WINDOWS, 0))
    starts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WINDOWS, 0))


class Service:
    """All operations on one database."""

    def __init__(self, file: str) -> None:
        self._engine = sa.create_engine(f"sqlite:///{file}", connect_args={"check_same_thread": False})
        sa.event.listen(self._engine, "connect", _set_pragmas)
        self._reader = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._writer = ThreadPoolExecutor(1)
        self._accounts: dict[str, Account] = {}
        self._list: tuple[str, bytes, bytes] | None = None  # ETag, plain, compressed
        self._ids = itertools.count(1)

    def admit(self, sent: Mapping[str, str]) -> tuple[Account, dict[str, str]]:
        """Identify the key and count the request; return the header fields of every response."""
        account = self._account(sent.get("authorization", ""))
        now = time.time()
        limits = []
        for name, seconds in WINDOWS.items():
            if account.starts[name] + seconds <= now:
                account.starts[name], account.used[name] = int(now), 0
            if account.used[name] >= LIMIT:
                raise Refused(429, "rate_limit_exceeded")
            account.used[name] += 1
            rest = account.starts[name] + seconds - int(now)
            limits.append(f'"{name}";r={LIMIT - account.used[name]};t={rest}')
        return account, {
            "x-ratelimit-limit": str(LIMIT),
            "x-ratelimit-remaining": str(LIMIT - account.used["minute"]),
            "x-ratelimit-reset": str(account.starts["minute"] + 60),
            "ratelimit-policy": POLICY,
            "ratelimit": ", ".join(limits),
            "x-request-id": sent.get("x-request-id") or f"tuned-{next(self._ids)}",
        }

    def _account(self, authorization: str) -> Account:
        account = self._accounts.get(authorization)
        now = time.monotonic()
        if account is None or account.known_until < now:
            digest = _digest(authorization.removeprefix("Bearer "))
            found = self._reader.execute(sa.select(keys.c.account).where(keys.c.digest == digest)).scalar()
            if found is None:
                raise Refused(401, "unauthorized")
            if account is None:
                account = self._accounts[authorization] = Account(found, 0.0)
            account.known_until = now + KEY_SECONDS
        return account

    def list_orders(self, sent: Mapping[str, str]) -> Reply:
        """The list of version 1, from memory."""
        if self._list is None:
            rows = self._reader.execute(sa.select(orders).order_by(orders.c.id))
            body = msgspec.json.encode([_first_version(row) for row in rows])
            self._list = (_etag(body), body, gzip.compress(body, 6))
        etag, body, compressed = self._list
        headers = _cached(etag)
        if sent.get("if-none-match") == etag:
            return Reply(304, b"", headers)
        if "gzip" in sent.get("accept-encoding", ""):
            return Reply(200, compressed, headers | {"content-encoding": "gzip"})
        return Reply(200, body, headers)

    def page(self, sent: Mapping[str, str], after: int, limit: int) -> Reply:
        """A page of version 2 by identifier."""
        rows = self._reader.execute(PAGE, {"after": after, "number": limit}).all()
        page: dict[str, Any] = {"data": [_second_version(row) for row in rows]}
        headers = {}
        if len(rows) == limit:
            page["nextCursor"] = str(rows[-1].id)
            headers["link"] = f'</v2/store/orders?limit={limit}&cursor={rows[-1].id}>; rel="next"'
        return _represented(sent, page, headers)

    def order(self, sent: Mapping[str, str], order_id: int) -> Reply:
        """One order."""
        row = self._reader.execute(ORDER, {"order_id": order_id}).one_or_none()
        if row is None:
            raise Refused(404, "not_found")
        return _represented(sent, _second_version(row), {})

    async def cancel(self, account: Account, order_id: int) -> Reply:
        """Cancel a pending order."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._cancel, account.name, order_id)

    def _cancel(self, actor: str, order_id: int) -> Reply:
        with self._engine.begin() as connection:
            changed = connection.execute(CANCEL, {"order_id": order_id, "now": _now()}).rowcount
            if not changed:
                found = connection.execute(ORDER, {"order_id": order_id}).one_or_none()
                raise Refused(409 if found else 404, "conflict" if found else "not_found")
            entry = {"at": _now(), "actor": actor, "action": "cancel", "order_id": order_id}
            connection.execute(sa.insert(audit), entry)
        return Reply(204, b"", {})

    async def place(self, account: Account, sent: Mapping[str, str], body: bytes) -> Reply:
        """Place an order, once for each idempotency key."""
        key = sent.get("idempotency-key", "")
        if not key:
            raise Refused(400, "idempotency_key_missing")
        try:
            new = msgspec.json.decode(body, type=NewOrder)
        except msgspec.DecodeError as error:
            raise Refused(400, "invalid_body") from error
        reply = await asyncio.get_running_loop().run_in_executor(self._writer, self._place, account.name, key, new)
        self._list = None
        return reply

    def _place(self, account: str, key: str, new: NewOrder) -> Reply:
        now = _now()
        same_key = sa.select(idempotency.c.order_id).filter_by(account=account, key=key)
        with self._engine.begin() as connection:
            order_id = connection.execute(same_key).scalar()
            if order_id is None:
                ship_date = new.ship_date.isoformat() if new.ship_date else None
                fields = {"pet_id": new.pet_id, "quantity": new.quantity, "ship_date": ship_date}
                times = {"status": "pending", "created_at": now, "updated_at": now}
                order_id = connection.execute(sa.insert(orders), fields | times).inserted_primary_key[0]
                entry = {"at": now, "actor": account, "action": "place", "order_id": order_id}
                connection.execute(sa.insert(audit), entry)
                connection.execute(sa.insert(idempotency), {"account": account, "key": key, "order_id": order_id})
            row = connection.execute(ORDER, {"order_id": order_id}).one()
        headers = {"location": f"/v2/store/orders/{order_id}", "cache-control": "no-store"}
        return Reply(201, msgspec.json.encode(_second_version(row)), headers)


def _set_pragmas(connection: Any, _: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _etag(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def _cached(etag: str) -> dict[str, str]:
    return {"etag": etag, "cache-control": "private, no-cache", "vary": "Accept-Encoding, Authorization"}


def _represented(sent: Mapping[str, str], value: object, headers: dict[str, str]) -> Reply:
    body = msgspec.json.encode(value)
    headers |= _cached(_etag(body))
    return Reply(304, b"", headers) if sent.get("if-none-match") == headers["etag"] else Reply(200, body, headers)


def _first_version(row: Any) -> dict[str, Any]:
    order = {"id": row.id, "petId": row.pet_id, "quantity": row.quantity}
    if row.ship_date is not None:
        order["shipDate"] = row.ship_date
    if row.complete is not None:
        order["complete"] = row.complete
    return order


def _second_version(row: Any) -> dict[str, Any]:
    return {**_first_version(row), "status": row.status, "createdAt": row.created_at, "updatedAt": row.updated_at}


def _now() -> str:
    return datetime.now(UTC).isoformat()


def fill(file: str, number: int) -> str:
    """Create the database with pending orders 1 to `number`; return an API key."""
    key = "rival_" + secrets.token_urlsafe(24)
    engine = sa.create_engine(f"sqlite:///{file}")
    metadata.create_all(engine)
    shared = {"quantity": 1, "ship_date": "2026-10-07T03:51:47Z", "complete": False, "status": "pending"}
    shared |= {"created_at": _now(), "updated_at": _now()}
    with engine.begin() as connection:
        connection.execute(sa.insert(keys), {"digest": _digest(key), "account": "bench"})
        for first in range(1, number + 1, 10_000):
            ids = range(first, min(first + 10_000, number + 1))
            connection.execute(sa.insert(orders), [{"id": each, "pet_id": each % 977, **shared} for each in ids])
    return key


if __name__ == "__main__":
    print(fill(os.environ["RIVAL_DATABASE"], int(sys.argv[1])))
    sys.exit()

service = Service(os.environ["RIVAL_DATABASE"])
app = FastAPI()


@app.exception_handler(Refused)
async def refused(_: Request, error: Refused) -> Response:
    return Response(error.body, error.status, media_type="application/json")


async def admit(request: Request) -> tuple[Account, dict[str, str]]:
    return service.admit(request.headers)


Admitted = Annotated[tuple[Account, dict[str, str]], Depends(admit)]


def sent(admitted: Admitted, reply: Reply) -> Response:
    return Response(reply.body, reply.status, admitted[1] | reply.headers, media_type="application/json")


@app.get("/v1/store/orders")
async def list_orders(request: Request, admitted: Admitted) -> Response:
    return sent(admitted, service.list_orders(request.headers))


@app.delete("/v1/store/orders/{order_id}")
async def cancel_order(order_id: int, admitted: Admitted) -> Response:
    return sent(admitted, await service.cancel(admitted[0], order_id))


@app.get("/v2/store/orders")
async def list_page(
    request: Request, admitted: Admitted, cursor: int = -(2**63), limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Response:
    return sent(admitted, service.page(request.headers, cursor, limit))


@app.get("/v2/store/orders/{order_id}")
async def get_order(request: Request, order_id: int, admitted: Admitted) -> Response:
    return sent(admitted, service.order(request.headers, order_id))


@app.post("/v2/store/orders")
async def place_order(request: Request, admitted: Admitted) -> Response:
    return sent(admitted, await service.place(admitted[0], request.headers, await request.body()))
