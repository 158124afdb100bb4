-- 0005: batches, their items and their pages.
--
-- The record of an item says what became of it; the status here repeats that, so that it can be counted. No index names
-- the status, so that changing it touches no index. The counts of a page change together with the rows that they count.

CREATE TABLE {batch_table} (
    number       bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_us   bigint NOT NULL,
    started_us   bigint,
    updated_us   bigint NOT NULL,
    ended_us     bigint,
    keep_us      bigint NOT NULL,
    total        bigint NOT NULL DEFAULT 0,
    loaded       bigint NOT NULL DEFAULT 0,
    page         bigint NOT NULL DEFAULT 0,
    next_page    bigint NOT NULL DEFAULT 0,
    free_us      bigint NOT NULL DEFAULT 0,
    reopened     bigint NOT NULL DEFAULT 0,
    has_overrun  boolean NOT NULL DEFAULT false,
    state        text COLLATE "C" NOT NULL,
    scope        text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    operation    text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL DEFAULT '',
    token        bytea NOT NULL,
    digest       bytea NOT NULL,
    metadata     bytea NOT NULL,
    notes        bytea NOT NULL,
    CONSTRAINT {prefix}batch_pk PRIMARY KEY (number),
    CONSTRAINT {prefix}batch_id UNIQUE (scope, id),
    CONSTRAINT {prefix}batch_state CHECK (
        state IN ('loading', 'pending', 'running', 'paused', 'completed', 'cancelled', 'failed', 'expired')
    )
) WITH (fillfactor = 50);
COMMENT ON TABLE {batch_table} IS 'semel: batches, and how far they are';
COMMENT ON COLUMN {batch_table}.number IS 'names it in the other tables';
COMMENT ON COLUMN {batch_table}.created_us IS 'when its loading began';
COMMENT ON COLUMN {batch_table}.started_us IS 'when the first run began';
COMMENT ON COLUMN {batch_table}.updated_us IS 'when it changed last';
COMMENT ON COLUMN {batch_table}.ended_us IS 'when it was completed, cancelled or failed';
COMMENT ON COLUMN {batch_table}.keep_us IS 'how long it is kept after that';
COMMENT ON COLUMN {batch_table}.total IS 'how many items it has, once it is loaded';
COMMENT ON COLUMN {batch_table}.loaded IS 'how many positions are loaded';
COMMENT ON COLUMN {batch_table}.page IS 'how many items a page has; 0 before the first run';
COMMENT ON COLUMN {batch_table}.next_page IS 'the pages below were handed out';
COMMENT ON COLUMN {batch_table}.free_us IS 'up to when the rate is used up';
COMMENT ON COLUMN {batch_table}.reopened IS 'rises when items are to be run again';
COMMENT ON COLUMN {batch_table}.has_overrun IS 'it was paused because too many items failed';
COMMENT ON COLUMN {batch_table}.state IS 'how far it is; expired: it is being deleted';
COMMENT ON COLUMN {batch_table}.scope IS 'whose it is, as in semel_record; empty: nobody''s in particular';
COMMENT ON COLUMN {batch_table}.id IS 'what its owner calls it';
COMMENT ON COLUMN {batch_table}.operation IS 'that of the records of its items';
COMMENT ON COLUMN {batch_table}.reason IS 'why it is paused, cancelled or failed';
COMMENT ON COLUMN {batch_table}.token IS 'names whoever loads it; another one adds nothing';
COMMENT ON COLUMN {batch_table}.digest IS 'sum of the digests of its items';
COMMENT ON COLUMN {batch_table}.metadata IS 'what its owner says of it, as JSON';
COMMENT ON COLUMN {batch_table}.notes IS 'what people should know, as a JSON list';

CREATE TABLE {item_table} (
    batch      bigint NOT NULL,
    position   bigint NOT NULL,
    status     smallint NOT NULL DEFAULT 0,
    is_erased  boolean NOT NULL DEFAULT false,
    id         text COLLATE "C" NOT NULL,
    subject    text COLLATE "C",
    data       bytea NOT NULL,
    about      bytea,
    outcome    bytea,
    CONSTRAINT {prefix}item_pk PRIMARY KEY (batch, position),
    CONSTRAINT {prefix}item_id UNIQUE (batch, id),
    CONSTRAINT {prefix}item_status CHECK (status >= 0 AND status <= 4)
) WITH (fillfactor = 80);
CREATE INDEX {prefix}item_subject ON {item_table} (subject, batch, position) WHERE subject IS NOT NULL;
COMMENT ON TABLE {item_table} IS 'semel: items of batches; their records have what became of them';
COMMENT ON COLUMN {item_table}.batch IS 'number of the batch';
COMMENT ON COLUMN {item_table}.position IS 'where it stood in the input, from 0';
COMMENT ON COLUMN {item_table}.status IS '0 pending, 1 completed, 2 failed, 3 skipped, 4 in doubt';
COMMENT ON COLUMN {item_table}.is_erased IS 'the data was erased';
COMMENT ON COLUMN {item_table}.id IS 'together with the batch, the key of its record';
COMMENT ON COLUMN {item_table}.subject IS 'whom it is about';
COMMENT ON COLUMN {item_table}.data IS 'as it was loaded, as JSON';
COMMENT ON COLUMN {item_table}.about IS 'what its record is searched by, as JSON';
COMMENT ON COLUMN {item_table}.outcome IS 'its value, where its page was committed as a whole and it has no record';

CREATE TABLE {page_table} (
    batch       bigint NOT NULL,
    page        bigint NOT NULL,
    first       bigint NOT NULL,
    updated_us  bigint NOT NULL,
    round       integer NOT NULL DEFAULT 0,
    total       integer NOT NULL,
    completed   integer NOT NULL DEFAULT 0,
    failed      integer NOT NULL DEFAULT 0,
    skipped     integer NOT NULL DEFAULT 0,
    in_doubt    integer NOT NULL DEFAULT 0,
    is_done     boolean NOT NULL DEFAULT false,
    CONSTRAINT {prefix}page_pk PRIMARY KEY (batch, page),
    CONSTRAINT {prefix}page_counts CHECK (
        completed >= 0 AND failed >= 0 AND skipped >= 0 AND in_doubt >= 0
        AND completed + failed + skipped + in_doubt <= total
    )
) WITH (fillfactor = 50);
CREATE INDEX {prefix}page_open ON {page_table} (batch, page) WHERE NOT is_done;
COMMENT ON TABLE {page_table} IS 'semel: pages of batches that were handed out, and how their items ended';
COMMENT ON COLUMN {page_table}.batch IS 'number of the batch';
COMMENT ON COLUMN {page_table}.page IS 'which page, from 0';
COMMENT ON COLUMN {page_table}.first IS 'position of its first item';
COMMENT ON COLUMN {page_table}.updated_us IS 'when an item of it ended last';
COMMENT ON COLUMN {page_table}.round IS 'how often it was opened again; part of the key of its record';
COMMENT ON COLUMN {page_table}.total IS 'how many items it has';
COMMENT ON COLUMN {page_table}.completed IS 'how many of them are completed';
COMMENT ON COLUMN {page_table}.failed IS 'how many have failed';
COMMENT ON COLUMN {page_table}.skipped IS 'how many were skipped';
COMMENT ON COLUMN {page_table}.in_doubt IS 'how many are in doubt';
COMMENT ON COLUMN {page_table}.is_done IS 'none of them is pending';
