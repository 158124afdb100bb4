-- 0005: batches, their items and their pages.

-- `token` names whoever loads it. `reopened` rises when items are to be run again; `free_us` is up to when the rate is
-- used up. A batch that is expired is being deleted.
CREATE TABLE semel_batch (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    scope        TEXT NOT NULL,
    id           TEXT NOT NULL,
    operation    TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (
        state IN ('loading', 'pending', 'running', 'paused', 'completed', 'cancelled', 'failed', 'expired')
    ),
    reason       TEXT NOT NULL DEFAULT '',
    has_overrun  INTEGER NOT NULL DEFAULT 0,
    page         INTEGER NOT NULL DEFAULT 0,
    next_page    INTEGER NOT NULL DEFAULT 0,
    total        INTEGER NOT NULL DEFAULT 0,
    loaded       INTEGER NOT NULL DEFAULT 0,
    free_us      INTEGER NOT NULL DEFAULT 0,
    reopened     INTEGER NOT NULL DEFAULT 0,
    keep_us      INTEGER NOT NULL,
    created_us   INTEGER NOT NULL,
    started_us   INTEGER,
    updated_us   INTEGER NOT NULL,
    ended_us     INTEGER,
    token        BLOB NOT NULL,
    digest       BLOB NOT NULL,
    metadata     BLOB NOT NULL,
    notes        BLOB NOT NULL,
    UNIQUE (scope, id)
) STRICT;

-- 0 pending, 1 completed, 2 failed, 3 skipped, 4 in doubt. `outcome` is there where a page was committed as a whole and
-- its items have no records.
CREATE TABLE semel_item (
    batch      INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    status     INTEGER NOT NULL DEFAULT 0 CHECK (status BETWEEN 0 AND 4),
    is_erased  INTEGER NOT NULL DEFAULT 0,
    id         TEXT NOT NULL,
    subject    TEXT,
    data       BLOB NOT NULL,
    about      BLOB,
    outcome    BLOB,
    PRIMARY KEY (batch, position)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX semel_item_id ON semel_item (batch, id);
CREATE INDEX semel_item_subject ON semel_item (subject, batch, position) WHERE subject IS NOT NULL;

-- Pages that were handed out; the round is part of the key of the record of a page.
CREATE TABLE semel_page (
    batch       INTEGER NOT NULL,
    page        INTEGER NOT NULL,
    first       INTEGER NOT NULL,
    round       INTEGER NOT NULL DEFAULT 0,
    is_done     INTEGER NOT NULL DEFAULT 0,
    total       INTEGER NOT NULL,
    completed   INTEGER NOT NULL DEFAULT 0 CHECK (completed >= 0),
    failed      INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
    skipped     INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    in_doubt    INTEGER NOT NULL DEFAULT 0 CHECK (in_doubt >= 0),
    updated_us  INTEGER NOT NULL,
    PRIMARY KEY (batch, page),
    CHECK (completed + failed + skipped + in_doubt <= total)
) STRICT, WITHOUT ROWID;
CREATE INDEX semel_page_open ON semel_page (batch, page) WHERE NOT is_done;
