-- Version 2: whose order it is (D21).

-- Each statement is a transaction of its own, so that none keeps requests waiting for long: it can be repeated.

-- The last migration that the store has. `schema_version` is what a program has to know: 1.0.0 works until an account may
-- see its own orders only, which it does not know.
ALTER TABLE petstore.store ADD COLUMN IF NOT EXISTS migration integer;

-- `account_id` is the account that owns the order: the one that placed it, or the one that an import named; NULL for an
-- order of the shop. It is set once. Version 1 of the program writes orders without it.
ALTER TABLE petstore.orders ADD COLUMN IF NOT EXISTS account_id bigint;

-- Which orders the account sees and may change: all, or its own.
ALTER TABLE petstore.accounts ADD COLUMN IF NOT EXISTS orders text COLLATE "C" NOT NULL DEFAULT 'all' CHECK (orders = 'all' OR orders = 'own');

-- Lists of one account's orders. Orders without an owner are in none of these, and cost nothing.
CREATE INDEX IF NOT EXISTS own_orders_by_id ON petstore.orders (account_id, id) WHERE account_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS own_orders_by_updated_at ON petstore.orders (account_id, updated_at, id) WHERE account_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS own_orders_by_ship_date ON petstore.orders (account_id, ship_date, id) WHERE account_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS own_orders_by_reference ON petstore.orders (account_id, reference, id) WHERE account_id IS NOT NULL AND reference IS NOT NULL;

-- Orders that version 1 of the program placed: the audit log knows their owners.
CREATE INDEX IF NOT EXISTS orders_without_owner ON petstore.orders (id) WHERE placed = 1 AND account_id IS NULL;

-- The log of changes, by the request that made them and by the action, for every action of orders. The conditions are
-- those of `store.audit`, word for word; programs of version 1 look for others, and read more of the log.
CREATE INDEX IF NOT EXISTS audit_by_order_request ON petstore.audit ((after::json ->> 'request_id')) WHERE substr(action, 1, 6) = 'order.';
CREATE INDEX IF NOT EXISTS audit_by_other_action ON petstore.audit (action, at, id) WHERE substr(action, 1, 6) <> 'order.';
DROP INDEX IF EXISTS petstore.audit_by_request;
DROP INDEX IF EXISTS petstore.audit_by_action;

-- New identifiers stay below 2^53: an import may have moved the clock further. With the clock locked, no order is added
-- that the second statement would not see.
SELECT 1 FROM petstore.clock WHERE one = 1 FOR UPDATE; UPDATE petstore.clock SET last_order_id = coalesce((SELECT max(id) FROM petstore.orders WHERE id < 9007199254740992), 0)
WHERE last_order_id >= 9007199254740992;

-- What a session of the console may do, and when it began (Unix seconds). Version 1 of the program makes those of admins
-- only, and finds no others: their digests are of the role too.
ALTER TABLE petstore.console_sessions ADD COLUMN IF NOT EXISTS role text COLLATE "C" NOT NULL DEFAULT 'admin' CHECK (role = 'admin' OR role = 'operator' OR role = 'viewer');
ALTER TABLE petstore.console_sessions ADD COLUMN IF NOT EXISTS began_at double precision;

-- The responses of the service in each hour of a week, as the console's process of each host counts them every minute:
-- `measure` is "failed" (5xx), or the upper bound of a bucket of durations in seconds. `start` is in Unix seconds.
CREATE TABLE IF NOT EXISTS petstore.response_history (
    start bigint NOT NULL,
    measure text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (start, measure)
);

-- Which secret signs the messages of webhooks: a digest of it.
ALTER TABLE petstore.store ADD COLUMN IF NOT EXISTS webhook_secret text COLLATE "C";

-- Webhooks. A position is that after the last order that was delivered, in the history of changes that `position_history`
-- names. A process delivers while it has the lease, until `leased_until`. Times are Unix seconds, but for `position_at`,
-- which is in microseconds; `attempts` is JSON.
CREATE TABLE IF NOT EXISTS petstore.webhooks (
    id text COLLATE "C" PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES petstore.accounts,
    created_at double precision NOT NULL,
    url text COLLATE "C" NOT NULL,
    statuses text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    position_history text COLLATE "C" NOT NULL,
    position_at bigint NOT NULL,
    position_id bigint NOT NULL,
    replay bigint NOT NULL,
    generation bigint NOT NULL,
    previous_until double precision NOT NULL,
    next_at double precision NOT NULL,
    failures bigint NOT NULL,
    failing_since double precision,
    delivered_at double precision,
    attempts text COLLATE "C" NOT NULL,
    lease text COLLATE "C",
    leased_until double precision NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS webhooks_by_account ON petstore.webhooks (account_id);
