-- 0003: dead letters of consumers of events.
--
-- A letter is written by the statement that ends its record, and deleted by the one that completes it. Its id is made of
-- consumer, record and body, so that a crash neither loses nor doubles one.

CREATE TABLE {letter_table} (
    first_us       bigint NOT NULL,
    last_us        bigint NOT NULL,
    expires_us     bigint NOT NULL,
    keep_us        bigint NOT NULL,
    attempts       integer NOT NULL,
    seen           integer NOT NULL,
    readable       boolean NOT NULL,
    id             bytea NOT NULL,
    record         bytea,
    consumer       text COLLATE "C" NOT NULL,
    scope          text COLLATE "C" NOT NULL,
    reason         text COLLATE "C" NOT NULL,
    type           text COLLATE "C" NOT NULL,
    subject        text COLLATE "C",
    error_type     text COLLATE "C",
    error_message  text COLLATE "C",
    content        bytea NOT NULL,
    CONSTRAINT {prefix}letter_pk PRIMARY KEY (id),
    CONSTRAINT {prefix}letter_bytes CHECK (octet_length(id) = 32 AND octet_length(record) = 32),
    CONSTRAINT {prefix}letter_counts CHECK (attempts >= 0 AND seen > 0 AND keep_us > 0),
    CONSTRAINT {prefix}letter_error CHECK ((error_type IS NULL) = (error_message IS NULL))
);
-- For lists, oldest first.
CREATE INDEX {prefix}letter_consumer ON {letter_table} (consumer, first_us, id);
-- For an event that is delivered again, and for decisions on its record.
CREATE INDEX {prefix}letter_record ON {letter_table} (record) WHERE record IS NOT NULL;
-- For the sweep.
CREATE INDEX {prefix}letter_expiry ON {letter_table} (expires_us);
COMMENT ON TABLE {letter_table} IS 'semel: events that consumers could not process; nobody tries them again by itself';
COMMENT ON COLUMN {letter_table}.first_us IS 'when it became a dead letter';
COMMENT ON COLUMN {letter_table}.last_us IS 'when it was last delivered';
COMMENT ON COLUMN {letter_table}.expires_us IS 'from when it is forgotten';
COMMENT ON COLUMN {letter_table}.keep_us IS 'how long it is kept';
COMMENT ON COLUMN {letter_table}.attempts IS 'how often its handler was called';
COMMENT ON COLUMN {letter_table}.seen IS 'how often it was delivered since';
COMMENT ON COLUMN {letter_table}.readable IS 'content is an event as JSON; else headers and body as they arrived';
COMMENT ON COLUMN {letter_table}.id IS 'SHA-256 over consumer, record and body';
COMMENT ON COLUMN {letter_table}.record IS 'digest of its record; NULL where what arrived has no identity';
COMMENT ON COLUMN {letter_table}.consumer IS 'whose it is';
COMMENT ON COLUMN {letter_table}.scope IS 'who the event is for';
COMMENT ON COLUMN {letter_table}.reason IS 'rejected, exhausted, reused, invalid, unknown_type or in_doubt';
COMMENT ON COLUMN {letter_table}.type IS 'type of the event; empty where it cannot be read';
COMMENT ON COLUMN {letter_table}.subject IS 'subject of the event';
COMMENT ON COLUMN {letter_table}.error_type IS 'class of the last error';
COMMENT ON COLUMN {letter_table}.error_message IS 'message of the last error';
COMMENT ON COLUMN {letter_table}.content IS 'the event';
