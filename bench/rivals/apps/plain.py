"""The same operations in FastAPI, SQLAlchemy, slowapi and `HTTPBearer`, written as their documentation shows.

    python bench/rivals/apps/plain.py ORDERS     create the database and print an API key
    uvicorn --app-dir bench/rivals/apps plain:app

The file that RIVAL_DATABASE names holds the database. Commits are as durable as the product's: SQLite with a
write-ahead log and `synchronous = FULL`.
"""

import hashlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from sqlalchemy import create_engine, event, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

LIMIT = "1000000000/minute;1000000000/day"

engine = create_engine(f"sqlite:///{os.environ['RIVAL_DATABASE']}", connect_args={"check_same_thread": False})
SessionLocal = sessionmaker(autocommit=False, autoflush=False, bind=engine)


@event.listens_for(engine, "connect")
def set_pragmas(connection: Any, _: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    pet_id: Mapped[int] = mapped_column(index=True)
    quantity: Mapped[int]
    ship_date: Mapped[str | None]
    complete: Mapped[bool | None]
    status: Mapped[str]


class ApiKey(Base):
    __tablename__ = "keys"

    digest: Mapped[str] = mapped_column(primary_key=True)
    account: Mapped[str]


class AuditEntry(Base):
    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    actor: Mapped[str]
    action: Mapped[str]
    order_id: Mapped[int]


class IdempotencyKey(Base):
    __tablename__ = "idempotency"

    account: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[int]


class OrderIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pet_id: int = Field(validation_alias="petId")
    quantity: int = Field(ge=1)
    ship_date: datetime | None = Field(default=None, validation_alias="shipDate")


class OrderOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int
    pet_id: int = Field(serialization_alias="petId")
    quantity: int
    ship_date: str | None = Field(serialization_alias="shipDate")
    complete: bool | None


class Page(BaseModel):
    data: list[OrderOut]
    next: int | None


def get_db() -> Iterator[Session]:
    db = SessionLocal()
    try:
        yield db
    finally:
        db.close()


Db = Annotated[Session, Depends(get_db)]
bearer = HTTPBearer()


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def get_account(credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)], db: Db) -> str:
    key = db.get(ApiKey, digest(credentials.credentials))
    if key is None:
        raise HTTPException(status_code=401, detail="Invalid API key")
    return key.account


Account = Annotated[str, Depends(get_account)]


def api_key(request: Request) -> str:
    return request.headers.get("authorization", "")


limiter = Limiter(key_func=api_key, headers_enabled=True)
app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]


@app.get("/v1/store/orders", response_model=list[OrderOut])
@limiter.limit(LIMIT)
def list_orders(request: Request, response: Response, db: Db, account: Account) -> Any:
    return db.scalars(select(Order).order_by(Order.id)).all()


@app.delete("/v1/store/orders/{order_id}", status_code=204)
@limiter.limit(LIMIT)
def cancel_order(request: Request, response: Response, order_id: int, db: Db, account: Account) -> None:
    order = db.get(Order, order_id)
    if order is None:
        raise HTTPException(status_code=404, detail="Order not found")
    if order.status != "pending":
        raise HTTPException(status_code=409, detail=f"Order is {order.status}")
    order.status = "cancelled"
    db.add(AuditEntry(at=time.time(), actor=account, action="cancel", order_id=order_id))
    db.commit()


@app.get("/v2/store/orders", response_model=Page)
@limiter.limit(LIMIT)
def list_page(
    request: Request,
    response: Response,
    db: Db,
    account: Account,
    after: int = -(2**63),
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Any:
    orders = db.scalars(select(Order).where(Order.id > after).order_by(Order.id).limit(limit)).all()
    return {"data": orders, "next": orders[-1].id if len(orders) == limit else None}


@app.get("/v2/store/orders/{order_id}", response_model=OrderOut)
@limiter.limit(LIMIT)
def get_order(request: Request, response: Response, order_id: int, db: Db, account: Account) -> Any:
    order = db.get(Order, order_id)
    if order is None:
        raise HTTPException(status_code=404, detail="Order not found")
    return order


@app.post("/v2/store/orders", status_code=201, response_model=OrderOut)
@limiter.limit(LIMIT)
def place_order(
    request: Request,
    response: Response,
    body: OrderIn,
    db: Db,
    account: Account,
    idempotency_key: Annotated[str, Header(max_length=255)],
) -> Any:
    placed = db.get(IdempotencyKey, (account, idempotency_key))
    if placed is not None:
        return db.get(Order, placed.order_id)
    ship_date = body.ship_date.isoformat() if body.ship_date else None
    order = Order(pet_id=body.pet_id, quantity=body.quantity, ship_date=ship_date, complete=None, status="pending")
    db.add(order)
    db.flush()
    db.add(AuditEntry(at=time.time(), actor=account, action="place", order_id=order.id))
    db.add(IdempotencyKey(account=account, key=idempotency_key, order_id=order.id))
    db.commit()
    response.headers["Location"] = f"/v2/store/orders/{order.id}"
    return order


def fill(number: int) -> str:
    """Create the database with pending orders 1 to `number`; return an API key."""
    key = "rival_" + secrets.token_urlsafe(24)
    Base.metadata.create_all(engine)
    with SessionLocal() as db:
        db.add(ApiKey(digest=digest(key), account="bench"))
        for first in range(1, number + 1, 10_000):
            ids = range(first, min(first + 10_000, number + 1))
            db.execute(insert(Order), [_fields(order_id) for order_id in ids])
        db.commit()
    return key


def _fields(order_id: int) -> dict[str, Any]:
    return {
        "id": order_id,
        "pet_id": order_id % 977,
        "quantity": 1,
        "ship_date": "2026-10-07T03:51:47Z",
        "complete": False,
        "status": "pending",
    }


if __name__ == "__main__":
    print(fill(int(sys.argv[1])))
