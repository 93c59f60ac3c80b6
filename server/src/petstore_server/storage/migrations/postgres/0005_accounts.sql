-- Version 5: contact, note and end of accounts, and the last backup.

-- `contact` and `note` are text for operators. A closed account is suspended too, which earlier releases respect.
ALTER TABLE petstore.accounts
    ADD COLUMN contact text NOT NULL DEFAULT '',
    ADD COLUMN note text NOT NULL DEFAULT '',
    ADD COLUMN closed_at double precision;

-- When the last good backup of this store was made, in Unix seconds.
ALTER TABLE petstore.store ADD COLUMN backed_up_at double precision;
