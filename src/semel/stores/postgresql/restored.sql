-- The statements of the restore mark.

-- name: note
INSERT INTO {meta} (name, value) VALUES ('restored', ?::bytea) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: unnote
DELETE FROM {meta} WHERE name = 'restored' RETURNING name;

-- What a claim writes for a key without a record becomes a doubt on hold. `created_us` is the instant of the claim.
-- name: function
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    mark jsonb;
BEGIN
    SELECT convert_from(m.value, 'UTF8')::jsonb INTO mark FROM {meta} AS m WHERE m.name = 'restored';
    IF NEW.status = 'running' AND NEW.created_us < (mark ->> 'until_us')::bigint
        AND (mark -> 'operations' = 'null'::jsonb OR jsonb_exists(mark -> 'operations', NEW.operation))
        AND NOT EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = NEW.digest)
    THEN
        NEW.status := 'in_doubt';
        NEW.in_doubt_policy := 'hold';
        NEW.doubtful := true;
        NEW.doubt_us := NEW.created_us;
        NEW.attempts := 0;
        NEW.lease_us := NEW.created_us;
        NEW.error_type := '{error_type}';
        NEW.error_message := '{error_message}';
    END IF;
    RETURN NEW;
END
$body$;

-- name: trigger
CREATE TRIGGER {trigger} BEFORE INSERT ON {record_table} FOR EACH ROW EXECUTE FUNCTION {function}();

-- name: gone
DROP TRIGGER IF EXISTS {trigger} ON {record_table};

-- name: drop
DROP FUNCTION IF EXISTS {function}();

-- A key whose record has expired may have been claimed again since the restore point. Without its old record it is a
-- key like any other that the store does not know.
-- name: forget
WITH gone AS (
    DELETE FROM {record_table} AS r
    WHERE r.status NOT IN ('running', 'in_doubt') AND r.expires_us <= ?::bigint
        AND (?::text[] IS NULL OR r.operation = ANY(?::text[]))
    RETURNING r.digest
), steps AS (
    DELETE FROM {step_table} AS s USING gone WHERE s.digest = gone.digest
)
SELECT count(*) FROM gone;

-- What was unsettled at the restore point may have been settled since.
-- name: hold
WITH held AS (
    UPDATE {record_table} AS r SET status = 'in_doubt', retryable = false, in_doubt_policy = 'hold', doubtful = true,
        error_type = '{error_type}', error_message = '{error_message}', updated_us = ?::bigint,
        doubt_us = coalesce(r.doubt_us, ?::bigint)
    WHERE coalesce(r.started_us, r.created_us) <= ?::bigint
        AND (r.status IN ('running', 'in_doubt') OR (r.status = 'failed' AND r.retryable))
        AND (?::text[] IS NULL OR r.operation = ANY(?::text[]))
    RETURNING r.digest
)
SELECT count(*) FROM held;
