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
