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

-- What was erased since it was read stays erased.
-- name: park
INSERT INTO semel_parked (position, {events}, error_type, error_message, attempts, parked_us)
SELECT :position{n}, {values}, :error_type{n}, :error_message{n}, :attempts{n}, :now
FROM semel_outbox AS o WHERE o.position = :position{n}
ON CONFLICT DO NOTHING;

-- With the highest position that was given away: all up to there is committed. There is always a row. A relay that was
-- overtaken reads nothing: it does not know what has been parked since, and what waits behind that must not be published.
-- name: batch
SELECT (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'semel_outbox'), m.is_mine, e.*
FROM (
    SELECT EXISTS (
        SELECT 1 FROM semel_cursor AS c
        WHERE c.stream = :stream AND c.part = :part AND c.parts = :parts AND c.token = :token
    ) AS is_mine
) AS m LEFT JOIN (
    SELECT position, {events} FROM semel_outbox
    WHERE stream = :stream AND position > :at AND shard % :parts = :part ORDER BY position LIMIT :limit
) AS e ON m.is_mine;

-- name: purge
DELETE FROM semel_outbox WHERE position IN (
    SELECT position FROM semel_outbox
    WHERE stream = :stream AND position > :after AND position <= :last AND shard % :parts = :part
        AND added_us <= :now - :keep_us
);

-- Where a lot ends: at the latest before the first event that is too young, for instants rise with positions. One whose
-- instant is yet to come says nothing of others.
-- name: lot
SELECT count(*), max(position) FROM (
    SELECT position FROM semel_outbox
    WHERE stream = :stream AND position > :after AND shard % :parts = :part AND added_us <= :now - :keep_us
        AND position <= min(:at, ifnull((
            SELECT young.position FROM semel_outbox AS young
            WHERE young.position > :after AND young.added_us > :now - :keep_us AND young.added_us <= :now
            ORDER BY young.position LIMIT 1
        ), :at))
    ORDER BY position LIMIT :limit
);

-- name: purge_parked
DELETE FROM semel_parked
WHERE stream = :stream AND shard % :parts = :part AND error_type IS NOT NULL AND parked_us <= :now - :keep_parked_us;

-- part: concerned
(:scope IS NULL OR scope = :scope) AND (:of_stream IS NULL OR stream = :of_stream)
    AND (:subject IS NULL OR subject = :subject)

-- So many events as are looked at together: there is no index on what they are about.
-- name: page
SELECT count(*), max(position) FROM (
    SELECT position FROM semel_outbox WHERE position > :after ORDER BY position LIMIT :limit
);

-- name: erase
DELETE FROM semel_outbox WHERE position > :after AND position <= :last AND {concerned};

-- Read after the cursors: whatever they are past was published or parked by then, in the same write.
-- name: concerned_events
SELECT position, stream, shard, EXISTS (SELECT 1 FROM semel_parked AS p WHERE p.position = semel_outbox.position)
FROM semel_outbox WHERE position > :after AND position <= :last AND {concerned};

-- name: erase_positions
DELETE FROM semel_outbox WHERE position IN (SELECT value FROM json_each(:positions));

-- name: concerned_parked
SELECT count(*) FROM semel_parked WHERE {concerned};

-- name: erase_parked
DELETE FROM semel_parked WHERE {concerned};

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

-- What waits: above the end of its shard. The ends are one text, twenty digits for each shard.
-- part: waiting
FROM semel_outbox WHERE stream = :stream AND position > :floor
    AND position > CAST(substr(:ends, shard * 20 + 1, 20) AS INTEGER)
ORDER BY position LIMIT :limit

-- name: lag
SELECT count(*), min(added_us) FROM (SELECT added_us {waiting});

-- name: peek
SELECT position, {events} {waiting};

-- The instant; where parts stand, one row for each; and one row for each stream that has events.
-- name: progress
SELECT :now, NULL, NULL, NULL, NULL, NULL
UNION ALL
SELECT :now, stream, part, parts, at, saved_us FROM semel_cursor WHERE stream = coalesce(:stream, stream)
UNION ALL
SELECT :now, stream, NULL, NULL, NULL, NULL FROM (SELECT DISTINCT stream FROM semel_outbox)
WHERE stream = coalesce(:stream, stream);

-- name: parked_counts
SELECT stream, count(*), count(error_type) FROM semel_parked WHERE stream = coalesce(:stream, stream) GROUP BY stream;
