-- 0003: dead letters of consumers of events.
--
-- A letter is written in the transaction that ends its record, and deleted in the one that completes it. Its id is made
-- of consumer, record and body, so that a crash neither loses nor doubles one.

CREATE TABLE IF NOT EXISTS {letter_table} (
    id             BINARY(32) NOT NULL COMMENT 'SHA-256 over consumer, record and body',
    record         BINARY(32) COMMENT 'digest of its record; NULL where what arrived has no identity',
    first_us       BIGINT NOT NULL COMMENT 'when it became a dead letter',
    last_us        BIGINT NOT NULL COMMENT 'when it was last delivered',
    expires_us     BIGINT NOT NULL COMMENT 'from when it is forgotten',
    keep_us        BIGINT NOT NULL COMMENT 'how long it is kept',
    attempts       INT NOT NULL COMMENT 'how often its handler was called',
    seen           INT NOT NULL COMMENT 'how often it was delivered since',
    readable       BOOLEAN NOT NULL COMMENT 'content is an event as JSON; else headers and body as they arrived',
    consumer       VARCHAR(255) NOT NULL COMMENT 'whose it is',
    scope          VARCHAR(255) NOT NULL COMMENT 'who the event is for',
    reason         VARCHAR(16) NOT NULL COMMENT 'rejected, exhausted, reused, invalid, unknown_type or in_doubt',
    type           MEDIUMTEXT NOT NULL COMMENT 'type of the event; empty where it cannot be read',
    subject        MEDIUMTEXT COMMENT 'subject of the event',
    error_type     TEXT COMMENT 'class of the last error',
    error_message  TEXT COMMENT 'message of the last error',
    content        LONGBLOB NOT NULL COMMENT 'the event',
    PRIMARY KEY (id),
    -- For lists, oldest first.
    KEY {prefix}letter_consumer (consumer, first_us, id),
    -- For an event that is delivered again, and for decisions on its record.
    KEY {prefix}letter_record (record),
    -- For the sweep.
    KEY {prefix}letter_expiry (expires_us),
    CONSTRAINT {prefix}letter_counts CHECK (attempts >= 0 AND seen > 0 AND keep_us > 0),
    CONSTRAINT {prefix}letter_error CHECK ((error_type IS NULL) = (error_message IS NULL))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: events that consumers could not process; nobody tries them again by itself';
