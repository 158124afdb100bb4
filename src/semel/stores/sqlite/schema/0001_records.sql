-- 0001: records, finished steps, and what identifies this database.
--
-- Instants are whole microseconds since 1970 on the store's clock. STRICT and the CHECKs keep every writer honest:
-- a row that breaks one of them was written by a mistake, and is refused instead of being believed later.

CREATE TABLE semel_schema (
    version     INTEGER PRIMARY KEY,
    applied_at  INTEGER NOT NULL
) STRICT;

-- Says which database this is. `within` compares install_id, so that a record never lands in another database.
CREATE TABLE semel_meta (
    name   TEXT PRIMARY KEY,
    value  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO semel_meta (name, value) VALUES ('install_id', randomblob(16));

-- A table with a rowid, on purpose: digests are random, so a clustered table would put each record (outcome included)
-- on a random page. Measured at 1 M records: a batch of 64 claims and completions takes 7 ms here, 11-16 ms without
-- rowid; 580 bytes a record here, 639 there.
CREATE TABLE semel_record (
    -- Identity: bytes, so that no collation makes two keys equal. The texts beside it are for people.
    digest              BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 32),
    scope               TEXT NOT NULL,
    operation           TEXT NOT NULL,
    value               TEXT NOT NULL,

    -- Words are compared one by one, here and below: for a list of more than two, SQLite builds a small table at
    -- every statement, which made an INSERT half as long again.
    status              TEXT NOT NULL CHECK (
        status = 'running' OR status = 'completed' OR status = 'failed' OR status = 'in_doubt' OR status = 'cancelled'
    ),
    retryable           INTEGER NOT NULL CHECK (retryable = 0 OR (retryable = 1 AND status = 'failed')),
    -- Empty in a record that was erased, which has no text of its key either, and nowhere else.
    fingerprint         BLOB NOT NULL CHECK ((length(fingerprint) = 0) = (length(value) = 0)),

    -- The lease: every later write shows fence and nonce. No lease is eternal, so lease_us is never NULL.
    fence               INTEGER NOT NULL CHECK (fence >= 1),
    nonce               BLOB NOT NULL CHECK (length(nonce) = 16),
    lease_us            INTEGER NOT NULL,

    in_doubt_policy     TEXT NOT NULL CHECK (
        in_doubt_policy = 'rerun' OR in_doubt_policy = 'reconcile' OR in_doubt_policy = 'hold'
    ),
    reconcile_after_us  INTEGER NOT NULL CHECK (reconcile_after_us >= 0),
    doubtful            INTEGER NOT NULL CHECK (doubtful IN (0, 1)),
    attempts            INTEGER NOT NULL CHECK (attempts >= 0),

    -- Completed has an outcome (a tombstone is one too), and nothing else has.
    outcome             BLOB CHECK ((status = 'completed') = (outcome IS NOT NULL)),
    error_type          TEXT,
    error_message       TEXT CHECK ((error_type IS NULL) = (error_message IS NULL)),

    subject             TEXT,
    business_key        TEXT,
    process_instance    TEXT,
    requester           TEXT,
    tags                TEXT,

    created_us          INTEGER NOT NULL,
    started_us          INTEGER NOT NULL,
    updated_us          INTEGER NOT NULL,
    completed_us        INTEGER,
    expires_us          INTEGER NOT NULL,
    keep_us             INTEGER NOT NULL CHECK (keep_us > 0),
    resolution          TEXT,
    replays             INTEGER NOT NULL DEFAULT 0,
    replayed_us         INTEGER,

    -- How many finished steps belong to this life of the record: 0 spares every reader the look into semel_step.
    steps               INTEGER NOT NULL DEFAULT 0 CHECK (steps >= 0)
) STRICT;

-- For the sweep. On expires_us alone: it is set at the claim and as a rule not touched by the completion, so the
-- index is written once per record, at its end.
CREATE INDEX semel_record_expiry ON semel_record (expires_us);

-- For marking lapsed leases and for listing what is in doubt or running. Partial: it holds only what is not settled,
-- so it stays small and warm however many records are kept.
CREATE INDEX semel_record_open ON semel_record (lease_us) WHERE status IN ('running', 'in_doubt');

-- For listing by time, page after page. Written once per record, at its end.
CREATE INDEX semel_record_created ON semel_record (created_us, digest);

-- Operation and scope have no index: such a listing walks semel_record_created and filters.

-- What records are searched by: a row for each value of `about`, written with the claim; operations that say nothing have
-- none. `term` is the number of the value, whose text is in the record; scope and time are those of the record, so that a
-- search reads the records of one page, and no others. Both indexes end with the digest, which is part of the key.
CREATE TABLE semel_search (
    digest      BLOB NOT NULL CHECK (length(digest) = 32),
    term        INTEGER NOT NULL,
    created_us  INTEGER NOT NULL,
    scope       TEXT NOT NULL,
    PRIMARY KEY (digest, term)
) STRICT, WITHOUT ROWID;

CREATE INDEX semel_term_everywhere ON semel_search (term, created_us);
CREATE INDEX semel_term_in_scope ON semel_search (term, scope, created_us);

-- Finished steps. `step` keeps the order of arrival; a row belongs to the record of the same digest.
CREATE TABLE semel_step (
    step      INTEGER PRIMARY KEY,
    digest    BLOB NOT NULL CHECK (length(digest) = 32),
    position  INTEGER NOT NULL CHECK (position >= 0),
    name      TEXT NOT NULL,
    outcome   BLOB NOT NULL
) STRICT;

CREATE INDEX semel_step_record ON semel_step (digest, position);

-- What happened to a record: written by the triggers below, in the very statement that changes the record, so that no
-- writer can leave it out and a rollback takes both. `life` is created_us of the record. `position` is eight times the
-- fence of the record, and 1 for an attempt, 2 for a decision, 3 for a reopening, 4 for an erasure: nothing is entered
-- twice. At most the 100 newest entries of a record are kept.
CREATE TABLE semel_history (
    digest         BLOB NOT NULL CHECK (length(digest) = 32),
    life           INTEGER NOT NULL,
    position       INTEGER NOT NULL CHECK (position > 8),
    scope          TEXT NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('attempt', 'taken_over', 'resolved', 'reopened', 'erased')),
    number         INTEGER NOT NULL CHECK (number >= 0),
    started_us     INTEGER NOT NULL,
    ended_us       INTEGER NOT NULL,
    nonce          BLOB CHECK (length(nonce) = 16),
    ending         TEXT CHECK (ending IN ('completed', 'failed', 'retryable', 'in_doubt', 'cancelled')),
    error_type     TEXT,
    error_message  TEXT CHECK ((error_type IS NULL) = (error_message IS NULL)),
    PRIMARY KEY (digest, life, position)
) STRICT, WITHOUT ROWID;

-- Completions, renewals, steps and replays set neither of these columns, so for them this trigger does not exist.
CREATE TRIGGER semel_history_written AFTER UPDATE OF doubtful, attempts ON semel_record
WHEN NEW.created_us = OLD.created_us
BEGIN
    -- What only the record knew so far: an attempt that runs, or one whose value is replaced.
    INSERT INTO semel_history (digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending)
    SELECT OLD.digest, OLD.created_us, OLD.fence * 8 + 1, OLD.scope,
        CASE WHEN NEW.status = 'running' THEN 'taken_over' ELSE 'attempt' END, OLD.attempts, OLD.started_us,
        coalesce(OLD.completed_us, NEW.updated_us), OLD.nonce,
        CASE WHEN OLD.status = 'completed' THEN 'completed' ELSE 'in_doubt' END
    WHERE NEW.nonce <> OLD.nonce AND (OLD.status = 'running' OR (OLD.status = 'completed' AND NOT EXISTS (
        SELECT 1 FROM semel_history AS h
        WHERE h.digest = OLD.digest AND h.life = OLD.created_us AND h.position = OLD.fence * 8 + 2
    )))
    ON CONFLICT DO NOTHING;

    -- What was written: the end of an attempt whose handler was called, a decision, a reopening, or a failure that was
    -- counted afterwards.
    INSERT INTO semel_history (
        digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
    )
    SELECT NEW.digest, NEW.created_us, NEW.fence * 8 + e.rank, NEW.scope,
        CASE e.rank WHEN 1 THEN 'attempt' WHEN 2 THEN 'resolved' ELSE 'reopened' END,
        CASE WHEN e.rank = 3 THEN OLD.attempts ELSE NEW.attempts END,
        CASE WHEN e.rank = 1 THEN NEW.started_us ELSE NEW.updated_us END, NEW.updated_us, NEW.nonce,
        CASE WHEN NEW.retryable THEN 'retryable' ELSE NEW.status END,
        CASE WHEN e.rank = 1 OR (e.rank = 2 AND NEW.status = 'failed' AND NOT NEW.retryable) THEN NEW.error_type END,
        CASE WHEN e.rank = 1 OR (e.rank = 2 AND NEW.status = 'failed' AND NOT NEW.retryable) THEN NEW.error_message END
    FROM (
        SELECT CASE
            WHEN NEW.nonce = OLD.nonce OR (OLD.status = 'failed' AND NEW.fence <> OLD.fence) THEN 1
            WHEN NEW.fence <> OLD.fence THEN 2 ELSE 3 END AS rank
    ) AS e
    WHERE NEW.status <> 'running' AND (NEW.nonce <> OLD.nonce OR (
        OLD.status = 'running' AND NEW.attempts = OLD.attempts AND (NEW.status = 'failed' OR NEW.status = 'in_doubt')
    ))
    ON CONFLICT DO NOTHING;

    DELETE FROM semel_history WHERE digest = NEW.digest AND life = NEW.created_us AND position <= (
        SELECT h.position FROM semel_history AS h WHERE h.digest = NEW.digest AND h.life = NEW.created_us
        ORDER BY h.position DESC LIMIT 1 OFFSET 100
    );
END;

CREATE TRIGGER semel_history_next_life AFTER UPDATE OF doubtful, attempts ON semel_record
WHEN NEW.created_us <> OLD.created_us
BEGIN
    DELETE FROM semel_history WHERE digest = OLD.digest;
END;

-- A first life that completed at its first attempt has no entries.
CREATE TRIGGER semel_history_deleted AFTER DELETE ON semel_record
WHEN NOT (OLD.fence = 1 AND OLD.status = 'completed' AND OLD.resolution IS NULL)
BEGIN
    DELETE FROM semel_history WHERE digest = OLD.digest;
END;

-- One row per process: the first six bytes of its nonces name it.
CREATE TABLE semel_worker (
    process     BLOB NOT NULL PRIMARY KEY CHECK (length(process) = 6),
    host        TEXT NOT NULL CHECK (length(host) <= 255),
    pid         INTEGER NOT NULL,
    version     TEXT NOT NULL CHECK (length(version) <= 255),
    started_us  INTEGER NOT NULL,
    seen_us     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
