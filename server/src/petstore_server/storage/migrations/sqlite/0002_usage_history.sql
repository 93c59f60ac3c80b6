-- Version 2: the usage history, and the store's identity.

-- Names this store, to tell its counters in Redis from another store's. A restore keeps the identity of the store that
-- it replaces.
ALTER TABLE store ADD COLUMN identity TEXT NOT NULL DEFAULT '';

UPDATE store SET identity = lower(hex(randomblob(8)));

-- What each account did in each hour, and after some months in each day: both begin at whole Unix seconds in UTC. A row
-- is written for an active account only. Every process adds what it counted since it last saved.
CREATE TABLE usage_hours (
    account_id INTEGER NOT NULL REFERENCES accounts,
    start INTEGER NOT NULL,
    admitted INTEGER NOT NULL,
    refused_minute INTEGER NOT NULL,
    refused_day INTEGER NOT NULL,
    refused_banned INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    PRIMARY KEY (account_id, start)
) STRICT, WITHOUT ROWID;

-- Finds the most active accounts of a period, and the hours that are old enough to be summed into days.
CREATE INDEX usage_hours_by_start ON usage_hours (start);

CREATE TABLE usage_days (
    account_id INTEGER NOT NULL REFERENCES accounts,
    start INTEGER NOT NULL,
    admitted INTEGER NOT NULL,
    refused_minute INTEGER NOT NULL,
    refused_day INTEGER NOT NULL,
    refused_banned INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    PRIMARY KEY (account_id, start)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_days_by_start ON usage_days (start);

-- Requests without a valid key, for the service as a whole: refused for the key, and by the limit of an address.
CREATE TABLE keyless_hours (
    start INTEGER PRIMARY KEY,
    refused_key INTEGER NOT NULL,
    refused_address INTEGER NOT NULL
) STRICT;

CREATE TABLE keyless_days (
    start INTEGER PRIMARY KEY,
    refused_key INTEGER NOT NULL,
    refused_address INTEGER NOT NULL
) STRICT;

-- The hour in which each key was last used.
CREATE TABLE key_use (
    key_id TEXT PRIMARY KEY REFERENCES keys,
    last_hour INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
