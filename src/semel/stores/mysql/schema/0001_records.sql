-- 0001: records, finished steps, the gates of within(), and what identifies this database.
--
-- Instants are whole microseconds since 1970 on the clock of this server. The CHECKs keep every writer honest: a row
-- that breaks one of them was written by a mistake, and is refused instead of being believed later. Every CREATE ends a
-- transaction here, so each statement may be run again after a crash half-way.

CREATE TABLE IF NOT EXISTS {schema_table} (
    version     INT NOT NULL PRIMARY KEY COMMENT 'the number of the migration',
    applied_at  TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'when its first half was applied',
    oldest      INT NOT NULL COMMENT 'releases that know this version, and newer ones, can use the tables',
    post        BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'the second half was applied too, or there is none'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: which migrations were applied';

CREATE TABLE IF NOT EXISTS {meta} (
    name   VARCHAR(64) NOT NULL PRIMARY KEY COMMENT 'install_id, and what operators note',
    value  LONGBLOB NOT NULL COMMENT '16 random bytes for install_id, else JSON'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: which database this is. within() compares install_id, so that a record never lands in another one';

INSERT INTO {meta} (name, value)
SELECT 'install_id', UNHEX(REPLACE(UUID(), '-', '')) FROM (SELECT 1 AS one) AS x
WHERE NOT EXISTS (SELECT 1 FROM {meta} AS m WHERE m.name = 'install_id');

-- There are no records yet, so the first sweep has none to look for that are older.
INSERT INTO {meta} (name, value)
SELECT 'sweep', CONCAT('{"claimed_us":', n.now, ',"running":[],"swept_us":', n.now, ',"complete_us":', n.now, '}')
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now) AS n
WHERE NOT EXISTS (SELECT 1 FROM {meta} AS m WHERE m.name = 'sweep');

CREATE TABLE IF NOT EXISTS {record_table} (
    digest              BINARY(32) NOT NULL COMMENT 'identity: SHA-256 over scope, operation and value',
    lease_us            BIGINT NOT NULL COMMENT 'until when the claim is alive, unless renewed',
    created_us          BIGINT NOT NULL COMMENT 'when the key was first claimed',
    started_us          BIGINT NOT NULL COMMENT 'when the latest attempt was granted',
    updated_us          BIGINT NOT NULL COMMENT 'when the row last changed',
    completed_us        BIGINT COMMENT 'when it was settled',
    expires_us          BIGINT NOT NULL COMMENT 'from when a settled record is forgotten',
    keep_us             BIGINT NOT NULL COMMENT 'how long an outcome is kept',
    reconcile_after_us  BIGINT COMMENT 'how long after the lease to wait before asking whether it happened; NULL: 30 s',
    replayed_us         BIGINT COMMENT 'when it was last replayed, as far as written down',
    doubt_us            BIGINT COMMENT 'since when it is in doubt; NULL where it is not',
    fence               BIGINT NOT NULL COMMENT 'rises with every claim; a late worker shows an older one and changes nothing',
    attempts            INT NOT NULL COMMENT 'how often the handler was started',
    replays             INT NOT NULL DEFAULT 0 COMMENT 'how often it was replayed, written down now and then',
    steps               INT NOT NULL DEFAULT 0 COMMENT 'how often finished steps were added',
    retryable           BOOLEAN NOT NULL COMMENT 'failed, and known to have had no effect: may be claimed again',
    doubtful            BOOLEAN NOT NULL COMMENT 'an earlier attempt may have had its effect',
    status              VARCHAR(16) NOT NULL COMMENT 'running, completed, failed, in_doubt or cancelled',
    in_doubt_policy     VARCHAR(16) COMMENT 'what its owner allows after an end without an outcome: reconcile or hold; NULL: rerun',
    nonce               BINARY(16) NOT NULL COMMENT 'names the claim that holds the lease',
    taken_nonce         BINARY(16) COMMENT 'names the claim that this one has taken over, where it has',
    taken_started_us    BIGINT COMMENT 'when that one was granted',
    fingerprint         VARBINARY(64) NOT NULL COMMENT 'digest of the request; the same key with another one is refused. Empty once it is erased',
    scope               VARCHAR(255) NOT NULL COMMENT 'who the key belongs to',
    operation           VARCHAR(255) NOT NULL COMMENT 'what the key is for',
    value               VARCHAR(255) NOT NULL COMMENT 'the key as the caller gave it',
    error_type          TEXT COMMENT 'class of the last error',
    error_message       TEXT COMMENT 'message of the last error',
    subject             MEDIUMTEXT COMMENT 'for people: what it is about',
    business_key        MEDIUMTEXT COMMENT 'for people: the business object',
    process_instance    MEDIUMTEXT COMMENT 'for people: the workflow',
    requester           MEDIUMTEXT COMMENT 'for people: who asked',
    tags                MEDIUMTEXT COMMENT 'for people: JSON object of strings',
    resolution          MEDIUMTEXT COMMENT 'how a doubt was ended, why and by whom',
    outcome             LONGBLOB COMMENT 'what duplicates are given, encoded by semel',

    -- Identity is bytes, so that no collation makes two keys equal. The texts beside it are for people.
    PRIMARY KEY (digest),
    -- For the sweep. What is in doubt, a handful among millions, is at its end. The rest is gone through for one value of
    -- keep_us after the other: what has expired is at the beginning of each, and what was claimed lately at the end,
    -- because expires_us - keep_us is the instant of the claim until the record is settled. Set at the claim, and as a
    -- rule not touched by the completion.
    KEY {prefix}record_expiry (doubt_us, keep_us, expires_us),
    CONSTRAINT {prefix}record_status CHECK (status IN ('running', 'completed', 'failed', 'in_doubt', 'cancelled')),
    CONSTRAINT {prefix}record_retryable CHECK (NOT retryable OR status = 'failed'),
    -- The claim writes a negative fence on its way; where assignments do not follow each other (SIMULTANEOUS_ASSIGNMENT)
    -- this refuses it.
    CONSTRAINT {prefix}record_lease CHECK (fence >= 1),
    CONSTRAINT {prefix}record_policy CHECK (in_doubt_policy IN ('rerun', 'reconcile', 'hold')),
    CONSTRAINT {prefix}record_counts CHECK (attempts >= 0 AND steps >= 0 AND keep_us > 0 AND reconcile_after_us >= 0),
    -- Completed has an outcome (a tombstone is one too), and nothing else has.
    CONSTRAINT {prefix}record_outcome CHECK ((status = 'completed') = (outcome IS NOT NULL)),
    CONSTRAINT {prefix}record_error CHECK ((error_type IS NULL) = (error_message IS NULL)),
    CONSTRAINT {prefix}record_doubt CHECK ((status = 'in_doubt') = (doubt_us IS NOT NULL))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: one row per key; what is known of an operation. Change it with semel resolve, never by hand';

-- The identity of a step takes part in the key, so that the same step sent again meets itself, by an insert that looks
-- for nothing first: a search for what is not there would lock the gap, and deadlock with other keys.
CREATE TABLE IF NOT EXISTS {step_table} (
    digest    BINARY(32) NOT NULL COMMENT 'the record',
    life      BIGINT NOT NULL COMMENT 'created_us of the record: a new life of an expired key begins without them',
    position  INT NOT NULL COMMENT 'its place in the attempt',
    identity  BINARY(32) NOT NULL COMMENT 'SHA-256 over name and outcome',
    number    INT NOT NULL COMMENT 'the order they came in',
    name      MEDIUMTEXT NOT NULL COMMENT 'its name',
    outcome   LONGBLOB NOT NULL COMMENT 'its value, encoded by semel',
    PRIMARY KEY (digest, life, position, identity),
    CONSTRAINT {prefix}step_position CHECK (position >= 0)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: finished steps of attempts; they are not run again';

-- What records are searched by: a row for each value of `about`, written with the claim; operations that say nothing have
-- none. Scope and time are those of the record, so that a search reads the records of one page, and no others.
CREATE TABLE IF NOT EXISTS {search_table} (
    digest      BINARY(32) NOT NULL COMMENT 'the record it belongs to',
    term        BIGINT NOT NULL COMMENT 'number of a subject, requester, business key, process instance or tag',
    created_us  BIGINT NOT NULL COMMENT 'created_us of the record',
    scope       VARCHAR(255) NOT NULL COMMENT 'who the key of the record belongs to',
    PRIMARY KEY (digest, term),
    KEY {prefix}term_everywhere (term, created_us, digest),
    KEY {prefix}term_in_scope (term, scope, created_us, digest)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: what records are searched by; the texts are in the records';

-- A row that is locked says: an open transaction is writing a key of this stripe. Unlike the record itself, it can be
-- asked for without waiting before the record is there. A key has sixteen stripes, and holds four of them at least,
-- so that two keys are told apart. Nothing here ever changes.
CREATE TABLE IF NOT EXISTS {gate} (
    stripe      SMALLINT UNSIGNED NOT NULL PRIMARY KEY COMMENT 'two bytes of a digest',
    install_id  VARBINARY(64) NOT NULL COMMENT 'which database this is'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: locked by open transactions that write a key, so that nobody has to wait for them';

INSERT INTO {gate} (stripe, install_id)
SELECT d1.d + 16 * d2.d + 256 * d3.d + 4096 * d4.d, m.value
FROM ({digits}) AS d1, ({digits}) AS d2, ({digits}) AS d3, ({digits}) AS d4, {meta} AS m
WHERE m.name = 'install_id' AND NOT EXISTS (SELECT 1 FROM {gate} AS g);

-- What happened to a record, written in the transaction that changes it. The position is eight times the fence of the
-- record, and 1 for an attempt, 2 for a decision, 3 for a reopening, 4 for an erasure: nothing is entered twice, and what
-- enters looks for nothing first, which would lock a gap. At most the 100 newest entries of a record are kept.
CREATE TABLE IF NOT EXISTS {history_table} (
    digest         BINARY(32) NOT NULL COMMENT 'the record it belongs to',
    life           BIGINT NOT NULL COMMENT 'created_us of that record',
    position       BIGINT NOT NULL COMMENT 'the order of entries: eight times the fence, and 1 to 4 by kind',
    scope          VARCHAR(255) NOT NULL COMMENT 'who the key belongs to; empty once it is erased',
    kind           VARCHAR(16) NOT NULL COMMENT 'attempt, taken_over, resolved, reopened or erased',
    number         INT NOT NULL COMMENT 'which attempt it was, or how many there had been',
    started_us     BIGINT NOT NULL COMMENT 'when the attempt was granted, or the decision made',
    ended_us       BIGINT NOT NULL COMMENT 'when that was over',
    nonce          BINARY(16) COMMENT 'that of the attempt or the decision; its first six bytes name the process',
    ending         VARCHAR(16) COMMENT 'completed, failed, retryable, in_doubt or cancelled',
    error_type     TEXT COMMENT 'class of the error it ended with',
    error_message  TEXT COMMENT 'message of that error',
    PRIMARY KEY (digest, life, position),
    CONSTRAINT {prefix}history_kind CHECK (kind IN ('attempt', 'taken_over', 'resolved', 'reopened', 'erased')),
    CONSTRAINT {prefix}history_ending CHECK (ending IN ('completed', 'failed', 'retryable', 'in_doubt', 'cancelled')),
    CONSTRAINT {prefix}history_error CHECK ((error_type IS NULL) = (error_message IS NULL))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: what happened to records; an attempt that completed has no row until the record forgets it';

CREATE TABLE IF NOT EXISTS {worker_table} (
    process     BINARY(6) NOT NULL PRIMARY KEY COMMENT 'the first six bytes of its nonces',
    host        VARCHAR(255) NOT NULL COMMENT 'the name of its machine',
    pid         BIGINT NOT NULL COMMENT 'its process id',
    version     VARCHAR(255) NOT NULL COMMENT 'its release of semel',
    started_us  BIGINT NOT NULL COMMENT 'when it was first noted',
    seen_us     BIGINT NOT NULL COMMENT 'when it was last noted'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: one row per process that claimed; who holds a lease';
