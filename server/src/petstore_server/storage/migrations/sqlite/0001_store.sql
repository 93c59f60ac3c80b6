-- Version 1: everything the service keeps.
--
-- A migration is applied once, in one transaction, and leaves the program of the version before it working: it adds,
-- it does not rename or remove. The number in the file's name becomes PRAGMA user_version.
--
-- STRICT: a value of the wrong type is refused instead of kept as it came.

-- "PETS": tells a store from any other program's SQLite file, which must never be migrated.
PRAGMA application_id = 0x50455453;

-- One row. `epoch` names this history of the store: a restore gives a new one, so that no reader takes the list or the
-- keys of before for those of after. `access_version` counts changes to accounts, keys and bans.
-- `heartbeat` exists to be written: a readiness check proves with it that the store can be.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch TEXT NOT NULL,
    access_version INTEGER NOT NULL DEFAULT 0,
    heartbeat INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO store (one, epoch) VALUES (1, lower(hex(randomblob(16))));

-- `record` is the order as the list serves it, encoded once when it is written. `revision` is the number of the change
-- to the list that last touched it; a cancel changes only the status, which the list does not show, and leaves it.
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('pending', 'shipped', 'cancelled')),
    revision INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;

-- Finds the newest revision, and what has changed since one, without a scan.
CREATE INDEX orders_by_revision ON orders (revision);

-- Finds where the list's pieces begin without a scan. The expression is `listing.STARTS_PIECE`, word for word.
CREATE INDEX orders_starting_pieces ON orders (id)
WHERE (((((((id & 4294967295) * 668265263) + (((id >> 32) & 4294967295) * 374761393)) % 2147483629) * ((((id & 4294967295) * 668265263) + (((id >> 32) & 4294967295) * 374761393)) % 2147483629)) % 2147483587) & 1023) = 0;

-- The orders with their fields as columns, for people with an SQL shell.
CREATE VIEW order_fields AS
SELECT
    id,
    record ->> 'petId' AS pet_id,
    record ->> 'quantity' AS quantity,
    record ->> 'shipDate' AS ship_date,
    record ->> 'complete' AS complete,
    status
FROM orders;

-- `name` and `tag` are absent where null.
CREATE TABLE pets (
    id INTEGER PRIMARY KEY,
    name TEXT,
    tag TEXT
) STRICT;

-- Times are Unix seconds throughout.
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    plan TEXT NOT NULL,
    per_minute INTEGER NOT NULL,
    per_day INTEGER NOT NULL,
    created_at REAL NOT NULL,
    suspended_at REAL
) STRICT;

-- `digest` is the SHA-256 of the key, which itself is kept nowhere. `scopes` are separated by spaces.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    environment TEXT NOT NULL,
    scopes TEXT NOT NULL,
    note TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    rotated_from TEXT REFERENCES keys
) STRICT;

CREATE INDEX keys_by_account ON keys (account_id);

-- At most one successor for each key: to rotate a key again, rotate its successor.
CREATE UNIQUE INDEX keys_by_predecessor ON keys (rotated_from) WHERE rotated_from IS NOT NULL;

-- The latest ban of each key, ended ones included: they lengthen the next.
CREATE TABLE bans (
    key_id TEXT PRIMARY KEY REFERENCES keys,
    began INTEGER NOT NULL,
    until INTEGER NOT NULL,
    level INTEGER NOT NULL
) STRICT;

-- What each account's windows were charged with, as last saved.
CREATE TABLE usage (
    account_id INTEGER PRIMARY KEY REFERENCES accounts,
    minute_start INTEGER NOT NULL,
    minute_used INTEGER NOT NULL,
    day_start INTEGER NOT NULL,
    day_used INTEGER NOT NULL
) STRICT;

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

-- The log is read from a time on.
CREATE INDEX audit_by_moment ON audit (at);
