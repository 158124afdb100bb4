-- Statements about batches that every SQL store understands as they are. What has to be done in one transaction, and a
-- server says in its own way, is in the statements of that server.

-- Of two that begin the same batch one finds it there.
-- name: insert_batch
{insert_ignore} {batch_table} (scope, id, operation, state, reason, token, metadata, notes, digest, keep_us, created_us, updated_us)
VALUES (?, ?, ?, 'loading', '', ?, ?, ?, ?, ?, {clock}, {clock}) {or_nothing};

-- Whoever opens a batch last loads it; whoever did before adds nothing any more.
-- name: take_load
UPDATE {batch_table} SET token = ? WHERE scope = ? AND id = ? AND state = 'loading';

-- name: reset_load
UPDATE {batch_table} SET operation = ?, metadata = ?, keep_us = ?, updated_us = {clock}
WHERE scope = ? AND id = ? AND state = 'loading' AND loaded = 0 AND token = ?;

-- name: by_name
SELECT {batch} FROM {batch_table} WHERE scope = ? AND id = ?;

-- name: by_number
SELECT {batch} FROM {batch_table} WHERE number = ?;

-- name: loading
SELECT loaded, token, state FROM {batch_table} WHERE number = ?;

-- name: counts
SELECT {clock}, COALESCE(SUM(completed), 0), COALESCE(SUM(failed), 0), COALESCE(SUM(skipped), 0),
    COALESCE(SUM(in_doubt), 0),
    COALESCE(SUM(CASE WHEN updated_us > {clock} - 60000000 THEN completed + failed + skipped + in_doubt ELSE 0 END), 0),
    COALESCE(SUM(CASE WHEN updated_us > {clock} - 60000000 AND is_done THEN 1 ELSE 0 END), 0),
    COALESCE(SUM(CASE WHEN updated_us > {clock} - 60000000 AND NOT is_done THEN 1 ELSE 0 END), 0),
    COALESCE(MAX(updated_us), 0)
FROM {page_table} WHERE batch = ?;

-- name: drop_loaded
DELETE FROM {item_table} WHERE batch = ? AND position >= ?
    AND EXISTS (SELECT 1 FROM {batch_table} AS b WHERE b.number = ? AND b.token = ? AND b.state = 'loading');

-- name: set_loaded
UPDATE {batch_table} SET loaded = ? WHERE number = ? AND token = ? AND state = 'loading';

-- Workers see it from here on.
-- name: finish_load
UPDATE {batch_table} SET state = 'pending', total = ?, digest = ?, updated_us = {clock}
WHERE number = ? AND token = ? AND state = 'loading' AND loaded = ?;

-- Only while nothing of it is loaded: a process that opened it later may have begun to add items.
-- name: abandon
DELETE FROM {batch_table} WHERE number = ? AND token = ? AND state = 'loading' AND loaded = 0;

-- name: note
UPDATE {batch_table} SET notes = ? WHERE number = ? AND notes = ?;

-- Lists, of one operation or of any.
-- name: list
SELECT {batch} FROM {batch_table} WHERE scope = ? AND number > ? AND state <> 'expired'
    AND operation = coalesce(?, operation) ORDER BY number LIMIT ?;

-- name: list_of_state
SELECT {batch} FROM {batch_table} WHERE scope = ? AND number > ? AND state = ?
    AND operation = coalesce(?, operation) ORDER BY number LIMIT ?;

-- name: list_everywhere
SELECT {batch} FROM {batch_table} WHERE number > ? AND state <> 'expired'
    AND operation = coalesce(?, operation) ORDER BY number LIMIT ?;

-- name: list_everywhere_of_state
SELECT {batch} FROM {batch_table} WHERE number > ? AND state = ?
    AND operation = coalesce(?, operation) ORDER BY number LIMIT ?;

-- name: newest
SELECT {batch} FROM {batch_table} WHERE scope = ? AND number < ? AND state <> 'expired'
    AND operation = coalesce(?, operation) ORDER BY number DESC LIMIT ?;

-- name: newest_of_state
SELECT {batch} FROM {batch_table} WHERE scope = ? AND number < ? AND state = ?
    AND operation = coalesce(?, operation) ORDER BY number DESC LIMIT ?;

-- name: newest_everywhere
SELECT {batch} FROM {batch_table} WHERE number < ? AND state <> 'expired'
    AND operation = coalesce(?, operation) ORDER BY number DESC LIMIT ?;

-- name: newest_everywhere_of_state
SELECT {batch} FROM {batch_table} WHERE number < ? AND state = ?
    AND operation = coalesce(?, operation) ORDER BY number DESC LIMIT ?;

-- name: items
SELECT {item} FROM {item_table} WHERE batch = ? AND position >= ? AND position < ? ORDER BY position;

-- name: items_of_status
SELECT {item} FROM {item_table} WHERE batch = ? AND position >= ? AND position < ? AND status = ? ORDER BY position
LIMIT ?;

-- name: find_items
SELECT {item} FROM {item_table} WHERE batch = ? AND id {among} ORDER BY position;

-- The first run says how many items a page has: nobody can take a page before.
-- name: begin
UPDATE {batch_table} SET state = 'running', page = CASE WHEN page = 0 THEN ? ELSE page END,
    started_us = COALESCE(started_us, {clock}), updated_us = {clock}
WHERE number = ? AND state = 'pending';

-- name: open_pages
SELECT page, round FROM {page_table} WHERE batch = ? AND page > ? AND NOT is_done ORDER BY page LIMIT ?;

-- name: all_pages
SELECT page, round FROM {page_table} WHERE batch = ? AND page > ? ORDER BY page LIMIT ?;

-- name: failed_pages
SELECT page, round FROM {page_table} WHERE batch = ? AND page > ? AND failed > 0 ORDER BY page LIMIT ?;

-- name: doubtful_pages
SELECT page, round FROM {page_table} WHERE batch = ? AND page > ? AND in_doubt > 0 ORDER BY page LIMIT ?;

-- The counts are those of the rows, so they say whether an item is pending; then another round begins, under another key.
-- name: finish_page
UPDATE {page_table} SET
    round = round + CASE WHEN completed + failed + skipped + in_doubt = total THEN 0 ELSE 1 END,
    is_done = (completed + failed + skipped + in_doubt = total)
WHERE batch = ? AND page = ? AND round = ? AND NOT is_done;

-- name: is_done
SELECT is_done FROM {page_table} WHERE batch = ? AND page = ?;

-- Of several that decide, one changes the state that all of them saw.
-- name: change
UPDATE {batch_table} SET state = ?, reason = ?, has_overrun = ?, updated_us = {clock} WHERE number = ? AND state = ?;

-- A process that was loading it adds nothing any more.
-- name: cancel
UPDATE {batch_table} SET state = ?, reason = ?, ended_us = {clock}, updated_us = {clock}
WHERE number = ? AND state = ? AND has_overrun = ?;

-- name: may_end
SELECT reopened, next_page * page >= total AND NOT EXISTS (
    SELECT 1 FROM {page_table} AS p WHERE p.batch = b.number AND NOT p.is_done
) FROM {batch_table} AS b WHERE b.number = ? AND b.state = 'running';

-- Whoever reopened items after `may_end` was read has raised `reopened`, on the very row that this waits for.
-- name: end
UPDATE {batch_table} SET state = 'completed', ended_us = {clock}, updated_us = {clock}
WHERE number = ? AND state = 'running' AND reopened = ?;

-- It ended longer ago than it is kept, or nobody has gone on loading it for a long time.
-- part: old
((state IN ('completed', 'cancelled', 'failed') AND ended_us + keep_us <= {clock})
    OR (state = 'loading' AND updated_us <= {clock} - {abandoned_us}))

-- name: may_expire
SELECT b.number FROM {batch_table} AS b
WHERE {old} AND NOT EXISTS (SELECT 1 FROM {page_table} AS p WHERE p.batch = b.number AND p.in_doubt > 0)
ORDER BY b.number LIMIT ?;

-- The same of one batch.
-- name: one_may_expire
SELECT b.number FROM {batch_table} AS b
WHERE b.number = ? AND {old} AND NOT EXISTS (SELECT 1 FROM {page_table} AS p WHERE p.batch = b.number AND p.in_doubt > 0);

-- Those that stay only because items are in doubt.
-- name: held
SELECT {batch} FROM {batch_table} AS b
WHERE b.number > ? AND {old} AND EXISTS (SELECT 1 FROM {page_table} AS p WHERE p.batch = b.number AND p.in_doubt > 0)
ORDER BY b.number LIMIT ?;

-- A batch of which items were reopened since is in another state, or has not ended.
-- name: expire
UPDATE {batch_table} SET state = 'expired' WHERE number = ? AND {old};

-- name: expired
SELECT {batch} FROM {batch_table} WHERE state = 'expired' ORDER BY number LIMIT ?;

-- name: expire_records
UPDATE {record_table} SET expires_us = 0 WHERE digest {among} AND status NOT IN ('running', 'in_doubt');

-- name: drop_items
DELETE FROM {item_table} WHERE batch = ? AND position < ?;

-- name: drop_pages
DELETE FROM {page_table} WHERE batch = ?;

-- name: drop_batch
DELETE FROM {batch_table} WHERE number = ?;

-- name: subject
SELECT i.subject, b.number, b.scope, b.id, b.operation, b.state, i.position, i.id, i.status
FROM {item_table} AS i JOIN {batch_table} AS b ON b.number = i.batch
WHERE i.subject = ? AND b.scope = COALESCE(?, b.scope) AND (i.batch > ? OR (i.batch = ? AND i.position > ?))
ORDER BY i.batch, i.position LIMIT ?;

-- What is done, or pending where nothing runs any more: nobody brings a batch back from those states.
-- part: over
(status IN (1, 2, 3) OR (status = 0 AND batch IN (SELECT number FROM {batch_table} WHERE state IN ('cancelled', 'failed'))))

-- name: erasable
SELECT position FROM {item_table} WHERE batch = ? AND position {among} AND NOT is_erased AND {over};

-- name: erase
UPDATE {item_table} SET data = ?, about = NULL, subject = NULL, outcome = NULL, is_erased = {true}
WHERE batch = ? AND position {among} AND NOT is_erased AND {over};
