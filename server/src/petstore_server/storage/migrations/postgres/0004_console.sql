-- Version 4: the operator console.

-- Sign-in links and sessions of the console. `digest` is the SHA-256 of the token, which itself is stored nowhere;
-- `actor` is the name under which changes are audited.
CREATE TABLE petstore.console_sessions (
    digest bytea PRIMARY KEY CHECK (length(digest) = 32),
    kind text NOT NULL CHECK (kind IN ('link', 'session')),
    actor text NOT NULL,
    expires_at double precision NOT NULL
);

-- Finds what happened to one order, account or key.
CREATE INDEX audit_by_subject ON petstore.audit (subject, at, id);
