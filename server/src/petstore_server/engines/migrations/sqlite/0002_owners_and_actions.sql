-- Version 2: whose order it is (D21).

-- The last migration that the store has. `PRAGMA user_version` is what a program has to know: 1.0.0 works until an account
-- may see its own orders only, which it does not know.
ALTER TABLE store ADD COLUMN migration INTEGER;

-- `account_id` is the account that owns the order: the one that placed it, or the one that an import named; NULL for an
-- order of the shop. It is set once. Version 1 of the program writes orders without it.
ALTER TABLE orders ADD COLUMN account_id INTEGER;

-- Which orders the account sees and may change: all, or its own.
ALTER TABLE accounts ADD COLUMN orders TEXT NOT NULL DEFAULT 'all' CHECK (orders = 'all' OR orders = 'own');

-- Lists of one account's orders; each ends with the id. Orders without an owner are in none of these, and cost nothing.
CREATE INDEX own_orders_by_id ON orders (account_id) WHERE account_id IS NOT NULL;
CREATE INDEX own_orders_by_updated_at ON orders (account_id, updated_at) WHERE account_id IS NOT NULL;
CREATE INDEX own_orders_by_ship_date ON orders (account_id, ship_date) WHERE account_id IS NOT NULL;
CREATE INDEX own_orders_by_reference ON orders (account_id, reference) WHERE account_id IS NOT NULL AND reference IS NOT NULL;

-- Orders that version 1 of the program placed: the audit log knows their owners.
CREATE INDEX orders_without_owner ON orders (id) WHERE placed = 1 AND account_id IS NULL;

-- The log of changes, by the request that made them and by the action, for every action of orders. The conditions are
-- those of `store.audit`, word for word; programs of version 1 look for others, and read more of the log.
CREATE INDEX audit_by_order_request ON audit ("after" ->> 'request_id') WHERE substr(action, 1, 6) = 'order.';
CREATE INDEX audit_by_other_action ON audit (action, at) WHERE substr(action, 1, 6) <> 'order.';
DROP INDEX audit_by_request;
DROP INDEX audit_by_action;

-- New identifiers stay below 2^53: an import may have moved the clock further.
UPDATE clock SET last_order_id = coalesce((SELECT max(id) FROM orders WHERE id < 9007199254740992), 0)
WHERE last_order_id >= 9007199254740992;

-- What a session of the console may do, and when it began (Unix seconds). Version 1 of the program makes those of admins
-- only, and finds no others: their digests are of the role too.
ALTER TABLE console_sessions ADD COLUMN role TEXT NOT NULL DEFAULT 'admin' CHECK (role = 'admin' OR role = 'operator' OR role = 'viewer');
ALTER TABLE console_sessions ADD COLUMN began_at REAL;

-- The responses of the service in each hour of a week, as the console's process of each host counts them every minute:
-- `measure` is "failed" (5xx), or the upper bound of a bucket of durations in seconds. `start` is in Unix seconds.
CREATE TABLE response_history (
    start INTEGER NOT NULL,
    measure TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (start, measure)
) STRICT, WITHOUT ROWID;

-- Which secret signs the messages of webhooks: a digest of it.
ALTER TABLE store ADD COLUMN webhook_secret TEXT;

-- Webhooks. A position is that after the last order that was delivered, in the history of changes that `position_history`
-- names. A process delivers while it has the lease, until `leased_until`. Times are Unix seconds, but for `position_at`,
-- which is in microseconds; `attempts` is JSON.
CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts,
    created_at REAL NOT NULL,
    url TEXT NOT NULL,
    statuses TEXT NOT NULL,
    state TEXT NOT NULL,
    position_history TEXT NOT NULL,
    position_at INTEGER NOT NULL,
    position_id INTEGER NOT NULL,
    replay INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    previous_until REAL NOT NULL,
    next_at REAL NOT NULL,
    failures INTEGER NOT NULL,
    failing_since REAL,
    delivered_at REAL,
    attempts TEXT NOT NULL,
    lease TEXT,
    leased_until REAL NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX webhooks_by_account ON webhooks (account_id);
