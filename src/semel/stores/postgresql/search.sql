-- Indexes for listing by time, operation and status: made on demand by `semel migrate --search`, because every claim has
-- to write them too. What records are about is searched for without them.
--
-- Listing works without them, by reading all records. They are built CONCURRENTLY, so that nobody waits for them.
-- {on} is the table, or one partition of it; {index} begins the name of an index there. Completions change no column of
-- them but the status: the index on it is partial, so that completed records cost nothing in it.

-- name: created
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{index}_created" ON {on} (created_us);

-- name: operation
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{index}_operation" ON {on} (operation, created_us);

-- name: status
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{index}_status" ON {on} (status, created_us) WHERE status <> 'completed';
