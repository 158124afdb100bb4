-- Every statement of the outbox on PostgreSQL. {events} stands for the columns of an event, {e_events} for those of `e`.

-- Into the outbox, in the order in which they were given. `d` is what decides whether: one row with `now`, or none.
-- part: adding
INSERT INTO {outbox_table} (added_us, {events})
SELECT d.now, {u_events}
FROM {given} AS d CROSS JOIN unnest({arrays}) WITH ORDINALITY AS u({events}, place)
ORDER BY u.place

-- name: add
WITH d AS MATERIALIZED (SELECT {clock} AS now {condition}), added AS ({adding})
SELECT now FROM d;

-- What rides on the statement that completes a record: only where that has changed it.
-- name: riding
, added AS ({adding})

-- Which server this is, as long as it runs. What a relay remembers may be ahead of a standby that was promoted, or of a
-- server that has crashed: there, numbers of transactions that it has seen are given to others. A server that loses one
-- of its processes recovers from a crash and is not started anew, but begins its statistics again. Before release 15
-- statistics are read from a file that has to be waited for, too slow for every reading.
-- part: server
(extract(epoch FROM CASE
    WHEN current_setting('server_version_num')::integer < 150000 THEN pg_postmaster_start_time()
    ELSE greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())
END) * 1000000)::bigint

-- Where each part of a stream is, the newest row of each; whether this is a standby, on which no snapshot knows which
-- transactions are open; the cluster, whose numbers of transactions the snapshots are of; and the server.
-- name: cursors
SELECT pg_is_in_recovery(), (SELECT system_identifier FROM pg_control_system()),
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {outbox_sequence}),
    c.part, c.parts, c.number, c.seen::text, c.floor, c.until::text, c.at, c.cluster, {server}
FROM (SELECT 1) AS one LEFT JOIN LATERAL (
    SELECT DISTINCT ON (x.parts, x.part) x.* FROM {cursor_table} AS x WHERE x.stream = ?::text
    ORDER BY x.parts, x.part, x.number DESC
) AS c ON true;

-- Whether events of a stream that nobody has read are of another cluster: in this one, a transaction whose rows are seen
-- has a number below the end of the snapshot.
-- name: has_foreign
SELECT EXISTS (
    SELECT 1 FROM {outbox_table} AS e
    WHERE e.xid >= pg_snapshot_xmax(pg_current_snapshot()) AND e.stream = ?::text
);

-- The snapshot is taken before the function gets its number, so that it does not see what the function numbers. A later
-- one would name that number only while it is the highest: a snapshot leaves out its own transaction.
-- name: rebase
WITH before AS MATERIALIZED (SELECT pg_current_snapshot()::text AS seen)
SELECT before.seen FROM before
CROSS JOIN {rebase_function}(?::text, ?::integer, ?::integer, ?::text::pg_snapshot, ?::bigint);

-- The fence: of two that save after the same row, one finds the primary key taken; who comes so late that the rows of the
-- other are forgotten finds newer ones. What was read on another server is not saved here.
-- part: saving
INSERT INTO {cursor_table} (stream, part, parts, number, seen, floor, until, at, token, cluster, saved_us)
SELECT n.*, {clock} FROM (
    VALUES (
        ?::text, ?::integer, ?::integer, ?::bigint, ?::text::pg_snapshot, ?::bigint, ?::text::pg_snapshot, ?::bigint,
        ?::bytea, ?::bigint
    )
) AS n(stream, part, parts, number, seen, floor, until, at, token, cluster)
WHERE {server} = ?::bigint AND NOT EXISTS (
    SELECT 1 FROM {cursor_table} AS c
    WHERE c.stream = n.stream AND c.part = n.part AND c.parts = n.parts AND c.number > n.number
)
ON CONFLICT DO NOTHING RETURNING saved_us AS now

-- name: save
{saving};

-- What was erased since it was read stays erased: its row is locked until it is parked, so that whoever erases it finds it
-- in one of the two places.
-- name: save_and_park
WITH d AS ({saving}), there AS MATERIALIZED (
    SELECT o.position FROM {outbox_table} AS o WHERE o.position = ANY(?::bigint[]) FOR KEY SHARE
), parked AS (
    INSERT INTO {parked_table} (position, {events}, error_type, error_message, attempts, parked_us)
    SELECT u.*, d.now FROM d CROSS JOIN unnest(?::bigint[], {arrays}, ?::text[], ?::text[], ?::integer[])
        AS u(position, {events}, error_type, error_message, attempts)
    WHERE u.position IN (SELECT there.position FROM there)
    ON CONFLICT DO NOTHING
)
SELECT now FROM d;

-- name: saved
SELECT token FROM {cursor_table}
WHERE stream = ?::text AND part = ?::integer AND parts = ?::integer AND number = ?::bigint;

-- On another server the newest row may be older than all that are remembered.
-- name: forget_cursors
DELETE FROM {cursor_table}
WHERE stream = ?::text AND part = ?::integer AND parts = ?::integer AND number < ?::bigint AND {server} = ?::bigint;

-- The next events of a window: those that `until` sees and `seen` does not, in the order of positions. First what is
-- above the floor; then, of transactions that had not ended in `seen`, what is below it, found by their numbers. The
-- condition is never said by comparing numbers: with old statistics the planner would take the index on xid for the first
-- branch, and sort the whole window for each batch. It would do the same without statistics, believing that hardly an
-- event meets the condition; of a CASE it believes that every other one does, and reads in the order of positions.
-- There is always a row; where there is no event its position is NULL. A relay that was overtaken reads nothing: it does
-- not know what has been parked since, and what waits behind that must not be published.
-- name: batch
WITH w AS MATERIALIZED (
    SELECT ?::text::pg_snapshot AS seen, coalesce(?::text::pg_snapshot, pg_current_snapshot()) AS until,
        ?::bigint AS floor, ?::bigint AS at, (
            SELECT c.token = ?::bytea FROM {cursor_table} AS c
            WHERE c.stream = ?::text AND c.part = ?::integer AND c.parts = ?::integer ORDER BY c.number DESC LIMIT 1
        ) AS is_mine, {server} = ?::bigint AS is_here
)
SELECT w.until::text, (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {outbox_sequence}), w.is_mine, e.*,
    w.is_here
FROM w LEFT JOIN LATERAL (
    SELECT * FROM (
        (
            SELECT e.position, {e_events} FROM {outbox_table} AS e
            WHERE e.position > greatest(?::bigint, ?::bigint) AND CASE
                WHEN e.stream = ?::text {mine}
                    AND NOT pg_visible_in_snapshot(e.xid, (SELECT seen FROM w))
                    AND pg_visible_in_snapshot(e.xid, (SELECT until FROM w))
                THEN true
            END
            ORDER BY e.position LIMIT ?::bigint
        )
        UNION ALL
        (
            SELECT e.position, {e_events} FROM pg_snapshot_xip((SELECT seen FROM w)) AS late(xid)
            CROSS JOIN LATERAL (SELECT * FROM {outbox_table} AS x WHERE x.xid = late.xid OFFSET 0) AS e
            WHERE e.position > (SELECT at FROM w) AND e.position <= (SELECT floor FROM w) AND e.stream = ?::text {mine}
                AND pg_visible_in_snapshot(late.xid, (SELECT until FROM w))
            ORDER BY e.position LIMIT ?::bigint
        )
    ) AS u WHERE w.is_mine ORDER BY position LIMIT ?::bigint
) AS e ON true;

-- Published is what `seen` sees. In lots, from the oldest on; relays begin at their floor and do not meet what is dead.
-- Instants rise with positions, nearly: so the first event that is too young ends the search, and not the floor, below which
-- is all that is kept. One whose instant is yet to come says nothing of others. As in `batch`, a CASE has the planner read
-- in the order of positions.
-- name: purge
WITH w AS MATERIALIZED (SELECT {clock} AS now, ?::bigint AS after, ?::bigint AS keep_us), young AS MATERIALIZED (
    SELECT e.position FROM {outbox_table} AS e WHERE e.position > (SELECT after FROM w)
        AND CASE WHEN e.added_us > (SELECT now - keep_us FROM w) AND e.added_us <= (SELECT now FROM w) THEN true END
    ORDER BY e.position LIMIT 1
), gone AS (
    DELETE FROM {outbox_table} AS o WHERE o.position IN (
        SELECT e.position FROM {outbox_table} AS e
        WHERE e.position > (SELECT after FROM w)
            AND e.position <= least(?::bigint, (SELECT young.position FROM young)) AND e.stream = ?::text {mine}
            AND e.added_us <= (SELECT now - keep_us FROM w) AND pg_visible_in_snapshot(e.xid, ?::text::pg_snapshot)
            AND {server} = ?::bigint
        ORDER BY e.position LIMIT ?::bigint
    )
    RETURNING o.position
)
SELECT count(*), max(position) FROM gone;

-- name: purge_parked
WITH gone AS (
    DELETE FROM {parked_table} AS e
    WHERE e.stream = ?::text {mine} AND e.error_type IS NOT NULL AND e.parked_us <= {clock} - ?::bigint
    RETURNING 1
)
SELECT count(*) FROM gone;

-- part: concerned
e.scope = coalesce(?::text, e.scope) AND e.stream = coalesce(?::text, e.stream)
    AND e.subject IS NOT DISTINCT FROM coalesce(?::text, e.subject)

-- So many events as are looked at together: there is no index on what they are about.
-- name: erase
WITH page AS MATERIALIZED (
    SELECT e.position, {concerned} AS is_concerned FROM {outbox_table} AS e
    WHERE e.position > ?::bigint ORDER BY e.position LIMIT ?::bigint
), gone AS (
    DELETE FROM {outbox_table} AS o USING page AS p WHERE o.position = p.position AND p.is_concerned RETURNING 1
)
SELECT (SELECT count(*) FROM gone), count(*), max(position) FROM page;

-- Read after the cursors: whatever they are past was published or parked by then, in the same write.
-- name: concerned_events
SELECT e.position, e.stream, e.shard::integer, e.xid::text::bigint, {concerned}, EXISTS (
    SELECT 1 FROM {parked_table} AS p WHERE p.stream = e.stream AND p.position = e.position
)
FROM {outbox_table} AS e WHERE e.position > ?::bigint ORDER BY e.position LIMIT ?::bigint;

-- Which numbers of transactions snapshots are worth anything for: those of this cluster, up to the newest.
-- name: cluster
SELECT (SELECT system_identifier FROM pg_control_system()), pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: erase_positions
DELETE FROM {outbox_table} AS o WHERE o.position = ANY(?::bigint[]);

-- name: concerned_parked
SELECT count(*) FROM {parked_table} AS e WHERE {concerned};

-- name: erase_parked
WITH gone AS (DELETE FROM {parked_table} AS e WHERE {concerned} RETURNING 1) SELECT count(*) FROM gone;

-- name: held
SELECT DISTINCT e.ordering_key FROM {parked_table} AS e WHERE e.stream = ?::text {mine};

-- name: released
SELECT e.position, {e_events}, e.error_type, e.error_message, e.attempts, e.parked_us FROM {parked_table} AS e
WHERE e.stream = ?::text {mine} AND e.error_type IS NULL AND NOT EXISTS (
    SELECT 1 FROM {parked_table} AS x
    WHERE x.stream = e.stream AND x.ordering_key = e.ordering_key AND x.error_type IS NOT NULL
)
ORDER BY e.position LIMIT ?::bigint;

-- name: drop_released
DELETE FROM {parked_table} WHERE stream = ?::text AND position = ANY(?::bigint[]);

-- name: keep_failed
UPDATE {parked_table} SET error_type = ?::text, error_message = ?::text, attempts = ?::integer, parked_us = {clock}
WHERE stream = ?::text AND position = ?::bigint;

-- name: parked
SELECT e.position, {e_events}, e.error_type, e.error_message, e.attempts, e.parked_us FROM {parked_table} AS e
WHERE e.stream = ?::text AND e.position > ?::bigint ORDER BY e.position LIMIT ?::bigint;

-- name: release
WITH changed AS (
    UPDATE {parked_table} SET error_type = NULL, error_message = NULL
    WHERE stream = ?::text AND position = coalesce(?::bigint, position) AND error_type IS NOT NULL
    RETURNING 1
)
SELECT count(*) FROM changed;

-- name: discard
WITH changed AS (
    DELETE FROM {parked_table} WHERE stream = ?::text AND position = coalesce(?::bigint, position)
    RETURNING 1
)
SELECT count(*) FROM changed;

-- The instant and the cluster; where each part stands, the newest row of each; and one row for each stream of the newest
-- events.
-- name: progress
SELECT {clock}, NULL::text, NULL::integer, NULL::integer, NULL::bigint, NULL, NULL::bigint, NULL, NULL::bigint,
    (SELECT system_identifier FROM pg_control_system())
UNION ALL
SELECT {clock}, c.stream, c.part, c.parts, c.saved_us, c.seen::text, c.floor, c.until::text, c.at, c.cluster FROM (
    SELECT DISTINCT ON (x.stream, x.parts, x.part) x.* FROM {cursor_table} AS x
    WHERE x.stream = coalesce(?::text, x.stream) ORDER BY x.stream, x.parts, x.part, x.number DESC
) AS c
UNION ALL
SELECT {clock}, s.stream, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM (
    SELECT DISTINCT n.stream FROM (
        SELECT e.stream FROM {outbox_table} AS e ORDER BY e.position DESC LIMIT ?::bigint
    ) AS n
) AS s WHERE s.stream = coalesce(?::text, s.stream);

-- What waits: not seen by the last complete window of its shard, nor published in the one that is under way. First what
-- is above the floor, then what transactions added that had not ended in `seen`, as a relay finds it. The arrays have an
-- element for each shard.
-- part: unpublished
NOT pg_visible_in_snapshot(e.xid, (SELECT w.seen[e.shard + 1] FROM w)) AND NOT coalesce(
    e.position <= (SELECT w.at[e.shard + 1] FROM w)
    AND pg_visible_in_snapshot(e.xid, (SELECT w.until[e.shard + 1] FROM w)), false
)

-- part: waiting
WITH w AS MATERIALIZED (
    SELECT ?::text[]::pg_snapshot[] AS seen, ?::text[]::pg_snapshot[] AS until, ?::bigint[] AS at,
        ?::bigint AS floor, ?::text AS stream, ?::bigint AS most
), late AS MATERIALIZED (
    SELECT DISTINCT x.xid FROM unnest((SELECT seen FROM w)) AS s(seen) CROSS JOIN LATERAL pg_snapshot_xip(s.seen) AS x(xid)
), u AS (
    SELECT * FROM (
        (
            SELECT e.position, e.added_us, {e_events} FROM {outbox_table} AS e
            WHERE e.position > (SELECT floor FROM w) AND e.stream = (SELECT stream FROM w) AND {unpublished}
            ORDER BY e.position LIMIT (SELECT most FROM w)
        )
        UNION ALL
        (
            SELECT e.position, e.added_us, {e_events} FROM late
            CROSS JOIN LATERAL (SELECT * FROM {outbox_table} AS x WHERE x.xid = late.xid OFFSET 0) AS e
            WHERE e.position <= (SELECT floor FROM w) AND e.stream = (SELECT stream FROM w) AND {unpublished}
            ORDER BY e.position LIMIT (SELECT most FROM w)
        )
    ) AS found ORDER BY position LIMIT (SELECT most FROM w)
)

-- name: lag
{waiting} SELECT count(*), min(added_us) FROM u;

-- name: peek
{waiting} SELECT position, {events} FROM u ORDER BY position;

-- name: parked_counts
SELECT e.stream, count(*), count(e.error_type) FROM {parked_table} AS e WHERE e.stream = coalesce(?::text, e.stream)
GROUP BY e.stream;
