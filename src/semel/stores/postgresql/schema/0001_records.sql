-- 0001: records, finished steps, and what identifies this database.
--
-- Instants are whole microseconds since 1970 on the clock of this server. The CHECKs keep every writer honest: a row
-- that breaks one of them was written by a mistake, and is refused instead of being believed later. The columns stand
-- in the order of their alignment, so that no bytes are lost between them.

CREATE TABLE {schema_table} (
    version     integer PRIMARY KEY,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    oldest      integer NOT NULL,
    post        boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE {schema_table} IS 'semel: which migrations were applied';
COMMENT ON COLUMN {schema_table}.version IS 'the number of the migration';
COMMENT ON COLUMN {schema_table}.applied_at IS 'when its first half was applied';
COMMENT ON COLUMN {schema_table}.oldest IS 'releases that know this version, and newer ones, can use the tables';
COMMENT ON COLUMN {schema_table}.post IS 'the second half was applied too, or there is none';

CREATE TABLE {meta} (
    name   text PRIMARY KEY,
    value  bytea NOT NULL
);
COMMENT ON TABLE {meta} IS 'semel: which database this is. within() compares install_id, so that a record never lands in another one';
COMMENT ON COLUMN {meta}.name IS 'install_id, search, restored or sweep';
COMMENT ON COLUMN {meta}.value IS '16 random bytes for install_id, else JSON';

INSERT INTO {meta} (name, value) VALUES ('install_id', decode(replace(gen_random_uuid()::text, '-', ''), 'hex'));

-- There are no records yet, so the first sweep has none to look for that are older.
INSERT INTO {meta} (name, value)
SELECT 'sweep', convert_to(
    json_build_object('claimed_us', n.now, 'running', '[]'::json, 'swept_us', n.now, 'complete_us', n.now)::text, 'UTF8'
)
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS n;

CREATE TABLE {record_table} (
    lease_us            bigint NOT NULL,
    created_us          bigint NOT NULL,
    started_us          bigint,
    updated_us          bigint NOT NULL,
    expires_us          bigint NOT NULL,
    keep_us             bigint NOT NULL,
    reconcile_after_us  bigint,
    replayed_us         bigint,
    doubt_us            bigint,
    fence               integer NOT NULL,
    attempts            integer NOT NULL,
    replays             integer,
    steps               integer,
    retryable           boolean NOT NULL,
    doubtful            boolean NOT NULL,
    wanted              boolean NOT NULL DEFAULT false,
    status              text COLLATE "C" NOT NULL,
    in_doubt_policy     text COLLATE "C",
    digest              bytea NOT NULL,
    nonce               bytea NOT NULL,
    fingerprint         bytea NOT NULL,
    scope               text COLLATE "C" NOT NULL,
    operation           text COLLATE "C" NOT NULL,
    value               text COLLATE "C" NOT NULL,
    error_type          text COLLATE "C",
    error_message       text COLLATE "C",
    subject             text COLLATE "C",
    business_key        text COLLATE "C",
    process_instance    text COLLATE "C",
    requester           text COLLATE "C",
    tags                text COLLATE "C",
    resolution          text COLLATE "C",
    outcome             bytea,

    -- Identity is bytes, so that no collation makes two keys equal. The texts beside it are for people.
    CONSTRAINT {prefix}record_pk PRIMARY KEY (digest),
    CONSTRAINT {prefix}record_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT {prefix}record_status CHECK (status IN ('running', 'completed', 'failed', 'in_doubt', 'cancelled')),
    CONSTRAINT {prefix}record_retryable CHECK (NOT retryable OR status = 'failed'),
    CONSTRAINT {prefix}record_lease CHECK (fence >= 1 AND octet_length(nonce) = 16),
    CONSTRAINT {prefix}record_policy CHECK (in_doubt_policy IN ('rerun', 'reconcile', 'hold')),
    CONSTRAINT {prefix}record_counts CHECK (attempts >= 0 AND steps >= 0 AND keep_us > 0 AND reconcile_after_us >= 0),
    -- Completed has an outcome (a tombstone is one too), and nothing else has.
    CONSTRAINT {prefix}record_outcome CHECK ((status = 'completed') = (outcome IS NOT NULL)),
    CONSTRAINT {prefix}record_error CHECK ((error_type IS NULL) = (error_message IS NULL)),
    CONSTRAINT {prefix}record_doubt CHECK ((status = 'in_doubt') = (doubt_us IS NOT NULL))
) {storage};
-- No index covers a column that completions change, so the second version of a row stays on its page and touches no
-- index (HOT) wherever the page has room: for single callers nearly always. Pages are filled to the end all the same:
-- lists of 64 would need half of each page kept free for that, which costs more bytes than it saves writing.

-- For the sweep, which goes through it for one value of keep_us after the other: what has expired is at the beginning of
-- each, and what was claimed lately at the end, because expires_us - keep_us is the instant of the claim until the record
-- is settled. Set at the claim, and as a rule not touched by the completion.
CREATE INDEX {prefix}record_expiry ON {record_table} (keep_us, expires_us);

-- For what is in doubt: a handful among millions. An ordinary record never enters it.
CREATE INDEX {prefix}record_doubt ON {record_table} (doubt_us) WHERE doubt_us IS NOT NULL;

COMMENT ON TABLE {record_table} IS 'semel: one row per key; what is known of an operation. Change it with semel resolve, never by hand';
COMMENT ON COLUMN {record_table}.digest IS 'identity: SHA-256 over scope, operation and value';
COMMENT ON COLUMN {record_table}.scope IS 'who the key belongs to';
COMMENT ON COLUMN {record_table}.operation IS 'what the key is for';
COMMENT ON COLUMN {record_table}.value IS 'the key as the caller gave it';
COMMENT ON COLUMN {record_table}.status IS 'running, completed, failed, in_doubt or cancelled';
COMMENT ON COLUMN {record_table}.retryable IS 'failed, and known to have had no effect: may be claimed again';
COMMENT ON COLUMN {record_table}.fingerprint IS 'digest of the request; the same key with another one is refused. Empty once it is erased';
COMMENT ON COLUMN {record_table}.fence IS 'rises with every claim; a late worker shows an older one and changes nothing';
COMMENT ON COLUMN {record_table}.nonce IS 'names the claim that holds the lease';
COMMENT ON COLUMN {record_table}.lease_us IS 'until when the claim is alive, unless renewed';
COMMENT ON COLUMN {record_table}.in_doubt_policy IS 'what its owner allows after an end without an outcome: reconcile or hold; NULL: rerun';
COMMENT ON COLUMN {record_table}.reconcile_after_us IS 'how long after the lease to wait before asking whether it happened; NULL: 30 s';
COMMENT ON COLUMN {record_table}.doubtful IS 'an earlier attempt may have had its effect';
COMMENT ON COLUMN {record_table}.attempts IS 'how often the handler was started';
COMMENT ON COLUMN {record_table}.outcome IS 'what duplicates are given, encoded by semel';
COMMENT ON COLUMN {record_table}.error_type IS 'class of the last error';
COMMENT ON COLUMN {record_table}.error_message IS 'message of the last error';
COMMENT ON COLUMN {record_table}.subject IS 'for people: what it is about';
COMMENT ON COLUMN {record_table}.business_key IS 'for people: the business object';
COMMENT ON COLUMN {record_table}.process_instance IS 'for people: the workflow';
COMMENT ON COLUMN {record_table}.requester IS 'for people: who asked';
COMMENT ON COLUMN {record_table}.tags IS 'for people: JSON object of strings';
COMMENT ON COLUMN {record_table}.created_us IS 'when the key was first claimed';
COMMENT ON COLUMN {record_table}.started_us IS 'when the latest attempt was granted; NULL: when the key was first claimed';
COMMENT ON COLUMN {record_table}.updated_us IS 'when the row last changed; of a settled one: when it was settled';
COMMENT ON COLUMN {record_table}.expires_us IS 'from when a settled record is forgotten';
COMMENT ON COLUMN {record_table}.keep_us IS 'how long an outcome is kept';
COMMENT ON COLUMN {record_table}.resolution IS 'how a doubt was ended, why and by whom';
COMMENT ON COLUMN {record_table}.replays IS 'how often it was replayed, written down now and then; NULL: never';
COMMENT ON COLUMN {record_table}.replayed_us IS 'when it was last replayed, as far as written down';
COMMENT ON COLUMN {record_table}.doubt_us IS 'since when it is in doubt; NULL where it is not';
COMMENT ON COLUMN {record_table}.steps IS 'how many finished steps there are';
COMMENT ON COLUMN {record_table}.wanted IS 'somebody waits: tell them when it ends';

-- Finished steps. `life` is created_us of the record they belong to: a new life of an expired key begins without them.
CREATE TABLE {step_table} (
    step      bigint GENERATED ALWAYS AS IDENTITY,
    life      bigint NOT NULL,
    position  integer NOT NULL CHECK (position >= 0),
    digest    bytea NOT NULL CHECK (octet_length(digest) = 32),
    name      text COLLATE "C" NOT NULL,
    outcome   bytea NOT NULL,
    CONSTRAINT {prefix}step_pk PRIMARY KEY (digest, position, step)
);
COMMENT ON TABLE {step_table} IS 'semel: finished steps of attempts; they are not run again';
COMMENT ON COLUMN {step_table}.step IS 'order of arrival';
COMMENT ON COLUMN {step_table}.life IS 'created_us of the record it belongs to';
COMMENT ON COLUMN {step_table}.position IS 'which step it is, from 0';
COMMENT ON COLUMN {step_table}.digest IS 'the record it belongs to';
COMMENT ON COLUMN {step_table}.name IS 'its name';
COMMENT ON COLUMN {step_table}.outcome IS 'its value, encoded by semel';

-- What records are searched by: a row for each value of `about`, written with the claim; operations that say nothing have
-- none. Scope and time are those of the record, so that a search reads the records of one page, and no others.
CREATE TABLE {search_table} (
    created_us  bigint NOT NULL,
    term        bigint NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    scope       text COLLATE "C" NOT NULL,
    CONSTRAINT {prefix}search_pk PRIMARY KEY (digest, term)
);
CREATE INDEX {prefix}term_everywhere ON {search_table} (term, created_us, digest);
CREATE INDEX {prefix}term_in_scope ON {search_table} (term, scope, created_us, digest);
COMMENT ON TABLE {search_table} IS 'semel: what records are searched by; the texts are in the records';
COMMENT ON COLUMN {search_table}.created_us IS 'created_us of the record it belongs to';
COMMENT ON COLUMN {search_table}.term IS 'number of a subject, requester, business key, process instance or tag';
COMMENT ON COLUMN {search_table}.digest IS 'the record it belongs to';
COMMENT ON COLUMN {search_table}.scope IS 'who the key of the record belongs to';

-- What happened to a record: written by the triggers below, in the very statement that changes the record, so that no
-- writer can leave it out and a rollback takes both. `position` is eight times the fence of the record, and 1 for an
-- attempt, 2 for a decision, 3 for a reopening, 4 for an erasure: nothing is entered twice. At most the 100 newest entries
-- of a record are kept.
CREATE TABLE {history_table} (
    life           bigint NOT NULL,
    started_us     bigint NOT NULL,
    ended_us       bigint NOT NULL,
    position       bigint NOT NULL,
    number         integer NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    ending         text COLLATE "C",
    digest         bytea NOT NULL,
    nonce          bytea,
    scope          text COLLATE "C" NOT NULL,
    error_type     text COLLATE "C",
    error_message  text COLLATE "C",
    CONSTRAINT {prefix}history_pk PRIMARY KEY (digest, life, position),
    CONSTRAINT {prefix}history_kind CHECK (kind IN ('attempt', 'taken_over', 'resolved', 'reopened', 'erased')),
    CONSTRAINT {prefix}history_ending CHECK (ending IN ('completed', 'failed', 'retryable', 'in_doubt', 'cancelled')),
    CONSTRAINT {prefix}history_bytes CHECK (octet_length(digest) = 32 AND octet_length(nonce) = 16),
    CONSTRAINT {prefix}history_error CHECK ((error_type IS NULL) = (error_message IS NULL))
);
COMMENT ON TABLE {history_table} IS 'semel: what happened to records; an attempt that completed has no row until the record forgets it';
COMMENT ON COLUMN {history_table}.life IS 'created_us of the record it belongs to';
COMMENT ON COLUMN {history_table}.started_us IS 'when the attempt was granted, or the decision made';
COMMENT ON COLUMN {history_table}.ended_us IS 'when that was over';
COMMENT ON COLUMN {history_table}.position IS 'the order of entries: eight times the fence, and 1 to 4 by kind';
COMMENT ON COLUMN {history_table}.number IS 'which attempt it was, or how many there had been';
COMMENT ON COLUMN {history_table}.kind IS 'attempt, taken_over, resolved, reopened or erased';
COMMENT ON COLUMN {history_table}.ending IS 'completed, failed, retryable, in_doubt or cancelled';
COMMENT ON COLUMN {history_table}.digest IS 'the record it belongs to';
COMMENT ON COLUMN {history_table}.nonce IS 'that of the attempt or the decision; its first six bytes name the process';
COMMENT ON COLUMN {history_table}.scope IS 'who the key belongs to; empty once it is erased';
COMMENT ON COLUMN {history_table}.error_type IS 'class of the error it ended with';
COMMENT ON COLUMN {history_table}.error_message IS 'message of that error';

CREATE FUNCTION {history_function}() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    rank integer;
BEGIN
    IF TG_OP = 'DELETE' OR NEW.created_us <> OLD.created_us THEN
        DELETE FROM {history_table} AS h WHERE h.digest = OLD.digest;
        RETURN NULL;
    END IF;
    -- What only the record knew so far: an attempt that runs, or one whose value is replaced.
    IF NEW.nonce <> OLD.nonce AND (OLD.status = 'running' OR (OLD.status = 'completed' AND NOT EXISTS (
        SELECT 1 FROM {history_table} AS h
        WHERE h.digest = OLD.digest AND h.life = OLD.created_us AND h.position = OLD.fence::bigint * 8 + 2
    ))) THEN
        INSERT INTO {history_table} (digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending)
        VALUES (
            OLD.digest, OLD.created_us, OLD.fence::bigint * 8 + 1, OLD.scope,
            CASE WHEN NEW.status = 'running' THEN 'taken_over' ELSE 'attempt' END, OLD.attempts,
            coalesce(OLD.started_us, OLD.created_us),
            CASE WHEN OLD.status = 'completed' THEN OLD.updated_us ELSE NEW.updated_us END, OLD.nonce,
            CASE WHEN OLD.status = 'completed' THEN 'completed' ELSE 'in_doubt' END
        )
        ON CONFLICT DO NOTHING;
    END IF;
    -- What was written: the end of an attempt whose handler was called, a decision, a reopening, or a failure that was
    -- counted afterwards.
    IF NEW.status <> 'running' AND (NEW.nonce <> OLD.nonce OR (
        OLD.status = 'running' AND NEW.attempts = OLD.attempts AND NEW.status IN ('failed', 'in_doubt')
    )) THEN
        rank := CASE
            WHEN NEW.nonce = OLD.nonce OR (OLD.status = 'failed' AND NEW.fence <> OLD.fence) THEN 1
            WHEN NEW.fence <> OLD.fence THEN 2 ELSE 3 END;
        INSERT INTO {history_table} (
            digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
        )
        SELECT NEW.digest, NEW.created_us, NEW.fence::bigint * 8 + rank, NEW.scope,
            CASE rank WHEN 1 THEN 'attempt' WHEN 2 THEN 'resolved' ELSE 'reopened' END,
            CASE WHEN rank = 3 THEN OLD.attempts ELSE NEW.attempts END,
            CASE WHEN rank = 1 THEN coalesce(NEW.started_us, NEW.created_us) ELSE NEW.updated_us END,
            NEW.updated_us, NEW.nonce, CASE WHEN NEW.retryable THEN 'retryable' ELSE NEW.status END,
            CASE WHEN e.is_kept THEN NEW.error_type END, CASE WHEN e.is_kept THEN NEW.error_message END
        FROM (SELECT rank = 1 OR (rank = 2 AND NEW.status = 'failed' AND NOT NEW.retryable) AS is_kept) AS e
        ON CONFLICT DO NOTHING;
    END IF;
    DELETE FROM {history_table} AS h
    WHERE NEW.fence > 33 AND h.digest = NEW.digest AND h.life = NEW.created_us AND h.position <= (
        SELECT x.position FROM {history_table} AS x WHERE x.digest = NEW.digest AND x.life = NEW.created_us
        ORDER BY x.position DESC OFFSET 100 LIMIT 1
    );
    RETURN NULL;
END
$body$;

-- Completions, renewals, steps and replays set neither of these columns, so the function is not called for them.
CREATE TRIGGER {prefix}history_written AFTER UPDATE OF doubtful, attempts ON {record_table}
    FOR EACH ROW EXECUTE FUNCTION {history_function}();

-- A first life that completed at its first attempt has no entries.
CREATE TRIGGER {prefix}history_deleted AFTER DELETE ON {record_table}
    FOR EACH ROW WHEN (NOT (OLD.fence = 1 AND OLD.status = 'completed' AND OLD.resolution IS NULL))
    EXECUTE FUNCTION {history_function}();

CREATE TABLE {worker_table} (
    started_us  bigint NOT NULL,
    seen_us     bigint NOT NULL,
    pid         bigint NOT NULL,
    process     bytea NOT NULL,
    host        varchar(255) COLLATE "C" NOT NULL,
    version     varchar(255) COLLATE "C" NOT NULL,
    CONSTRAINT {prefix}worker_pk PRIMARY KEY (process),
    CONSTRAINT {prefix}worker_process CHECK (octet_length(process) = 6)
);
COMMENT ON TABLE {worker_table} IS 'semel: one row per process that claimed; who holds a lease';
COMMENT ON COLUMN {worker_table}.started_us IS 'when it was first noted';
COMMENT ON COLUMN {worker_table}.seen_us IS 'when it was last noted';
COMMENT ON COLUMN {worker_table}.pid IS 'its process id';
COMMENT ON COLUMN {worker_table}.process IS 'the first six bytes of its nonces';
COMMENT ON COLUMN {worker_table}.host IS 'the name of its machine';
COMMENT ON COLUMN {worker_table}.version IS 'its release of semel';
