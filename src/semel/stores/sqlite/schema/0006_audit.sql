-- 0006: the audit chain, and tokens of operators.

-- One row for each chain, moved by compare-and-set. `chain` is made of the scope.
CREATE TABLE semel_audit_head (
    chain      BLOB NOT NULL PRIMARY KEY,
    scope      TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    hash       BLOB NOT NULL,
    at_us      INTEGER NOT NULL,
    kept_from  INTEGER NOT NULL,
    sealed     INTEGER NOT NULL,
    sealed_us  INTEGER NOT NULL,
    seal_hash  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- `written` is what a person wrote, and may be taken out; `seal` is 0 where it is not sealed. `ends` is the number of the
-- entry whose action ends here.
CREATE TABLE semel_audit (
    chain         BLOB NOT NULL,
    seq           INTEGER NOT NULL,
    at_us         INTEGER NOT NULL,
    ends          INTEGER NOT NULL,
    phase         INTEGER NOT NULL CHECK (phase BETWEEN 0 AND 2),
    seal          INTEGER NOT NULL DEFAULT 0,
    scope         TEXT NOT NULL,
    actor         TEXT NOT NULL,
    action        TEXT NOT NULL,
    target        TEXT NOT NULL,
    outcome       TEXT NOT NULL,
    id            BLOB NOT NULL,
    written_hash  BLOB NOT NULL,
    previous      BLOB NOT NULL,
    hash          BLOB NOT NULL,
    written       BLOB,
    PRIMARY KEY (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX semel_audit_id ON semel_audit (chain, id);
CREATE INDEX semel_audit_at ON semel_audit (at_us, seq, chain);
CREATE INDEX semel_audit_target ON semel_audit (target, at_us);
CREATE INDEX semel_audit_ends ON semel_audit (chain, ends) WHERE ends <> 0;

-- An entry is never changed, but that what a person wrote may be taken out; it goes only below what is kept.
CREATE TRIGGER semel_audit_changed BEFORE UPDATE ON semel_audit
WHEN NEW.written IS NOT NULL OR NEW.chain IS NOT OLD.chain OR NEW.seq IS NOT OLD.seq OR NEW.at_us IS NOT OLD.at_us
    OR NEW.ends IS NOT OLD.ends OR NEW.phase IS NOT OLD.phase OR NEW.scope IS NOT OLD.scope
    OR NEW.actor IS NOT OLD.actor OR NEW.action IS NOT OLD.action OR NEW.target IS NOT OLD.target
    OR NEW.outcome IS NOT OLD.outcome OR NEW.id IS NOT OLD.id OR NEW.written_hash IS NOT OLD.written_hash
    OR NEW.previous IS NOT OLD.previous OR NEW.hash IS NOT OLD.hash
BEGIN
    SELECT RAISE(ABORT, 'semel: an audit entry is never changed');
END;
CREATE TRIGGER semel_audit_deleted BEFORE DELETE ON semel_audit
WHEN NOT EXISTS (SELECT 1 FROM semel_audit_head AS h WHERE h.chain = OLD.chain AND OLD.seq < h.kept_from)
BEGIN
    SELECT RAISE(ABORT, 'semel: an audit entry is deleted only when it has expired');
END;

CREATE TABLE semel_audit_seal (
    chain       BLOB NOT NULL,
    first       INTEGER NOT NULL,
    last        INTEGER NOT NULL,
    at_us       INTEGER NOT NULL,
    last_hash   BLOB NOT NULL,
    range_hash  BLOB NOT NULL,
    previous    BLOB NOT NULL,
    hash        BLOB NOT NULL,
    PRIMARY KEY (chain, last)
) STRICT, WITHOUT ROWID;

-- The secret of a token is not here: only its hash.
CREATE TABLE semel_token (
    name         TEXT NOT NULL PRIMARY KEY,
    id           BLOB NOT NULL UNIQUE,
    secret_hash  BLOB NOT NULL,
    roles        TEXT NOT NULL,
    scopes       TEXT,
    created_us   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_us   INTEGER NOT NULL,
    used_us      INTEGER,
    revoked_us   INTEGER,
    revoked_by   TEXT
) STRICT, WITHOUT ROWID;
