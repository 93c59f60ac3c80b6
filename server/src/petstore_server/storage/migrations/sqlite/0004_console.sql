-- Version 4: the operator console.

-- Sign-in links and sessions of the console. `digest` is the SHA-256 of the token, which itself is stored nowhere;
-- `actor` is the name under which changes are audited.
CREATE TABLE console_sessions (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    kind TEXT NOT NULL CHECK (kind IN ('link', 'session')),
    actor TEXT NOT NULL,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Finds what happened to one order, account or key.
CREATE INDEX audit_by_subject ON audit (subject, at, id);
