-- Version 3: the search index of version 2 of the interface, which follows the orders behind the writes.
--
-- Indexes that were written with every change would multiply the cost of imports and cancels. Instead each transaction
-- appends one row to a log of changes, and a background task brings the index up to date. A read merges both.

-- The number of the change that last wrote the order. A release before version 3 leaves it as it is: see the triggers.
ALTER TABLE orders ADD COLUMN changed INTEGER;

-- One row for each transaction that changed orders, in the order of commits. `at` is in Unix microseconds and larger in
-- every row than in the one before. `ids` is a JSON array of the orders. Numbers are never used again.
CREATE TABLE order_changes (
    change INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    ids TEXT NOT NULL
) STRICT;

-- What filters and sorts of a list look at. `complete` is 0 where the order has no such field, `ship_date` is in Unix
-- microseconds. `created_at` is NULL for orders older than this table.
CREATE TABLE order_index (
    id INTEGER PRIMARY KEY,
    status TEXT NOT NULL,
    pet_id INTEGER,
    complete INTEGER NOT NULL,
    ship_date INTEGER,
    updated_at INTEGER NOT NULL,
    created_at INTEGER
) STRICT;

-- One row: the last change that the index contains, its `at`, and the largest identifier ever assigned to an order.
CREATE TABLE order_index_state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    change INTEGER NOT NULL,
    at INTEGER NOT NULL,
    last_order_id INTEGER NOT NULL
) STRICT;

INSERT INTO order_index (id, status, pet_id, complete, ship_date, updated_at)
SELECT
    id,
    status,
    iif(json_valid(record), record ->> 'petId', NULL),
    iif(json_valid(record), coalesce(record ->> 'complete', 0), 0),
    iif(json_valid(record),
        unixepoch(substr(record ->> 'shipDate', 1, 19)) * 1000000
        + CAST(substr(rtrim(substr(record ->> 'shipDate', 21), 'Z') || '000000', 1, 6) AS INTEGER), NULL),
    CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000
FROM orders;

INSERT INTO order_index_state (one, change, at, last_order_id)
SELECT 1, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000, coalesce(max(id), 0)
FROM orders;

-- Every filter with every sort; ties are in the order of the primary key, which each index ends with.
CREATE INDEX order_index_by_updated_at ON order_index (updated_at);
CREATE INDEX order_index_by_ship_date ON order_index (ship_date);
CREATE INDEX order_index_by_status ON order_index (status);
CREATE INDEX order_index_by_status_updated_at ON order_index (status, updated_at);
CREATE INDEX order_index_by_status_ship_date ON order_index (status, ship_date);
CREATE INDEX order_index_by_pet ON order_index (pet_id);
CREATE INDEX order_index_by_pet_updated_at ON order_index (pet_id, updated_at);
CREATE INDEX order_index_by_pet_ship_date ON order_index (pet_id, ship_date);
CREATE INDEX order_index_by_complete ON order_index (complete);
CREATE INDEX order_index_by_complete_updated_at ON order_index (complete, updated_at);
CREATE INDEX order_index_by_complete_ship_date ON order_index (complete, ship_date);

-- A release before version 3 writes orders without logging the change: during a rolling upgrade these triggers do.
-- The current release sets `changed` to a new number with every write, so they cost it one comparison.
CREATE TRIGGER orders_inserted_by_an_older_release AFTER INSERT ON orders WHEN NEW.changed IS NULL
BEGIN
    INSERT INTO order_changes (at, ids)
    SELECT
        max(CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000, 1 + max(state.at, coalesce(max(log.at), 0))),
        json_array(NEW.id)
    FROM order_index_state AS state LEFT JOIN order_changes AS log ON 1;
END;

CREATE TRIGGER orders_updated_by_an_older_release
AFTER UPDATE OF status, record ON orders WHEN NEW.changed IS OLD.changed
BEGIN
    INSERT INTO order_changes (at, ids)
    SELECT
        max(CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000, 1 + max(state.at, coalesce(max(log.at), 0))),
        json_array(NEW.id)
    FROM order_index_state AS state LEFT JOIN order_changes AS log ON 1;
END;

-- The identifiers of placed orders and their idempotency keys, for 24 hours. `digest` is the SHA-256 of the request's
-- body, `body` the response.
CREATE TABLE idempotency_keys (
    account_id INTEGER NOT NULL REFERENCES accounts,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    order_id INTEGER NOT NULL,
    body TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (account_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_time ON idempotency_keys (at);
