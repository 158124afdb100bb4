-- Indexes for searching: made on demand by `semel migrate --search`, because every claim has to write them too.
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

-- name: process
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{index}_process" ON {on} (process_instance, created_us) WHERE process_instance IS NOT NULL;

-- name: business_key
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{index}_business_key" ON {on} (business_key, created_us) WHERE business_key IS NOT NULL;

-- name: tags
CREATE INDEX CONCURRENTLY IF NOT EXISTS "{index}_tags" ON {on} USING gin ((tags::jsonb) jsonb_path_ops) WHERE tags IS NOT NULL;
