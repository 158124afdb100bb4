-- What PostgreSQL says about batches in its own way: one statement for each change of two tables.

-- How much is loaded; the items follow by COPY in the same transaction. Only for the process that opened the batch last.
-- name: move_loaded
UPDATE {batch_table} SET loaded = loaded + ?::bigint, updated_us = {clock}
WHERE number = ?::bigint AND token = ?::bytea AND state = 'loading' AND loaded = ?::bigint RETURNING number;

-- The same together with the items, for client libraries without COPY.
-- name: add
WITH b AS (
    UPDATE {batch_table} SET loaded = loaded + ?::bigint, updated_us = {clock}
    WHERE number = ?::bigint AND token = ?::bytea AND state = 'loading' AND loaded = ?::bigint RETURNING number
), added AS (
    INSERT INTO {item_table} (batch, position, id, data, about, subject)
    SELECT b.number, u.* FROM b CROSS JOIN unnest(?::bigint[], ?::text[], ?::bytea[], ?::bytea[], ?::text[])
        AS u(position, id, data, about, subject)
)
SELECT number FROM b;

-- A page is handed out once: the counter is on one row. A page without a worker is found because it is not done.
-- name: take
WITH b AS (
    UPDATE {batch_table} SET next_page = next_page + 1
    WHERE number = ?::bigint AND state = 'running' AND next_page * page < total
    RETURNING number, next_page - 1 AS taken, page AS size, total
), p AS (
    INSERT INTO {page_table} (batch, page, first, total, updated_us)
    SELECT number, taken, taken * size, least(size, total - taken * size), {clock} FROM b ON CONFLICT DO NOTHING
)
SELECT b.taken, x.state FROM {batch_table} AS x LEFT JOIN b ON b.number = x.number WHERE x.number = ?::bigint;

-- Ends of items that are pending, which nearly all are: each of two workers on one page changes, and counts, only rows
-- that are still pending when its turn comes. The page is locked before its items by every statement that changes them,
-- so that no two of them wait for each other. The bounds let every planner find the items by their primary key.
-- name: settle_pending
WITH p AS MATERIALIZED (
    SELECT batch, page FROM {page_table} WHERE batch = ?::bigint AND page = ?::bigint FOR NO KEY UPDATE
), e AS MATERIALIZED (
    SELECT * FROM unnest(?::bigint[], ?::smallint[], ?::bytea[]) AS u(position, status, outcome)
), noted AS (
    UPDATE {item_table} AS i SET status = e.status, outcome = e.outcome FROM e CROSS JOIN p
    WHERE i.batch = ?::bigint AND i.position >= ?::bigint AND i.position <= ?::bigint AND i.position = e.position
        AND i.batch = p.batch AND i.status = 0
    RETURNING i.status
)
UPDATE {page_table} AS p SET updated_us = {clock}, completed = p.completed + c.completed, failed = p.failed + c.failed,
    skipped = p.skipped + c.skipped, in_doubt = p.in_doubt + c.in_doubt
FROM (
    SELECT count(*) AS changed, count(*) FILTER (WHERE status = 1)::integer AS completed,
        count(*) FILTER (WHERE status = 2)::integer AS failed, count(*) FILTER (WHERE status = 3)::integer AS skipped,
        count(*) FILTER (WHERE status = 4)::integer AS in_doubt
    FROM noted
) AS c
WHERE p.batch = ?::bigint AND p.page = ?::bigint RETURNING c.changed;

-- The same for items of any status: a late worker changes nothing that is done. Of two workers on one page each sees
-- what the other has noted, because items are locked before their status is looked at.
-- name: settle
WITH p AS MATERIALIZED (
    SELECT batch, page FROM {page_table} WHERE batch = ?::bigint AND page = ?::bigint FOR NO KEY UPDATE
), e AS MATERIALIZED (
    SELECT * FROM unnest(?::bigint[], ?::smallint[], ?::bytea[]) AS u(position, status, outcome)
), old AS MATERIALIZED (
    SELECT i.position, i.status AS was, e.status, e.outcome
    FROM p JOIN {item_table} AS i ON i.batch = p.batch JOIN e ON e.position = i.position
    WHERE i.batch = ?::bigint AND i.position >= ?::bigint AND i.position <= ?::bigint AND (
        (i.status IN (0, 4) AND i.status <> e.status) OR (i.status = 2 AND e.status IN (1, 3))
    )
    ORDER BY i.position FOR NO KEY UPDATE OF i
), noted AS (
    UPDATE {item_table} AS i SET status = old.status, outcome = old.outcome FROM old
    WHERE i.batch = ?::bigint AND i.position >= ?::bigint AND i.position <= ?::bigint AND i.position = old.position
)
UPDATE {page_table} AS p SET updated_us = {clock}, completed = p.completed + c.completed, failed = p.failed + c.failed,
    skipped = p.skipped + c.skipped, in_doubt = p.in_doubt + c.in_doubt
FROM (
    SELECT (count(*) FILTER (WHERE status = 1) - count(*) FILTER (WHERE was = 1))::integer AS completed,
        (count(*) FILTER (WHERE status = 2) - count(*) FILTER (WHERE was = 2))::integer AS failed,
        (count(*) FILTER (WHERE status = 3) - count(*) FILTER (WHERE was = 3))::integer AS skipped,
        (count(*) FILTER (WHERE status = 4) - count(*) FILTER (WHERE was = 4))::integer AS in_doubt
    FROM old
) AS c
WHERE p.batch = ?::bigint AND p.page = ?::bigint;

-- The batch is changed last, and only if something is pending again; it raises `reopened`, which keeps whoever looked
-- before from completing it.
-- name: reopen
WITH p AS MATERIALIZED (
    SELECT batch, page FROM {page_table} WHERE batch = ?::bigint AND page = ?::bigint FOR NO KEY UPDATE
), old AS MATERIALIZED (
    SELECT i.position FROM p JOIN {item_table} AS i ON i.batch = p.batch
    WHERE i.batch = ?::bigint AND i.position = ANY(?::bigint[]) AND i.status = ?::smallint AND EXISTS (
        SELECT 1 FROM {batch_table} AS b WHERE b.number = ?::bigint AND b.state IN ('running', 'paused', 'completed')
    )
    ORDER BY i.position FOR NO KEY UPDATE OF i
), noted AS (
    UPDATE {item_table} AS i SET status = 0, outcome = NULL FROM old
    WHERE i.batch = ?::bigint AND i.position = old.position
), opened AS (
    UPDATE {page_table} AS p SET is_done = false, round = p.round + p.is_done::integer,
        failed = p.failed - CASE WHEN ?::smallint = 2 THEN c.n ELSE 0 END,
        in_doubt = p.in_doubt - CASE WHEN ?::smallint = 4 THEN c.n ELSE 0 END
    FROM (SELECT count(*)::integer AS n FROM old) AS c
    WHERE p.batch = ?::bigint AND p.page = ?::bigint AND c.n > 0 RETURNING 1
)
UPDATE {batch_table} SET state = CASE state WHEN 'completed' THEN 'running' ELSE state END, ended_us = NULL,
    reopened = reopened + 1, updated_us = {clock}
WHERE number = ?::bigint AND state IN ('running', 'paused', 'completed') AND EXISTS (SELECT 1 FROM opened);

-- name: reserve
UPDATE {batch_table} SET free_us = greatest(free_us, {clock}) + ?::bigint WHERE number = ?::bigint
RETURNING free_us, {clock};
