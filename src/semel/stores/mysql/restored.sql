-- The statements of the restore mark on MySQL and MariaDB.
--
-- {chosen} restricts to the operations that were named; it is empty where all are meant.

-- name: now
SELECT {clock} FROM {meta} WHERE name = 'install_id';

-- What a claim writes for a key without a record becomes a doubt on hold. `created_us` is the instant of the claim. For
-- a key that has a record this changes a row that is never written: what the claim updates then it takes from its own
-- input. So nothing is looked up here, which would lock, or answer from the snapshot of the caller's transaction; and
-- for the same reason the mark itself stands in the text.
-- name: trigger
CREATE TRIGGER {trigger} BEFORE INSERT ON {record_table} FOR EACH ROW
BEGIN
    IF NEW.status = 'running' AND NEW.created_us < ? {chosen} THEN
        SET NEW.status = 'in_doubt', NEW.in_doubt_policy = 'hold', NEW.doubtful = TRUE, NEW.attempts = 0,
            NEW.lease_us = NEW.created_us, NEW.doubt_us = NEW.created_us, NEW.error_type = ?, NEW.error_message = ?;
    END IF;
END;

-- name: gone
DROP TRIGGER IF EXISTS {trigger};

-- name: note
INSERT INTO {meta} (name, value) VALUES ('restored', ?) ON DUPLICATE KEY UPDATE value = ?;

-- name: unnote
DELETE FROM {meta} WHERE name = 'restored';

-- name: mark
SELECT value FROM {meta} WHERE name = 'restored';

-- A run that was interrupted may have left a trigger without its note.
-- name: there
SELECT 1 FROM {meta} WHERE name = 'restored'
UNION ALL SELECT 1 FROM information_schema.TRIGGERS
WHERE TRIGGER_SCHEMA = COALESCE(?, DATABASE()) AND TRIGGER_NAME IN (?, ?);

-- part: expired
r.status NOT IN ('running', 'in_doubt') AND r.expires_us <= ? {chosen}

-- A key whose record has expired may have been claimed again since the restore point. Without its old record it is a
-- key like any other that the store does not know.
-- name: expired_ones
SELECT COUNT(*) FROM {record_table} AS r WHERE {expired} FOR UPDATE;

-- name: forget_steps
DELETE s FROM {step_table} AS s JOIN {record_table} AS r ON r.digest = s.digest WHERE {expired};

-- name: forget_history
DELETE h FROM {history_table} AS h JOIN {record_table} AS r ON r.digest = h.digest WHERE {expired};

-- name: forget
DELETE r FROM {record_table} AS r WHERE {expired};

-- part: unsettled
r.started_us <= ? AND (r.status IN ('running', 'in_doubt') OR (r.status = 'failed' AND r.retryable)) {chosen}

-- What was unsettled at the restore point may have been settled since.
-- name: unsettled_ones
SELECT COUNT(*) FROM {record_table} AS r WHERE {unsettled} FOR UPDATE;

-- name: note_held
INSERT INTO {history_table} (
    digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
)
SELECT r.digest, r.created_us, r.fence * 8 + 1, r.scope, 'attempt', r.attempts, r.started_us, ?, r.nonce, 'in_doubt', ?, ?
FROM {record_table} AS r WHERE r.status = 'running' AND {unsettled};

-- name: hold
UPDATE {record_table} AS r SET r.status = 'in_doubt', r.retryable = FALSE, r.in_doubt_policy = 'hold',
    r.doubtful = TRUE, r.error_type = ?, r.error_message = ?, r.completed_us = NULL, r.updated_us = ?,
    r.doubt_us = COALESCE(r.doubt_us, ?)
WHERE {unsettled};
