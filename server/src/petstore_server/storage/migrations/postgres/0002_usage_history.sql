-- Version 2: the usage history.

-- What each account did in each hour, and after some months in each day: both begin at whole Unix seconds in UTC. A row
-- is written for an active account only. Every process adds what it counted since it last saved.
CREATE TABLE petstore.usage_hours (
    account_id bigint NOT NULL REFERENCES petstore.accounts,
    start bigint NOT NULL,
    admitted bigint NOT NULL,
    refused_minute bigint NOT NULL,
    refused_day bigint NOT NULL,
    refused_banned bigint NOT NULL,
    cancelled bigint NOT NULL,
    PRIMARY KEY (account_id, start)
) WITH (fillfactor = 70); -- the newest rows are updated every second: room is left so that no index is touched

-- Finds the most active accounts of a period, and the hours that are old enough to be summed into days.
CREATE INDEX usage_hours_by_start ON petstore.usage_hours (start);

CREATE TABLE petstore.usage_days (
    account_id bigint NOT NULL REFERENCES petstore.accounts,
    start bigint NOT NULL,
    admitted bigint NOT NULL,
    refused_minute bigint NOT NULL,
    refused_day bigint NOT NULL,
    refused_banned bigint NOT NULL,
    cancelled bigint NOT NULL,
    PRIMARY KEY (account_id, start)
);

CREATE INDEX usage_days_by_start ON petstore.usage_days (start);

-- Requests without a valid key, for the service as a whole: refused for the key, and by the limit of an address.
CREATE TABLE petstore.keyless_hours (
    start bigint PRIMARY KEY,
    refused_key bigint NOT NULL,
    refused_address bigint NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE petstore.keyless_days (
    start bigint PRIMARY KEY,
    refused_key bigint NOT NULL,
    refused_address bigint NOT NULL
);

-- The hour in which each key was last used.
CREATE TABLE petstore.key_use (
    key_id text COLLATE "C" PRIMARY KEY REFERENCES petstore.keys,
    last_hour bigint NOT NULL
) WITH (fillfactor = 70);
