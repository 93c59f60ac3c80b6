"""A store as 1.0.0 left it: only the first migration, and rows as that version wrote them."""

from pathlib import Path

import psycopg

from petstore_server.domain.orders import Order
from petstore_server.engines import schema
from testing.damage import execute
from testing.stores import Stores, opened_file

MIGRATIONS = Path(schema.__file__).parent / "migrations"

OWNERS = {1: None, 2: "acme", 3: "zoo", 4: None, 5: "zoo"}
"""The accounts that placed its orders: 1 was imported, 3 was cancelled by another account, of 4 nothing is known."""

_ACCOUNT = (
    "INSERT INTO petstore.accounts (name, plan, per_minute, per_day, created_at) VALUES (%s, 'free', 60, 1000, 1)"
)
_KEY = """
    INSERT INTO petstore.keys (id, account_id, digest, environment, scopes, note, created_at, revoked_at)
    SELECT 'key_' || name, id, {digest}, 'production', 'orders:read', '', 1, 2 FROM petstore.accounts WHERE name = %s
"""
_ORDER = """
    INSERT INTO petstore.orders (
        id, status, pet_id, complete, ship_date, reference, record, created_at, updated_at, revision, placed, imported
    ) VALUES (%s, 'pending', NULL, 0, NULL, %s, %s, 1000, 1000, %s, %s, NULL)
"""
_ENTRY = "INSERT INTO petstore.audit (at, actor, action, subject) VALUES (1, %s, %s, %s)"


def make_store(stores: Stores) -> None:
    """Make it where there is none yet."""
    script = (MIGRATIONS / ("sqlite" if stores.is_sqlite else "postgres") / "0001_store.sql").read_text()
    if stores.is_sqlite:
        with opened_file(stores.url) as file:
            file.execute(script)
            file.pragma("user_version", 1)
    else:
        with psycopg.connect(stores.url) as database:
            database.execute(script.encode())
    for name in ("acme", "zoo"):
        execute(stores, _ACCOUNT, name)
        digest = "randomblob(32)" if stores.is_sqlite else "sha256(name::bytea)"
        execute(stores, _KEY.format(digest=digest), name)
    for order_id, owner in OWNERS.items():
        add_order(stores, order_id, owner)
    execute(stores, _ENTRY, "key:key_acme", "order.cancel", "order:3")
    execute(stores, _ENTRY, "operator:key_acme", "order.ship", "order:4")


def add_order(stores: Stores, order_id: int, owner: str | None) -> None:
    """Add an order as a process of 1.0.0 does that places it for an account, or imports it."""
    reference = None if owner is None else f"PO-{order_id}"
    execute(stores, _ORDER, order_id, reference, Order(order_id).record(), order_id, int(order_id != 1))
    if owner is not None:
        execute(stores, _ENTRY, f"key:key_{owner}", "order.place", f"order:{order_id}")
    execute(stores, "UPDATE petstore.clock SET change = %s, at = 1000, last_order_id = %s", order_id, order_id)
