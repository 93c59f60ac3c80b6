-- Version 5: contact, note and end of accounts, and the last backup.

-- `contact` and `note` are text for operators. A closed account is suspended too, which earlier releases respect.
ALTER TABLE accounts ADD COLUMN contact TEXT NOT NULL DEFAULT '';

ALTER TABLE accounts ADD COLUMN note TEXT NOT NULL DEFAULT '';

ALTER TABLE accounts ADD COLUMN closed_at REAL;

-- When the last good backup of this store was made, in Unix seconds.
ALTER TABLE store ADD COLUMN backed_up_at REAL;
