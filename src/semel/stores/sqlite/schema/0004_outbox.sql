-- 0004: events that wait to be published, how far relays have come, and what could not be published.

-- One writer at a time: positions are in the order of commits, so a relay goes by them.
CREATE TABLE semel_outbox (
    position      INTEGER PRIMARY KEY AUTOINCREMENT,
    added_us      INTEGER NOT NULL,
    stream        TEXT NOT NULL,
    shard         INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 63),
    id            TEXT NOT NULL,
    source        TEXT NOT NULL,
    type          TEXT NOT NULL,
    subject       TEXT,
    time_us       INTEGER,
    content_type  TEXT,
    data          BLOB,
    is_binary     INTEGER NOT NULL,
    attributes    BLOB NOT NULL,
    ordering_key  TEXT,
    scope         TEXT NOT NULL
) STRICT;
CREATE INDEX semel_outbox_stream ON semel_outbox (stream, position);

-- How far each part of a stream has been published. A relay that was overtaken finds another number and saves nothing.
CREATE TABLE semel_cursor (
    stream    TEXT NOT NULL,
    part      INTEGER NOT NULL,
    parts     INTEGER NOT NULL CHECK (part >= 0 AND part < parts AND parts <= 64),
    number    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    token     BLOB NOT NULL CHECK (length(token) = 16),
    saved_us  INTEGER NOT NULL,
    PRIMARY KEY (stream, parts, part)
) STRICT, WITHOUT ROWID;

-- Without an error: it waits behind another event of its key, or was released.
CREATE TABLE semel_parked (
    stream         TEXT NOT NULL,
    position       INTEGER NOT NULL,
    shard          INTEGER NOT NULL,
    id             TEXT NOT NULL,
    source         TEXT NOT NULL,
    type           TEXT NOT NULL,
    subject        TEXT,
    time_us        INTEGER,
    content_type   TEXT,
    data           BLOB,
    is_binary      INTEGER NOT NULL,
    attributes     BLOB NOT NULL,
    ordering_key   TEXT,
    scope          TEXT NOT NULL,
    error_type     TEXT,
    error_message  TEXT CHECK ((error_type IS NULL) = (error_message IS NULL)),
    attempts       INTEGER NOT NULL,
    parked_us      INTEGER NOT NULL,
    PRIMARY KEY (stream, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX semel_parked_errors ON semel_parked (stream, ordering_key) WHERE error_type IS NOT NULL;
