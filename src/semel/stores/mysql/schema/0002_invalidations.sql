-- 0002: what caches in front of this database have to forget.
--
-- Written in the transaction that erases a record, removed when every cache has confirmed; a sweep repeats the rest. It
-- is nearly always empty, so it has no index but its key.

CREATE TABLE IF NOT EXISTS {invalidation_table} (
    digest     BINARY(32) NOT NULL COMMENT 'the record',
    operation  VARCHAR(255) NOT NULL COMMENT 'what its key is for',
    noted_us   BIGINT NOT NULL COMMENT 'when it was erased',
    PRIMARY KEY (digest)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: erased records that a cache may still hold; semel sweep repeats what caches have not confirmed';
