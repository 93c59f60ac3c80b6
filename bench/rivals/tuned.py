"""The operations as a good engineer would write them in two days with FastAPI and SQLAlchemy.

    python bench/rivals/tuned.py ORDERS     create the database and print an API key
    uvicorn --app-dir bench/rivals tuned:app

Keys and the list are kept in memory, limits are counted there, msgspec encodes bodies, reads run on the event loop and
changes on one thread. Responses have the header fields of the product. Each change is a commit, as durable as the
product's: SQLite with a write-ahead log and `synchronous = FULL`, in the file that RIVAL_DATABASE names.
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
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from fastapi import Depends, FastAPI, Query, Request, Response

LIMIT = 1_000_000_000
WINDOWS = {"minute": 60, "day": 86_400}
POLICY = ", ".join(f'"{name}";q={LIMIT};w={seconds}' for name, seconds in WINDOWS.items())
PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"
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
keys = sa.Table("keys", metadata, sa.Column("digest", sa.String, primary_key=True), sa.Column("account", sa.String))
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    *(sa.Column(name, sa.String, nullable=False) for name in ("at", "actor", "action")),
    sa.Column("order_id", sa.Integer, nullable=False),
)
idempotency = sa.Table(
    "idempotency",
    metadata,
    *(sa.Column(name, sa.String, primary_key=True) for name in ("account", "key")),
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
        sa.event.listen(self._engine, "connect", lambda connection, _: connection.executescript(PRAGMAS))
        self.reader = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.writer = ThreadPoolExecutor(1)
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
            limits.append(f'"{name}";r={LIMIT - account.used[name]};t={account.starts[name] + seconds - int(now)}')
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
            found = self.reader.execute(sa.select(keys.c.account).where(keys.c.digest == digest)).scalar()
            if found is None:
                raise Refused(401, "unauthorized")
            if account is None:
                account = self._accounts[authorization] = Account(found, 0.0)
            account.known_until = now + KEY_SECONDS
        return account

    def listed(self) -> tuple[str, bytes, bytes]:
        """The list of version 1, from memory: its ETag, and its bytes, plain and compressed."""
        if self._list is None:
            rows = self.reader.execute(sa.select(orders).order_by(orders.c.id))
            body = msgspec.json.encode([_first_version(row) for row in rows])
            self._list = (_etag(body), body, gzip.compress(body, 6))
        return self._list

    def cancel(self, actor: str, order_id: int) -> None:
        """Cancel a pending order."""
        with self._engine.begin() as connection:
            if not connection.execute(CANCEL, {"order_id": order_id, "now": _now()}).rowcount:
                found = connection.execute(ORDER, {"order_id": order_id}).one_or_none()
                raise Refused(409 if found else 404, "conflict" if found else "not_found")
            entry = {"at": _now(), "actor": actor, "action": "cancel", "order_id": order_id}
            connection.execute(sa.insert(audit), entry)

    def place(self, account: str, key: str, new: NewOrder) -> Any:
        """Place an order, once for each idempotency key; return its row."""
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
        self._list = None
        return row


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _etag(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def _cached(etag: str) -> dict[str, str]:
    return {"etag": etag, "cache-control": "private, no-cache", "vary": "Accept-Encoding, Authorization"}


def _first_version(row: Any) -> dict[str, Any]:
    order = {"id": row.id, "petId": row.pet_id, "quantity": row.quantity}
    more = {"shipDate": row.ship_date, "complete": row.complete}
    return order | {name: value for name, value in more.items() if value is not None}


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


def sent(admitted: Admitted, status: int, body: bytes, headers: dict[str, str]) -> Response:
    return Response(body, status, admitted[1] | headers, media_type="application/json")


def represented(request: Request, admitted: Admitted, value: object, headers: dict[str, str]) -> Response:
    body = msgspec.json.encode(value)
    headers |= _cached(_etag(body))
    unchanged = request.headers.get("if-none-match") == headers["etag"]
    return sent(admitted, 304, b"", headers) if unchanged else sent(admitted, 200, body, headers)


@app.get("/v1/store/orders")
async def list_orders(request: Request, admitted: Admitted) -> Response:
    etag, body, compressed = service.listed()
    headers = _cached(etag)
    if request.headers.get("if-none-match") == etag:
        return sent(admitted, 304, b"", headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return sent(admitted, 200, compressed, headers | {"content-encoding": "gzip"})
    return sent(admitted, 200, body, headers)


@app.delete("/v1/store/orders/{order_id}")
async def cancel_order(order_id: int, admitted: Admitted) -> Response:
    await asyncio.get_running_loop().run_in_executor(service.writer, service.cancel, admitted[0].name, order_id)
    return sent(admitted, 204, b"", {})


@app.get("/v2/store/orders")
async def list_page(
    request: Request, admitted: Admitted, cursor: int = -(2**63), limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Response:
    rows = service.reader.execute(PAGE, {"after": cursor, "number": limit}).all()
    page: dict[str, Any] = {"data": [_second_version(row) for row in rows]}
    headers: dict[str, str] = {}
    if len(rows) == limit:
        page["nextCursor"] = str(rows[-1].id)
        headers["link"] = f'</v2/store/orders?limit={limit}&cursor={rows[-1].id}>; rel="next"'
    return represented(request, admitted, page, headers)


@app.get("/v2/store/orders/{order_id}")
async def get_order(request: Request, order_id: int, admitted: Admitted) -> Response:
    row = service.reader.execute(ORDER, {"order_id": order_id}).one_or_none()
    if row is None:
        raise Refused(404, "not_found")
    return represented(request, admitted, _second_version(row), {})


@app.post("/v2/store/orders")
async def place_order(request: Request, admitted: Admitted) -> Response:
    key = request.headers.get("idempotency-key", "")
    if not key:
        raise Refused(400, "idempotency_key_missing")
    try:
        new = msgspec.json.decode(await request.body(), type=NewOrder)
    except msgspec.DecodeError as error:
        raise Refused(400, "invalid_body") from error
    row = await asyncio.get_running_loop().run_in_executor(service.writer, service.place, admitted[0].name, key, new)
    headers = {"location": f"/v2/store/orders/{row.id}", "cache-control": "no-store"}
    return sent(admitted, 201, msgspec.json.encode(_second_version(row)), headers)
