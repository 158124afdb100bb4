-- 0004: events that wait to be published, how far relays have come, and what could not be published.
--
-- The outbox is append-only: nothing is changed in it when an event is published. `xid` is its first column because
-- defaults are evaluated in the order of columns, and a relay has to know that whoever has a position had its
-- transaction's number before. There is no unique index on ids: record and event commit together, so a repeat happens
-- only where neither did.

CREATE TABLE {outbox_table} (
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    position      bigint NOT NULL GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME {outbox_sequence} CACHE 1),
    added_us      bigint NOT NULL,
    time_us       bigint,
    shard         smallint NOT NULL,
    is_binary     boolean NOT NULL,
    stream        text COLLATE "C" NOT NULL,
    scope         text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    type          text COLLATE "C" NOT NULL,
    subject       text COLLATE "C",
    content_type  text COLLATE "C",
    ordering_key  text COLLATE "C",
    attributes    bytea NOT NULL,
    data          bytea,
    CONSTRAINT {prefix}outbox_pk PRIMARY KEY (position),
    CONSTRAINT {prefix}outbox_shard CHECK (shard >= 0 AND shard < 64)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
-- For events that were added by transactions which had not ended when the last window of a relay began.
CREATE INDEX {prefix}outbox_xid ON {outbox_table} (xid);
COMMENT ON TABLE {outbox_table} IS 'semel: events that relays publish; published ones are deleted after a while';
COMMENT ON COLUMN {outbox_table}.xid IS 'the transaction that added it';
COMMENT ON COLUMN {outbox_table}.position IS 'the order of adding';
COMMENT ON COLUMN {outbox_table}.added_us IS 'when it was added';
COMMENT ON COLUMN {outbox_table}.time_us IS 'when it happened';
COMMENT ON COLUMN {outbox_table}.shard IS 'of the ordering key, or of the id; relays share a stream by shards';
COMMENT ON COLUMN {outbox_table}.is_binary IS 'the data is bytes by itself, and not JSON';
COMMENT ON COLUMN {outbox_table}.stream IS 'which relays publish it';
COMMENT ON COLUMN {outbox_table}.scope IS 'whose it is, as in semel_record; empty: nobody''s in particular';
COMMENT ON COLUMN {outbox_table}.id IS 'of the event; together with its source it names it';
COMMENT ON COLUMN {outbox_table}.source IS 'who says so';
COMMENT ON COLUMN {outbox_table}.type IS 'what kind of thing happened';
COMMENT ON COLUMN {outbox_table}.subject IS 'what it happened to';
COMMENT ON COLUMN {outbox_table}.content_type IS 'what the data is';
COMMENT ON COLUMN {outbox_table}.ordering_key IS 'events of one key are published in the order of adding';
COMMENT ON COLUMN {outbox_table}.attributes IS 'further attributes, as JSON';
COMMENT ON COLUMN {outbox_table}.data IS 'the data, as it is published';

-- How far each part of a stream has been published: a log, of which the row with the highest number counts. Its primary
-- key is the fence: of two relays that save after the same row, one is refused.
CREATE TABLE {cursor_table} (
    number   bigint NOT NULL,
    at       bigint NOT NULL,
    floor    bigint NOT NULL,
    cluster  bigint NOT NULL,
    saved_us bigint NOT NULL,
    part     integer NOT NULL,
    parts    integer NOT NULL,
    stream   text COLLATE "C" NOT NULL,
    token    bytea NOT NULL,
    seen     pg_snapshot NOT NULL,
    until    pg_snapshot,
    CONSTRAINT {prefix}cursor_pk PRIMARY KEY (stream, parts, part, number),
    CONSTRAINT {prefix}cursor_part CHECK (part >= 0 AND part < parts AND parts <= 64)
);
COMMENT ON TABLE {cursor_table} IS 'semel: how far relays have published; never changed by hand';
COMMENT ON COLUMN {cursor_table}.number IS 'rises with every save';
COMMENT ON COLUMN {cursor_table}.at IS 'the last position of the window that was published';
COMMENT ON COLUMN {cursor_table}.floor IS 'below this position only transactions that had not ended in `seen` have unpublished events';
COMMENT ON COLUMN {cursor_table}.cluster IS 'system identifier of the cluster that the snapshots are of';
COMMENT ON COLUMN {cursor_table}.saved_us IS 'when it was saved';
COMMENT ON COLUMN {cursor_table}.part IS 'which part of the stream, from 0';
COMMENT ON COLUMN {cursor_table}.parts IS 'into how many parts the stream is divided';
COMMENT ON COLUMN {cursor_table}.stream IS 'which stream';
COMMENT ON COLUMN {cursor_table}.token IS 'names the relay that saved it';
COMMENT ON COLUMN {cursor_table}.seen IS 'events of transactions that this snapshot sees are published';
COMMENT ON COLUMN {cursor_table}.until IS 'the snapshot of the window that is being published';

CREATE TABLE {parked_table} (
    position       bigint NOT NULL,
    parked_us      bigint NOT NULL,
    time_us        bigint,
    attempts       integer NOT NULL,
    shard          smallint NOT NULL,
    is_binary      boolean NOT NULL,
    stream         text COLLATE "C" NOT NULL,
    scope          text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    source         text COLLATE "C" NOT NULL,
    type           text COLLATE "C" NOT NULL,
    subject        text COLLATE "C",
    content_type   text COLLATE "C",
    ordering_key   text COLLATE "C",
    error_type     text COLLATE "C",
    error_message  text COLLATE "C",
    attributes     bytea NOT NULL,
    data           bytea,
    CONSTRAINT {prefix}parked_pk PRIMARY KEY (stream, position),
    CONSTRAINT {prefix}parked_error CHECK ((error_type IS NULL) = (error_message IS NULL))
);
CREATE INDEX {prefix}parked_errors ON {parked_table} (stream, ordering_key) WHERE error_type IS NOT NULL;
COMMENT ON TABLE {parked_table} IS 'semel: events that could not be published, and those of the same keys that wait behind them';
COMMENT ON COLUMN {parked_table}.position IS 'that of the outbox';
COMMENT ON COLUMN {parked_table}.parked_us IS 'since when it is parked';
COMMENT ON COLUMN {parked_table}.time_us IS 'when it happened';
COMMENT ON COLUMN {parked_table}.attempts IS 'how often it was tried';
COMMENT ON COLUMN {parked_table}.shard IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.is_binary IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.stream IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.scope IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.id IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.source IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.type IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.subject IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.content_type IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.ordering_key IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.error_type IS 'class of the error; NULL: it waits, or was released';
COMMENT ON COLUMN {parked_table}.error_message IS 'message of that error';
COMMENT ON COLUMN {parked_table}.attributes IS 'as in the outbox';
COMMENT ON COLUMN {parked_table}.data IS 'as in the outbox';

-- After a dump was restored into another cluster, transactions have other numbers. What is not published is given the
-- number of this transaction, which the cursor has not seen; what is published, and has a number that is yet to come
-- here, is given one that every snapshot sees. Locked, so that nobody adds an event in between. What the cursor has seen
-- from then on is a snapshot of before this: one that is taken here may see the number of this transaction.
CREATE FUNCTION {rebase_function}(of_stream text, of_part integer, of_parts integer, known pg_snapshot, above bigint)
RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    LOCK TABLE {outbox_table} IN SHARE ROW EXCLUSIVE MODE;
    UPDATE {outbox_table} AS o SET xid = pg_current_xact_id()
    WHERE o.stream = of_stream AND o.shard % of_parts = of_part
        AND (o.position > above OR NOT pg_visible_in_snapshot(o.xid, known));
    UPDATE {outbox_table} AS o SET xid = '3'
    WHERE o.stream = of_stream AND o.shard % of_parts = of_part AND o.xid > pg_current_xact_id();
END
$body$;
