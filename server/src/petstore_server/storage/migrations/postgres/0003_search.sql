-- Version 3: the search index of version 2 of the interface, which follows the orders behind the writes.
--
-- Indexes that were written with every change would multiply the cost of imports and cancels. Instead each statement
-- that changes orders appends one row to a log of changes, and a background task brings the index up to date. A read
-- merges both. Triggers write the log, so that it is complete while a release before version 3 still writes.

-- One row for each statement that changed orders. `change` and `at` (Unix microseconds) ascend in the order of commits.
CREATE TABLE petstore.order_changes (
    change bigint PRIMARY KEY,
    at bigint NOT NULL,
    ids bigint[] NOT NULL
);

-- One row: the last change and its `at`, and the largest identifier ever assigned to a placed order. A transaction
-- that changes orders locks it until its commit. So changes become visible in the order of their numbers, and a reader
-- that follows them skips none.
CREATE TABLE petstore.order_changes_head (
    one integer PRIMARY KEY CHECK (one = 1),
    change bigint NOT NULL,
    at bigint NOT NULL,
    last_order_id bigint NOT NULL
) WITH (fillfactor = 10);

-- What filters and sorts of a list look at. `complete` is 0 where the order has no such field, `ship_date` is in Unix
-- microseconds. `created_at` is NULL for orders older than this table.
CREATE TABLE petstore.order_index (
    id bigint PRIMARY KEY,
    status text COLLATE "C" NOT NULL,
    pet_id bigint,
    complete smallint NOT NULL,
    ship_date bigint,
    updated_at bigint NOT NULL,
    created_at bigint
);

-- One row: the last change that the index contains.
CREATE TABLE petstore.order_index_state (
    one integer PRIMARY KEY CHECK (one = 1),
    change bigint NOT NULL
);

-- What the index holds of a record. Patterns, not a JSON parser: a damaged record must not stop the index.
CREATE FUNCTION petstore.order_pet_id(record text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT substring(record FROM '"petId":(-?[0-9]+)')::bigint $$;

CREATE FUNCTION petstore.order_complete(record text) RETURNS smallint LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN record LIKE '%"complete":true%' THEN 1 ELSE 0 END::smallint $$;

CREATE FUNCTION petstore.order_ship_date(record text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT (extract(epoch FROM substring(record FROM '"shipDate":"([0-9.:TZ-]+)"')::timestamptz) * 1000000)::bigint $$;

-- No order changes between the copy into the index and the triggers.
LOCK TABLE petstore.orders IN SHARE ROW EXCLUSIVE MODE;

INSERT INTO petstore.order_changes_head (one, change, at, last_order_id)
SELECT 1, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, coalesce(max(id), 0) FROM petstore.orders;

INSERT INTO petstore.order_index_state (one, change) VALUES (1, 0);

INSERT INTO petstore.order_index (id, status, pet_id, complete, ship_date, updated_at)
SELECT
    id,
    status,
    petstore.order_pet_id(record),
    petstore.order_complete(record),
    petstore.order_ship_date(record),
    (SELECT at FROM petstore.order_changes_head)
FROM petstore.orders;

-- Every filter with every sort.
CREATE INDEX order_index_by_updated_at ON petstore.order_index (updated_at, id);
CREATE INDEX order_index_by_ship_date ON petstore.order_index (ship_date, id);
CREATE INDEX order_index_by_status ON petstore.order_index (status, id);
CREATE INDEX order_index_by_status_updated_at ON petstore.order_index (status, updated_at, id);
CREATE INDEX order_index_by_status_ship_date ON petstore.order_index (status, ship_date, id);
CREATE INDEX order_index_by_pet ON petstore.order_index (pet_id, id);
CREATE INDEX order_index_by_pet_updated_at ON petstore.order_index (pet_id, updated_at, id);
CREATE INDEX order_index_by_pet_ship_date ON petstore.order_index (pet_id, ship_date, id);
CREATE INDEX order_index_by_complete ON petstore.order_index (complete, id);
CREATE INDEX order_index_by_complete_updated_at ON petstore.order_index (complete, updated_at, id);
CREATE INDEX order_index_by_complete_ship_date ON petstore.order_index (complete, ship_date, id);

CREATE FUNCTION petstore.log_order_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed_ids bigint[];
    new_change bigint;
    new_at bigint;
BEGIN
    SELECT array_agg(id) INTO changed_ids FROM changed_orders;
    IF changed_ids IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE petstore.order_changes_head
    SET change = change + 1, at = greatest(at + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    RETURNING change, at INTO new_change, new_at;
    INSERT INTO petstore.order_changes (change, at, ids) VALUES (new_change, new_at, changed_ids);
    RETURN NULL;
END $$;

CREATE TRIGGER orders_inserted AFTER INSERT ON petstore.orders
REFERENCING NEW TABLE AS changed_orders FOR EACH STATEMENT EXECUTE FUNCTION petstore.log_order_changes();

CREATE TRIGGER orders_updated AFTER UPDATE ON petstore.orders
REFERENCING NEW TABLE AS changed_orders FOR EACH STATEMENT EXECUTE FUNCTION petstore.log_order_changes();

CREATE TRIGGER orders_deleted AFTER DELETE ON petstore.orders
REFERENCING OLD TABLE AS changed_orders FOR EACH STATEMENT EXECUTE FUNCTION petstore.log_order_changes();

-- Placed orders by idempotency key, for 24 hours. `digest` is the SHA-256 of the request's body, `body` the response.
CREATE TABLE petstore.idempotency_keys (
    account_id bigint NOT NULL REFERENCES petstore.accounts,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    order_id bigint NOT NULL,
    body text NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (account_id, key)
);

CREATE INDEX idempotency_keys_by_time ON petstore.idempotency_keys (at);

-- Fresh statistics, so that the first queries use the indexes.
ANALYZE petstore.order_index;
