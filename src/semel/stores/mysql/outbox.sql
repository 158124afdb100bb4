-- Every statement of the outbox on MySQL and MariaDB. {events} stands for the columns of an event, {input} for its
-- values as rows.

-- name: add
INSERT INTO {outbox_table} (added_us, {events})
SELECT {clock}, {e_events} FROM ({input}) AS e {condition} ORDER BY e.place;

-- name: added
SELECT {clock} FROM {meta} AS m WHERE m.name = 'install_id' {condition};

-- Who opens a part has it; whoever had it before deletes nothing any more.
-- name: open
INSERT INTO {cursor_table} (stream, part, parts, number, token, saved_us) VALUES (?, ?, ?, 1, ?, {clock})
ON DUPLICATE KEY UPDATE number = number + 1, token = ?, saved_us = {clock};

-- name: opened
SELECT c.number, c.token FROM {cursor_table} AS c WHERE c.stream = ? AND c.part = ? AND c.parts = ?;

-- The fence, and a lock on the part until the rest of the transaction is done.
-- name: save
UPDATE {cursor_table} SET number = number + 1, saved_us = {clock}
WHERE stream = ? AND part = ? AND parts = ? AND number = ? AND token = ?;

-- part: fence
c.stream = ? AND c.part = ? AND c.parts = ? AND c.number = ? AND c.token = ?

-- name: delete
DELETE o FROM {outbox_table} AS o JOIN {cursor_table} AS c ON {fence} WHERE o.position IN ({positions});

-- Sent again after a lost reply, it finds nothing to park any more, and neither does it of what was erased.
-- name: park
INSERT IGNORE INTO {parked_table} (position, {events}, error_type, error_message, attempts, parked_us)
SELECT e.position, {e_events}, e.error_type, e.error_message, e.attempts, {clock}
FROM ({input}) AS e JOIN {cursor_table} AS c ON {fence} JOIN {outbox_table} AS o ON o.position = e.position;

-- name: purge_parked
DELETE FROM {parked_table}
WHERE stream = ? AND shard % ? = ? AND error_type IS NOT NULL AND parked_us <= {clock} - ?;

-- Compared as bytes: to the collation, texts that differ by spaces at their end only are equal.
-- part: concerned
(? IS NULL OR CAST(e.scope AS BINARY) = CAST(? AS BINARY))
    AND (? IS NULL OR CAST(e.stream AS BINARY) = CAST(? AS BINARY))
    AND (? IS NULL OR CAST(e.subject AS BINARY) = CAST(? AS BINARY))

-- So many events as are looked at together, without a lock: a writer that has not committed delays nobody.
-- name: concerned_events
SELECT e.position, COALESCE({concerned}, FALSE) FROM {outbox_table} AS e WHERE e.position > ? ORDER BY e.position LIMIT ?;

-- name: erase
DELETE FROM {outbox_table} WHERE position IN ({positions});

-- name: concerned_parked
SELECT COUNT(*) FROM {parked_table} AS e WHERE {concerned};

-- name: erase_parked
DELETE e FROM {parked_table} AS e WHERE {concerned};

-- What is committed, and nothing else: a reading that locks nothing waits for nobody. With the highest position there
-- is, as the same reading sees it: whatever follows an event of its key that is not seen here yet is above it. A relay
-- that was overtaken reads nothing: it does not know what has been parked since, and would publish what waits behind it.
-- name: batch
SELECT e.position, {e_events}, (SELECT MAX(x.position) FROM {outbox_table} AS x) FROM {outbox_table} AS e
WHERE e.stream = ? AND e.position > ? AND e.position <= ? AND e.shard % ? = ? AND EXISTS (
    SELECT 1 FROM {cursor_table} AS c WHERE c.stream = ? AND c.part = ? AND c.parts = ? AND c.token = ?
)
ORDER BY e.position LIMIT ?;

-- Two keys that differ by spaces at their end only are equal to the collation, and not to relays.
-- name: held
SELECT e.ordering_key FROM {parked_table} AS e WHERE e.stream = ? AND e.shard % ? = ?
GROUP BY e.ordering_key, CAST(e.ordering_key AS BINARY);

-- name: released
SELECT e.position, {e_events}, e.error_type, e.error_message, e.attempts, e.parked_us FROM {parked_table} AS e
WHERE e.stream = ? AND e.shard % ? = ? AND e.error_type IS NULL AND NOT EXISTS (
    SELECT 1 FROM {parked_table} AS x
    WHERE x.stream = e.stream AND x.ordering_key = e.ordering_key AND x.error_type IS NOT NULL
)
ORDER BY e.position LIMIT ?;

-- name: drop_released
DELETE FROM {parked_table} WHERE stream = ? AND position IN ({positions});

-- name: keep_failed
UPDATE {parked_table} SET error_type = ?, error_message = ?, attempts = ?, parked_us = {clock}
WHERE stream = ? AND position = ?;

-- name: parked
SELECT e.position, {e_events}, e.error_type, e.error_message, e.attempts, e.parked_us FROM {parked_table} AS e
WHERE e.stream = ? AND e.position > ? ORDER BY e.position LIMIT ?;

-- name: release
UPDATE {parked_table} SET error_type = NULL, error_message = NULL
WHERE stream = ? AND position = COALESCE(?, position) AND error_type IS NOT NULL;

-- name: discard
DELETE FROM {parked_table} WHERE stream = ? AND position = COALESCE(?, position);

-- name: changed
SELECT ROW_COUNT();

-- What is there waits: what is published is deleted.
-- name: lag
SELECT COUNT(*), MIN(w.added_us)
FROM (SELECT e.added_us FROM {outbox_table} AS e WHERE e.stream = ? ORDER BY e.position LIMIT ?) AS w;

-- name: peek
SELECT e.position, {e_events} FROM {outbox_table} AS e WHERE e.stream = ? ORDER BY e.position LIMIT ?;

-- The instant; one row for each part; and one for each stream that has events.
-- name: progress
SELECT {clock}, NULL, NULL, NULL, NULL
UNION ALL
SELECT {clock}, c.stream, c.part, c.parts, c.saved_us FROM {cursor_table} AS c WHERE c.stream = COALESCE(?, c.stream)
UNION ALL
SELECT {clock}, s.stream, NULL, NULL, NULL FROM (SELECT DISTINCT e.stream FROM {outbox_table} AS e) AS s
WHERE s.stream = COALESCE(?, s.stream);

-- name: parked_counts
SELECT e.stream, COUNT(*), COUNT(e.error_type) FROM {parked_table} AS e WHERE e.stream = COALESCE(?, e.stream)
GROUP BY e.stream;
