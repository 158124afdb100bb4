-- What MySQL and MariaDB say about batches in their own way: statements that are sent together, as one transaction.

-- Only of whoever opened the batch last, and only behind what is loaded.
-- name: move_on
UPDATE {batch_table} SET loaded = loaded + ?, updated_us = {clock}
WHERE number = ? AND token = ? AND state = 'loading' AND loaded = ?;

-- name: add
INSERT INTO {item_table} (batch, position, id, data, about, subject)
SELECT e.batch, e.position, e.id, e.data, e.about, e.subject FROM ({input}) AS e WHERE ROW_COUNT() > 0;

-- name: reset
DO LAST_INSERT_ID(0);

-- A page is handed out once: the counter is on one row, which is locked until its page is there.
-- name: take
UPDATE {batch_table} SET next_page = LAST_INSERT_ID(next_page + 1)
WHERE number = ? AND state = 'running' AND next_page * page < total;

-- name: make_page
INSERT IGNORE INTO {page_table} (batch, page, first, total, updated_us)
SELECT b.number, LAST_INSERT_ID() - 1, (LAST_INSERT_ID() - 1) * b.page,
    LEAST(b.page, b.total - (LAST_INSERT_ID() - 1) * b.page), {clock}
FROM {batch_table} AS b WHERE b.number = ? AND LAST_INSERT_ID() > 0;

-- name: taken
SELECT LAST_INSERT_ID(), b.state FROM {batch_table} AS b WHERE b.number = ?;

-- The page is locked before its items, so that of two workers on one page each sees what the other has noted.
-- name: touch
UPDATE {page_table} SET updated_us = {clock} WHERE batch = ? AND page = ?;

-- Completed items that are pending, which nearly all are, and how many of them were; then nothing has to be counted. In
-- the caller's transaction counting would lock the first item of the next page too, and two pages wait for each other.
-- name: settle_pending
UPDATE {item_table} AS i JOIN ({input}) AS e ON i.batch = e.batch AND i.position = e.position
SET i.outcome = e.outcome, i.status = e.status WHERE i.status = 0;

-- name: add_completed
UPDATE {page_table} SET completed = completed + LAST_INSERT_ID(ROW_COUNT()) WHERE batch = ? AND page = ?;

-- name: added
SELECT LAST_INSERT_ID();

-- A late worker changes nothing that is done. The status is set last: the conditions are about what it was.
-- name: settle
UPDATE {item_table} AS i JOIN ({input}) AS e ON i.batch = e.batch AND i.position = e.position
SET i.outcome = e.outcome, i.status = e.status
WHERE (i.status IN (0, 4) AND i.status <> e.status) OR (i.status = 2 AND e.status IN (1, 3));

-- part: counted
SELECT COUNT(*) FROM {item_table} AS i
WHERE i.batch = p.batch AND i.position >= p.first AND i.position < p.first + p.total AND i.status

-- name: count
UPDATE {page_table} AS p SET p.completed = ({counted} = 1), p.failed = ({counted} = 2), p.skipped = ({counted} = 3),
    p.in_doubt = ({counted} = 4)
WHERE p.batch = ? AND p.page = ?;

-- name: reopen
UPDATE {item_table} AS i SET i.outcome = NULL, i.status = 0
WHERE i.batch = ? AND i.position {among} AND i.status = ? AND EXISTS (
    SELECT 1 FROM {batch_table} AS b WHERE b.number = ? AND b.state IN ('running', 'paused', 'completed')
);

-- name: open_page
UPDATE {page_table} SET
    round = round + IF(is_done AND completed + failed + skipped + in_doubt < total, 1, 0),
    is_done = is_done AND completed + failed + skipped + in_doubt = total
WHERE batch = ? AND page = ?;

-- A batch with an open page is not completed; `reopened` keeps whoever looked before from completing it.
-- name: open_batch
UPDATE {batch_table} SET ended_us = NULL, reopened = reopened + 1, updated_us = {clock},
    state = IF(state = 'completed', 'running', state)
WHERE number = ? AND state IN ('running', 'paused', 'completed') AND EXISTS (
    SELECT 1 FROM {page_table} AS p WHERE p.batch = ? AND p.page = ? AND NOT p.is_done
);

-- name: reserve
UPDATE {batch_table} SET free_us = GREATEST(free_us, {clock}) + ? WHERE number = ?;

-- name: reserved
SELECT free_us, {clock} FROM {batch_table} WHERE number = ?;

-- name: changed
SELECT ROW_COUNT();
