-- Version 1: everything the service keeps.
--
-- A migration is applied once, in one transaction, and leaves the program of the version before it working: it adds,
-- it does not rename or remove. The number in the file's name is kept in store.migration, from 2 on.
--
-- STRICT: a value of the wrong type is refused instead of kept as it came.

-- "PETS": tells a store from any other program's SQLite file, which must never be migrated.
PRAGMA application_id = 0x50455453;

-- One row. `epoch` names this history of the store: a restore gives a new one, so that no reader takes the list or the
-- keys of before for those of after. `access_version` counts changes to accounts, keys and bans. `heartbeat` exists to
-- be written: a readiness check proves with it that the store can be. `backed_up_at` is when the last good backup was
-- made. `damage` is what a process has seen of damage to the store: no process then accepts a change. `identity` names
-- the store, to tell its counters in Redis from another store's: a restore keeps that of the store that it replaces.
-- `file` is the inode in which the store was opened last, empty before the first time: in another one, the store begins
-- a new history.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    identity TEXT NOT NULL,
    epoch TEXT NOT NULL,
    file TEXT NOT NULL DEFAULT '',
    access_version INTEGER NOT NULL DEFAULT 0,
    heartbeat INTEGER NOT NULL DEFAULT 0,
    backed_up_at REAL,
    damage TEXT
) STRICT;

INSERT INTO store (one, identity, epoch) VALUES (1, lower(hex(randomblob(8))), lower(hex(randomblob(16))));

-- The one clock of changes, one row: the number and the time (Unix microseconds) of the last transaction that changed
-- orders, and the largest identifier ever assigned to an order. Each such transaction advances it.
CREATE TABLE clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    change INTEGER NOT NULL,
    at INTEGER NOT NULL,
    last_order_id INTEGER NOT NULL
) STRICT;

INSERT INTO clock (one, change, at, last_order_id) VALUES (1, 0, 0, 0);

-- `record` is the order as version 1 lists it, encoded once when it is written; the columns before it are what lists of
-- version 2 filter and sort by. `complete` is 0 where the order has no such field. Timestamps are Unix microseconds.
-- `updated_at` is the clock's time of the last change. `revision` is the clock's number of the last change that the
-- list of version 1 shows: a cancel changes only the status, which that list does not show, and leaves it. `placed` is 1
-- for an order that was placed over the API. `reference` is the partner's own number of the order, in version 2 only.
-- `imported` is the batch of the last import that created or changed the order.
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'shipped' OR status = 'cancelled'),
    pet_id INTEGER,
    complete INTEGER NOT NULL,
    ship_date INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    placed INTEGER NOT NULL,
    reference TEXT,
    imported INTEGER,
    record TEXT NOT NULL
) STRICT;

-- Lists of version 2: `store.search` says how they are used. The first four also have most of what else lists filter and
-- sort by, so that mostly only the orders of a page are read. A cancel does not write those of the pet and the ship date:
-- they lack what it changes, the status and the time.
CREATE INDEX orders_by_status ON orders (status, id, pet_id, complete, ship_date, updated_at);
CREATE INDEX orders_by_updated_at ON orders (updated_at, id, status, pet_id, complete, ship_date);
CREATE INDEX orders_by_pet ON orders (pet_id, id, complete, ship_date);
CREATE INDEX orders_by_ship_date ON orders (ship_date, id, pet_id, complete);
CREATE INDEX orders_by_reference ON orders (reference) WHERE reference IS NOT NULL;

-- Finds what has changed in the list of version 1 since a revision, without a scan.
CREATE INDEX orders_by_revision ON orders (revision);

-- Finds where the list's pieces begin without a scan. The expression is `listing.STARTS_PIECE`, word for word.
CREATE INDEX orders_starting_pieces ON orders (id)
WHERE ((((((((id & 4294967295) * 668265263) + (((id >> 32) & 4294967295) * 374761393)) % 2147483629) * ((((id & 4294967295) * 668265263) + (((id >> 32) & 4294967295) * 374761393)) % 2147483629)) % 2147483587) & 1023) = 0);

-- `record` is the pet as JSON, which can hold every text that a file can.
CREATE TABLE pets (
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL
) STRICT;

-- Times are Unix seconds from here on. `contact` and `note` are text for operators.
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    plan TEXT NOT NULL,
    per_minute INTEGER NOT NULL,
    per_day INTEGER NOT NULL,
    created_at REAL NOT NULL,
    suspended_at REAL,
    contact TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '',
    closed_at REAL
) STRICT;

-- `digest` is the SHA-256 of the key, which itself is stored nowhere. `scopes` are separated by spaces.
CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    account_id INTEGER NOT NULL REFERENCES accounts,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    environment TEXT NOT NULL,
    scopes TEXT NOT NULL,
    note TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    rotated_from TEXT REFERENCES keys (id)
) STRICT;

CREATE INDEX keys_by_account ON keys (account_id);

-- At most one successor for each key: to rotate a key again, rotate its successor.
CREATE UNIQUE INDEX keys_by_predecessor ON keys (rotated_from) WHERE rotated_from IS NOT NULL;

-- The latest ban of each key, ended ones included: they lengthen the next.
CREATE TABLE bans (
    key_id TEXT PRIMARY KEY REFERENCES keys (id),
    began INTEGER NOT NULL,
    until INTEGER NOT NULL,
    level INTEGER NOT NULL
) STRICT;

-- The orders placed with each idempotency key, for 24 hours. `key` is the SHA-256 of the client's key,
-- which may be an API key by mistake. `digest` is the SHA-256 of the request's content.
CREATE TABLE idempotency_keys (
    account_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    order_id INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (account_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_time ON idempotency_keys (at);

-- What each account's windows were charged with, as last saved.
CREATE TABLE usage (
    account_id INTEGER PRIMARY KEY REFERENCES accounts,
    minute_start INTEGER NOT NULL,
    minute_used INTEGER NOT NULL,
    day_start INTEGER NOT NULL,
    day_used INTEGER NOT NULL
) STRICT;

-- What each account did in each hour, and after some months in each day, with each operation ("none": its path is not
-- served): `seconds` is the length of a period, and `start` its begin, whole in UTC, in Unix seconds. A row is written
-- only for what was used. Every process adds what it counted since it last saved. After `cancelled` (204), the columns
-- are the other responses to admitted requests, as `UsageCounts` has them.
CREATE TABLE usage_history (
    account_id INTEGER NOT NULL REFERENCES accounts,
    seconds INTEGER NOT NULL CHECK (seconds = 3600 OR seconds = 86400),
    start INTEGER NOT NULL,
    operation TEXT NOT NULL,
    admitted INTEGER NOT NULL,
    refused_minute INTEGER NOT NULL,
    refused_day INTEGER NOT NULL,
    refused_banned INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    forbidden INTEGER NOT NULL,
    not_found INTEGER NOT NULL,
    conflict INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    invalid INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (account_id, seconds, start, operation)
) STRICT, WITHOUT ROWID;

-- Finds the most active accounts of a period, and the hours that are old enough to be summed into days.
CREATE INDEX usage_history_by_start ON usage_history (seconds, start);

-- Requests without a valid key, for the service as a whole: refused for the key, and by the limit of an address.
CREATE TABLE keyless_history (
    seconds INTEGER NOT NULL CHECK (seconds = 3600 OR seconds = 86400),
    start INTEGER NOT NULL,
    refused_key INTEGER NOT NULL,
    refused_address INTEGER NOT NULL,
    PRIMARY KEY (seconds, start)
) STRICT, WITHOUT ROWID;

-- The hour in which each account last used each operation of the API ("getPet"), and each version ("v1.*").
CREATE TABLE api_use (
    account_id INTEGER NOT NULL REFERENCES accounts,
    used TEXT NOT NULL,
    last_hour INTEGER NOT NULL,
    PRIMARY KEY (account_id, used)
) STRICT, WITHOUT ROWID;

-- The hour in which each key was last used.
CREATE TABLE key_use (
    key_id TEXT PRIMARY KEY REFERENCES keys (id),
    last_hour INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who changed what and when; `before` and `after` are JSON of what changed.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    "before" TEXT,
    "after" TEXT
) STRICT;

-- The log is read from a time on, or for one order, account or key.
CREATE INDEX audit_by_time ON audit (at);
CREATE INDEX audit_by_subject ON audit (subject, at);

-- The changes of orders that API keys make are most of the log. The first two leave these out; the third has only them.
-- The conditions are those of `store.audit`, word for word.
CREATE INDEX audit_by_actor ON audit (actor, at) WHERE substr(actor, 1, 4) <> 'key:';
CREATE INDEX audit_by_action ON audit (action, at) WHERE action <> 'order.cancel' AND action <> 'order.place';
CREATE INDEX audit_by_request ON audit ("after" ->> 'request_id') WHERE (action = 'order.cancel' OR action = 'order.place');

-- One row for each run of an import of orders or pets, with what it has done so far; dry runs have none. A process that
-- runs writes `seen_at` every few seconds: a run that is not seen any more was interrupted. Both times are the store's.
-- `reasons` are those of rejected rows, and `error` is why a run failed, both as JSON.
CREATE TABLE imports (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('orders', 'pets')),
    file TEXT NOT NULL,
    actor TEXT NOT NULL,
    began_at REAL NOT NULL,
    seen_at REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'failed', 'interrupted')),
    created INTEGER NOT NULL,
    replaced INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    reasons TEXT NOT NULL,
    error TEXT
) STRICT;

CREATE INDEX imports_by_time ON imports (began_at, id);

-- The first rows that a run rejected, as JSON, for 30 days.
CREATE TABLE import_rejects (
    import_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    reject TEXT NOT NULL,
    PRIMARY KEY (import_id, number)
) STRICT;

-- The batches of imports that changed something: part of the audit log, which has one entry for the whole import. `before`
-- and `after` are JSON of what it changed. `previous` is JSON of the batches that had imported these orders last, by the
-- order: from `orders.imported` on, it leads to all imports of an order.
CREATE TABLE import_batches (
    id INTEGER PRIMARY KEY,
    import_id TEXT NOT NULL,
    at REAL NOT NULL,
    "before" TEXT,
    "after" TEXT,
    previous TEXT
) STRICT;

CREATE INDEX import_batches_by_import ON import_batches (import_id);

-- Sign-in links and sessions of the console. `digest` is the SHA-256 of the token, which itself is stored nowhere;
-- `actor` is the name under which changes are audited.
CREATE TABLE console_sessions (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    kind TEXT NOT NULL CHECK (kind IN ('link', 'session')),
    actor TEXT NOT NULL,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- The forms of the console that were submitted: a form works once, on every host. `digest` is the SHA-256 of its path and
-- content, of which a random text is part.
CREATE TABLE console_forms (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    submitted_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- The state of the service on each host, and since when, as the console there last found it. `stopped` is 1 after an
-- orderly stop.
CREATE TABLE health (
    host TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('ready', 'degraded', 'not ready')),
    reason TEXT NOT NULL,
    since REAL NOT NULL,
    checked_at REAL NOT NULL,
    stopped INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
