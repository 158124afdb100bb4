-- What SQLite says about batches in its own way. Values are bound by name, as in `statements.sql`. Lists travel as JSON;
-- bytes as one value, of which each row names its piece.

-- Items first: if one is there already, nothing has changed. Only of whoever opened the batch last.
-- name: add
INSERT INTO semel_item (batch, position, id, subject, data, about)
SELECT :number, json_extract(e.value, '$[0]'), json_extract(e.value, '$[1]'), json_extract(e.value, '$[2]'),
    substr(:data, json_extract(e.value, '$[3]'), json_extract(e.value, '$[4]')),
    CASE WHEN json_extract(e.value, '$[6]') IS NOT NULL
        THEN substr(:data, json_extract(e.value, '$[5]'), json_extract(e.value, '$[6]')) END
FROM json_each(:rows) AS e WHERE EXISTS (
    SELECT 1 FROM semel_batch AS b
    WHERE b.number = :number AND b.token = :token AND b.state = 'loading' AND b.loaded = :offset
);

-- name: move_on
UPDATE semel_batch SET loaded = loaded + :count, updated_us = :now
WHERE number = :number AND token = :token AND state = 'loading' AND loaded = :offset;

-- name: take
UPDATE semel_batch SET next_page = next_page + 1
WHERE number = :number AND state = 'running' AND next_page * page < total;

-- name: make_page
INSERT INTO semel_page (batch, page, first, total, updated_us)
SELECT number, next_page - 1, (next_page - 1) * page, min(page, total - (next_page - 1) * page), :now
FROM semel_batch WHERE number = :number ON CONFLICT DO NOTHING;

-- name: taken
SELECT next_page - 1, state FROM semel_batch WHERE number = :number;

-- name: not_taken
SELECT NULL, state FROM semel_batch WHERE number = :number;

-- name: touch
UPDATE semel_page SET updated_us = :now WHERE batch = :number AND page = :page;

-- A late worker changes nothing that is done. {n} numbers the statuses that are noted together.
-- name: settle
UPDATE semel_item SET status = :status{n}, outcome = NULL
WHERE batch = :number AND position IN (SELECT value FROM json_each(:positions{n})) AND (
    (status IN (0, 4) AND status <> :status{n}) OR (status = 2 AND :status{n} IN (1, 3))
);

-- The same for one item whose outcome has no record.
-- name: settle_outcome
UPDATE semel_item SET status = :status{n}, outcome = :outcome{n}
WHERE batch = :number AND position = :position{n} AND (
    (status IN (0, 4) AND status <> :status{n}) OR (status = 2 AND :status{n} IN (1, 3))
);

-- part: counted
SELECT count(*) FROM semel_item AS i
WHERE i.batch = :number AND i.position >= semel_page.first AND i.position < semel_page.first + semel_page.total
    AND i.status

-- name: count
UPDATE semel_page SET completed = ({counted} = 1), failed = ({counted} = 2), skipped = ({counted} = 3),
    in_doubt = ({counted} = 4)
WHERE batch = :number AND page = :page;

-- name: reopen
UPDATE semel_item SET status = 0, outcome = NULL
WHERE batch = :number AND position IN (SELECT value FROM json_each(:positions)) AND status = :status AND EXISTS (
    SELECT 1 FROM semel_batch AS b WHERE b.number = :number AND b.state IN ('running', 'paused', 'completed')
);

-- name: open_page
UPDATE semel_page SET round = round + is_done, is_done = 0 WHERE batch = :number AND page = :page;

-- name: open_batch
UPDATE semel_batch SET state = CASE state WHEN 'completed' THEN 'running' ELSE state END, ended_us = NULL,
    reopened = reopened + 1, updated_us = :now
WHERE number = :number AND state IN ('running', 'paused', 'completed');

-- name: reserve
UPDATE semel_batch SET free_us = max(free_us, :now) + :amount WHERE number = :number;

-- name: reserved
SELECT free_us, :now FROM semel_batch WHERE number = :number;
