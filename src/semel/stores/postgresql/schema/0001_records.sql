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
COMMENT ON COLUMN {meta}.name IS 'install_id, search or restored';
COMMENT ON COLUMN {meta}.value IS '16 random bytes for install_id, else JSON';

INSERT INTO {meta} (name, value) VALUES ('install_id', decode(replace(gen_random_uuid()::text, '-', ''), 'hex'));

CREATE TABLE {record_table} (
    lease_us            bigint NOT NULL,
    created_us          bigint NOT NULL,
    started_us          bigint,
    updated_us          bigint NOT NULL,
    expires_us          bigint NOT NULL,
    keep_us             bigint NOT NULL,
    reconcile_after_us  bigint NOT NULL,
    replayed_us         bigint,
    fence               integer NOT NULL,
    attempts            integer NOT NULL,
    replays             integer,
    steps               integer,
    retryable           boolean NOT NULL,
    doubtful            boolean NOT NULL,
    wanted              boolean NOT NULL DEFAULT false,
    status              text COLLATE "C" NOT NULL,
    in_doubt_policy     text COLLATE "C" NOT NULL,
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
    CONSTRAINT {prefix}record_error CHECK ((error_type IS NULL) = (error_message IS NULL))
) {storage};
-- No index covers a column that completions change, so the second version of a row stays on its page and touches no
-- index (HOT) wherever the page has room: for single callers nearly always. Pages are filled to the end all the same:
-- lists of 64 would need half of each page kept free for that, which costs more bytes than it saves writing.

-- For the sweep, which reads it in order. Set at the claim, and as a rule not touched by the completion.
CREATE INDEX {prefix}record_expiry ON {record_table} (expires_us);

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
COMMENT ON COLUMN {record_table}.in_doubt_policy IS 'what its owner allows after an end without an outcome: rerun, reconcile or hold';
COMMENT ON COLUMN {record_table}.reconcile_after_us IS 'how long after the lease to wait before asking whether it happened';
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
