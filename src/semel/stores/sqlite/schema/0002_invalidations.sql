-- 0002: what caches in front of this database have to forget.

-- Written in the transaction that erases a record, removed when every cache has confirmed; a sweep repeats the rest.
CREATE TABLE semel_invalidation (
    digest     BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 32),
    operation  TEXT NOT NULL,
    noted_us   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
