-- 0003: dead letters of consumers of events.
--
-- A letter is written in the transaction that ends its record, and deleted in the one that completes it. Its id is made
-- of consumer, record and body, so that a crash neither loses nor doubles one.

CREATE TABLE semel_letter (
    id             BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    consumer       TEXT NOT NULL,
    scope          TEXT NOT NULL,
    record         BLOB CHECK (length(record) = 32),
    reason         TEXT NOT NULL,
    type           TEXT NOT NULL,
    subject        TEXT,
    content        BLOB NOT NULL,
    readable       INTEGER NOT NULL CHECK (readable IN (0, 1)),
    attempts       INTEGER NOT NULL CHECK (attempts >= 0),
    error_type     TEXT,
    error_message  TEXT CHECK ((error_type IS NULL) = (error_message IS NULL)),
    keep_us        INTEGER NOT NULL CHECK (keep_us > 0),
    first_us       INTEGER NOT NULL,
    last_us        INTEGER NOT NULL,
    seen           INTEGER NOT NULL CHECK (seen > 0),
    expires_us     INTEGER NOT NULL
) STRICT;

-- For lists, oldest first.
CREATE INDEX semel_letter_consumer ON semel_letter (consumer, first_us, id);

-- For an event that is delivered again, and for decisions on its record.
CREATE INDEX semel_letter_record ON semel_letter (record) WHERE record IS NOT NULL;

-- For the sweep.
CREATE INDEX semel_letter_expiry ON semel_letter (expires_us);
