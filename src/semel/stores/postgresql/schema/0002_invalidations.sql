-- 0002: what caches in front of this database have to forget.
--
-- Written in the transaction that erases a record, removed when every cache has confirmed; a sweep repeats the rest. It
-- is nearly always empty, so it has no index but its key.

CREATE TABLE {invalidation_table} (
    noted_us   bigint NOT NULL,
    digest     bytea NOT NULL,
    operation  text COLLATE "C" NOT NULL,
    CONSTRAINT {prefix}invalidation_pk PRIMARY KEY (digest),
    CONSTRAINT {prefix}invalidation_digest CHECK (octet_length(digest) = 32)
);
COMMENT ON TABLE {invalidation_table} IS 'semel: erased records that a cache may still hold; semel sweep repeats what caches have not confirmed';
COMMENT ON COLUMN {invalidation_table}.noted_us IS 'when it was erased';
COMMENT ON COLUMN {invalidation_table}.digest IS 'the record';
COMMENT ON COLUMN {invalidation_table}.operation IS 'what its key is for';
