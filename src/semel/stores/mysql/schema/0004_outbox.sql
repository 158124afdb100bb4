-- 0004: events that wait to be published, who publishes them, and what could not be published.
--
-- Nothing tells here which commits a reader has seen, and positions are given away before commits. So what is published is
-- deleted, and a relay reads whatever is there.

CREATE TABLE IF NOT EXISTS {outbox_table} (
    position      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'the order of adding',
    added_us      BIGINT NOT NULL COMMENT 'when it was added',
    time_us       BIGINT COMMENT 'when it happened',
    shard         SMALLINT NOT NULL COMMENT 'of the ordering key, or of the id; relays share a stream by shards',
    is_binary     BOOLEAN NOT NULL COMMENT 'the data is bytes by itself, and not JSON',
    stream        VARCHAR(255) NOT NULL COMMENT 'which relays publish it',
    scope         VARCHAR(255) NOT NULL COMMENT 'whose it is, as of a record; empty: of nobody in particular',
    id            TEXT NOT NULL COMMENT 'of the event; together with its source it names it',
    source        TEXT NOT NULL COMMENT 'who says so',
    type          TEXT NOT NULL COMMENT 'what kind of thing happened',
    subject       TEXT COMMENT 'what it happened to',
    content_type  TEXT COMMENT 'what the data is',
    ordering_key  TEXT COMMENT 'events of one key are published in the order of adding',
    attributes    LONGBLOB NOT NULL COMMENT 'further attributes, as JSON',
    data          LONGBLOB COMMENT 'the data, as it is published',
    KEY {prefix}outbox_stream (stream, position)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: events that relays publish; published ones are deleted';

CREATE TABLE IF NOT EXISTS {cursor_table} (
    stream    VARCHAR(255) NOT NULL COMMENT 'which stream',
    part      INT NOT NULL COMMENT 'which part of the stream, from 0',
    parts     INT NOT NULL COMMENT 'into how many parts the stream is divided',
    number    BIGINT NOT NULL COMMENT 'rises with every save',
    token     BINARY(16) NOT NULL COMMENT 'names the relay that has the part; another one deletes nothing',
    saved_us  BIGINT NOT NULL COMMENT 'when it was saved',
    PRIMARY KEY (stream, parts, part)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: who publishes which part of a stream; never changed by hand';

CREATE TABLE IF NOT EXISTS {parked_table} (
    position       BIGINT NOT NULL COMMENT 'that of the outbox',
    parked_us      BIGINT NOT NULL COMMENT 'since when it is parked',
    time_us        BIGINT COMMENT 'when it happened',
    attempts       INT NOT NULL COMMENT 'how often it was tried',
    shard          SMALLINT NOT NULL COMMENT 'as in the outbox',
    is_binary      BOOLEAN NOT NULL COMMENT 'as in the outbox',
    stream         VARCHAR(255) NOT NULL COMMENT 'as in the outbox',
    scope          VARCHAR(255) NOT NULL COMMENT 'as in the outbox',
    id             TEXT NOT NULL COMMENT 'as in the outbox',
    source         TEXT NOT NULL COMMENT 'as in the outbox',
    type           TEXT NOT NULL COMMENT 'as in the outbox',
    subject        TEXT COMMENT 'as in the outbox',
    content_type   TEXT COMMENT 'as in the outbox',
    ordering_key   TEXT COMMENT 'as in the outbox',
    error_type     TEXT COMMENT 'class of the error; NULL: it waits, or was released',
    error_message  TEXT COMMENT 'message of that error',
    attributes     LONGBLOB NOT NULL COMMENT 'as in the outbox',
    data           LONGBLOB COMMENT 'as in the outbox',
    PRIMARY KEY (stream, position),
    KEY {prefix}parked_keys (stream, ordering_key(128))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: events that could not be published, and those of the same keys that wait behind them';
