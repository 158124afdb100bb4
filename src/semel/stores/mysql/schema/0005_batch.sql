-- 0005: batches, their items and their pages.
--
-- The record of an item says what became of it; the status here repeats that, so that it can be counted. The counts of a
-- page change together with the rows that they count.

CREATE TABLE IF NOT EXISTS {batch_table} (
    number       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'names it in the other tables',
    created_us   BIGINT NOT NULL COMMENT 'when its loading began',
    started_us   BIGINT COMMENT 'when the first run began',
    updated_us   BIGINT NOT NULL COMMENT 'when it changed last',
    ended_us     BIGINT COMMENT 'when it was completed, cancelled or failed',
    keep_us      BIGINT NOT NULL COMMENT 'how long it is kept after that',
    total        BIGINT NOT NULL DEFAULT 0 COMMENT 'how many items it has, once it is loaded',
    loaded       BIGINT NOT NULL DEFAULT 0 COMMENT 'how many positions are loaded',
    page         BIGINT NOT NULL DEFAULT 0 COMMENT 'how many items a page has; 0 before the first run',
    next_page    BIGINT NOT NULL DEFAULT 0 COMMENT 'the pages below were handed out',
    free_us      BIGINT NOT NULL DEFAULT 0 COMMENT 'up to when the rate is used up',
    reopened     BIGINT NOT NULL DEFAULT 0 COMMENT 'rises when items are to be run again',
    has_overrun  BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'it was paused because too many items failed',
    state        VARCHAR(16) NOT NULL COMMENT 'how far it is; expired: it is being deleted',
    scope        VARCHAR(255) NOT NULL COMMENT 'whose it is, as of a record; empty: of nobody in particular',
    id           VARCHAR(255) NOT NULL COMMENT 'what its owner calls it',
    operation    VARCHAR(255) NOT NULL COMMENT 'that of the records of its items',
    reason       TEXT NOT NULL COMMENT 'why it is paused, cancelled or failed',
    token        BINARY(16) NOT NULL COMMENT 'names whoever loads it; another one adds nothing',
    digest       BINARY(32) NOT NULL COMMENT 'sum of the digests of its items',
    metadata     LONGBLOB NOT NULL COMMENT 'what its owner says of it, as JSON',
    notes        LONGBLOB NOT NULL COMMENT 'what people should know, as a JSON list',
    UNIQUE KEY {prefix}batch_id (scope, id),
    CONSTRAINT {prefix}batch_state CHECK (
        state IN ('loading', 'pending', 'running', 'paused', 'completed', 'cancelled', 'failed', 'expired')
    )
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: batches, and how far they are';

CREATE TABLE IF NOT EXISTS {item_table} (
    batch      BIGINT NOT NULL COMMENT 'number of the batch',
    position   BIGINT NOT NULL COMMENT 'where it stood in the input, from 0',
    status     SMALLINT NOT NULL DEFAULT 0 COMMENT '0 pending, 1 completed, 2 failed, 3 skipped, 4 in doubt',
    is_erased  BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'the data was erased',
    id         VARCHAR(255) NOT NULL COMMENT 'together with the batch, the key of its record',
    subject    VARCHAR(255) COMMENT 'whom it is about',
    data       LONGBLOB NOT NULL COMMENT 'as it was loaded, as JSON',
    about      LONGBLOB COMMENT 'what its record is searched by, as JSON',
    outcome    LONGBLOB COMMENT 'its value, where its page was committed as a whole and it has no record',
    PRIMARY KEY (batch, position),
    UNIQUE KEY {prefix}item_id (batch, id),
    KEY {prefix}item_subject (subject, batch, position),
    CONSTRAINT {prefix}item_status CHECK (status >= 0 AND status <= 4)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: items of batches; their records have what became of them';

CREATE TABLE IF NOT EXISTS {page_table} (
    batch       BIGINT NOT NULL COMMENT 'number of the batch',
    page        BIGINT NOT NULL COMMENT 'which page, from 0',
    first       BIGINT NOT NULL COMMENT 'position of its first item',
    updated_us  BIGINT NOT NULL COMMENT 'when an item of it ended last',
    round       INT NOT NULL DEFAULT 0 COMMENT 'how often it was opened again; part of the key of its record',
    total       INT NOT NULL COMMENT 'how many items it has',
    completed   INT NOT NULL DEFAULT 0 COMMENT 'how many of them are completed',
    failed      INT NOT NULL DEFAULT 0 COMMENT 'how many have failed',
    skipped     INT NOT NULL DEFAULT 0 COMMENT 'how many were skipped',
    in_doubt    INT NOT NULL DEFAULT 0 COMMENT 'how many are in doubt',
    is_done     BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'none of them is pending',
    PRIMARY KEY (batch, page),
    KEY {prefix}page_open (batch, is_done, page),
    CONSTRAINT {prefix}page_counts CHECK (
        completed >= 0 AND failed >= 0 AND skipped >= 0 AND in_doubt >= 0
        AND completed + failed + skipped + in_doubt <= total
    )
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: pages of batches that were handed out, and how their items ended';
