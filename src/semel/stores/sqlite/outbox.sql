-- Every statement of the outbox on SQLite. Values are bound by name, as in `statements.sql`. {values} stands for the
-- names of the values of one event, whose place among those that are added together is at their end.

-- name: add
INSERT INTO semel_outbox (added_us, {events}) VALUES (:now, {values});

-- In the caller's transaction: nothing is written into a database that is not the store's.
-- name: add_joined
INSERT INTO semel_outbox (added_us, {events})
SELECT :now, {values} FROM semel_meta AS m WHERE m.name = 'install_id' AND m.value = :install;

-- name: cursors
SELECT part, parts, number, at FROM semel_cursor WHERE stream = :stream;

-- name: open
INSERT INTO semel_cursor (stream, part, parts, number, at, token, saved_us)
VALUES (:stream, :part, :parts, :number, :at, :token, :now)
ON CONFLICT (stream, parts, part) DO UPDATE SET
    number = excluded.number, at = excluded.at, token = excluded.token, saved_us = excluded.saved_us;

-- The fence: a relay that was overtaken has an older number.
-- name: save
UPDATE semel_cursor SET number = :number + 1, at = :at, saved_us = :now
WHERE stream = :stream AND part = :part AND parts = :parts AND number = :number AND token = :token;

-- The same again, after its reply was lost.
-- name: saved
SELECT 1 FROM semel_cursor
WHERE stream = :stream AND part = :part AND parts = :parts AND number = :number + 1 AND token = :token;

-- name: park
INSERT INTO semel_parked (position, {events}, error_type, error_message, attempts, parked_us)
VALUES (:position{n}, {values}, :error_type{n}, :error_message{n}, :attempts{n}, :now)
ON CONFLICT DO NOTHING;

-- With the highest position that was given away: all up to there is committed. There is always a row.
-- name: batch
SELECT (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'semel_outbox'), e.*
FROM (SELECT 1) LEFT JOIN (
    SELECT position, {events} FROM semel_outbox
    WHERE stream = :stream AND position > :at AND shard % :parts = :part ORDER BY position LIMIT :limit
) AS e ON true;

-- name: purge
DELETE FROM semel_outbox WHERE position IN (
    SELECT position FROM semel_outbox
    WHERE stream = :stream AND position <= :at AND shard % :parts = :part AND added_us <= :now - :keep_us
    ORDER BY position LIMIT :limit
);

-- name: held
SELECT DISTINCT ordering_key FROM semel_parked WHERE stream = :stream AND shard % :parts = :part;

-- name: released
SELECT e.position, {e_events}, e.error_type, e.error_message, e.attempts, e.parked_us FROM semel_parked AS e
WHERE e.stream = :stream AND e.shard % :parts = :part AND e.error_type IS NULL AND NOT EXISTS (
    SELECT 1 FROM semel_parked AS x
    WHERE x.stream = e.stream AND x.ordering_key = e.ordering_key AND x.error_type IS NOT NULL
)
ORDER BY e.position LIMIT :limit;

-- name: drop_released
DELETE FROM semel_parked WHERE stream = :stream AND position = :position;

-- name: keep_failed
UPDATE semel_parked SET error_type = :error_type, error_message = :error_message, attempts = :attempts, parked_us = :now
WHERE stream = :stream AND position = :position;

-- name: parked
SELECT e.position, {e_events}, e.error_type, e.error_message, e.attempts, e.parked_us FROM semel_parked AS e
WHERE e.stream = :stream AND e.position > :after ORDER BY e.position LIMIT :limit;

-- name: release
UPDATE semel_parked SET error_type = NULL, error_message = NULL
WHERE stream = :stream AND position = coalesce(:position, position) AND error_type IS NOT NULL;

-- name: discard
DELETE FROM semel_parked WHERE stream = :stream AND position = coalesce(:position, position);
