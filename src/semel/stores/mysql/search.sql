-- Indexes for listing by time, operation and status: made on demand by `semel migrate --search`, because every claim has
-- to write them too. What records are about is searched for without them.
--
-- Listing works without them, by reading all records. They are built in place, while others read and write.

-- name: created
CREATE INDEX `{index}_created` ON {record_table} (created_us) ALGORITHM=INPLACE LOCK=NONE;

-- name: operation
CREATE INDEX `{index}_operation` ON {record_table} (operation, created_us) ALGORITHM=INPLACE LOCK=NONE;

-- name: status
CREATE INDEX `{index}_status` ON {record_table} (status, created_us) ALGORITHM=INPLACE LOCK=NONE;
