-- Indexes for searching: made on demand by `semel migrate --search`, because every claim has to write them too.
--
-- Listing works without them, by reading all records. They are built in place, while others read and write. The long
-- texts are indexed by their beginning. Tags have none: only one of the two servers could have it.

-- name: created
CREATE INDEX `{index}_created` ON {record_table} (created_us) ALGORITHM=INPLACE LOCK=NONE;

-- name: operation
CREATE INDEX `{index}_operation` ON {record_table} (operation, created_us) ALGORITHM=INPLACE LOCK=NONE;

-- name: status
CREATE INDEX `{index}_status` ON {record_table} (status, created_us) ALGORITHM=INPLACE LOCK=NONE;

-- name: process
CREATE INDEX `{index}_process` ON {record_table} (process_instance(100), created_us) ALGORITHM=INPLACE LOCK=NONE;

-- name: business_key
CREATE INDEX `{index}_business_key` ON {record_table} (business_key(100), created_us) ALGORITHM=INPLACE LOCK=NONE;
