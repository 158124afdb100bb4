-- Every statement of the SQLite store. Values are bound by name: `:now` is the store's clock, read by the driver when
-- the statement runs; `:install`, in joined statements, is the install_id of the store's own file.
--
-- {record} stands for the columns of a record, {record_joined} for the same as expressions, which neither a
-- text_factory nor a converter of the caller's connection touches.

-- part: settled
status NOT IN ('running', 'in_doubt')

-- part: expired
({settled} AND expires_us <= :now)

-- The fence: a late worker matches no row and changes nothing.
-- part: lease
digest = :digest AND nonce = :nonce AND fence = :fence AND status = 'running'

-- A run that used up most of keep_for would otherwise be forgotten as soon as it is done. The lease is over now.
-- part: settle
completed_us = :now, updated_us = :now, lease_us = min(lease_us, :now),
expires_us = CASE WHEN expires_us - :now > keep_us / 2 THEN expires_us ELSE :now + keep_us END


-- part: claim_columns
digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
reconcile_after_us, doubtful, attempts, subject, business_key, process_instance, requester, tags,
created_us, started_us, updated_us, expires_us, keep_us

-- part: claim_row
:digest, :scope, :operation, :value, 'running', 0, :fingerprint, 1, :nonce, :now + :lease_us, :in_doubt,
:reconcile_after_us, 0, 1, :subject, :business_key, :process_instance, :requester, :tags,
:now, :now, :now, :now + :keep_us, :keep_us

-- What a claim does to the record it meets, and when: the WHERE repeats `arbitration.judge` on the row as it is now.
-- The same claim again (same nonce, still running) changes nothing here; whoever sent it reads the row and answers
-- granted.
-- part: claim_met
ON CONFLICT (digest) DO UPDATE SET
    scope = excluded.scope, operation = excluded.operation, value = excluded.value,
    status = 'running', retryable = 0, fingerprint = excluded.fingerprint,
    fence = fence + 1, nonce = excluded.nonce, lease_us = excluded.lease_us,
    in_doubt_policy = excluded.in_doubt_policy, reconcile_after_us = excluded.reconcile_after_us,
    doubtful = CASE WHEN {expired} THEN 0 WHEN {settled} THEN doubtful ELSE 1 END,
    attempts = CASE WHEN {expired} THEN 1 ELSE attempts + 1 END,
    outcome = NULL,
    error_type = CASE WHEN {expired} THEN NULL ELSE error_type END,
    error_message = CASE WHEN {expired} THEN NULL ELSE error_message END,
    subject = excluded.subject, business_key = excluded.business_key,
    process_instance = excluded.process_instance, requester = excluded.requester, tags = excluded.tags,
    created_us = CASE WHEN {expired} THEN :now ELSE created_us END,
    started_us = :now, updated_us = :now, completed_us = NULL,
    expires_us = excluded.expires_us, keep_us = excluded.keep_us,
    resolution = CASE WHEN {expired} THEN NULL ELSE resolution END,
    replays = 0, replayed_us = NULL,
    steps = CASE WHEN {expired} THEN 0 ELSE steps END
WHERE
    -- A new life: only settled records expire.
    {expired}
    OR (
        fingerprint = excluded.fingerprint
        AND NOT (status = 'running' AND nonce = excluded.nonce)
        AND (
            -- Nothing happened before: claimable at once.
            (status = 'failed' AND retryable AND NOT doubtful)
            OR (
                -- In doubt, and both policies allow the take-over.
                ((status = 'failed' AND retryable) OR status = 'in_doubt' OR (status = 'running' AND lease_us <= :now))
                AND (
                    (in_doubt_policy = 'rerun' AND :in_doubt = 'rerun')
                    OR (
                        in_doubt_policy <> 'hold' AND :in_doubt = 'reconcile'
                        AND lease_us + max(reconcile_after_us, :reconcile_after_us) <= :now
                    )
                )
            )
        )
    )


-- The arbiter where a reading found nothing: the unique index on digest lets one INSERT through. Nothing changed means
-- that somebody was faster, and then `claim` decides. It exists because it needs no RETURNING: 12 us instead of 17.
-- name: claim_first
INSERT INTO semel_record ({claim_columns}) VALUES ({claim_row}) ON CONFLICT (digest) DO NOTHING;

-- The arbiter. One statement decides who runs. Reading first and writing then would let two claimers in; a take-over
-- judged on an older reading would wipe out an outcome recorded since.
-- A row comes back if, and only if, the claim was won.
-- name: claim
INSERT INTO semel_record ({claim_columns}) VALUES ({claim_row})
{claim_met}
RETURNING fence;

-- The arbiter in the caller's transaction: the same, and nothing is written into a database that is not the store's.
-- name: claim_joined
INSERT INTO semel_record ({claim_columns})
SELECT {claim_row} FROM semel_meta AS m WHERE m.name = 'install_id' AND m.value = :install
{claim_met}
RETURNING +fence;

-- What a claim or a reader meets. Before a claim it decides nothing, it only spares the write lock where nothing can
-- be won; after a claim that won nothing it runs in the same transaction, so it shows the very row that refused.
-- name: seen
SELECT {record} FROM semel_record WHERE digest = :digest;

-- name: seen_joined
SELECT {record_joined} FROM semel_record WHERE digest = :digest;

-- name: seen_many
SELECT {record} FROM semel_record WHERE digest IN (:digests);

-- What a write under a lease met that changed nothing, in the same transaction. Expressions, for the caller's connections.
-- name: look
SELECT nonce = :nonce AND fence = :fence AND status = 'running', +nonce, +fence, CAST(status AS BLOB), +completed_us,
    +updated_us, CAST(error_type AS BLOB), CAST(error_message AS BLOB)
FROM semel_record WHERE digest = :digest;

-- name: steps
SELECT position, name, outcome FROM semel_step WHERE digest = :digest ORDER BY position, step;

-- name: steps_joined
SELECT +position, CAST(name AS BLOB), +outcome FROM semel_step WHERE digest = :digest ORDER BY position, step;

-- A new life begins without the finished steps of the one that expired; same transaction as the claim.
-- name: forget_steps
DELETE FROM semel_step WHERE digest = :digest;

-- What a record is searched by, in the transaction of the claim that won it.
-- name: keep_term
INSERT INTO semel_search (digest, term, created_us, scope)
SELECT digest, :term, created_us, scope FROM semel_record WHERE digest = :digest
ON CONFLICT (digest, term) DO UPDATE SET created_us = excluded.created_us, scope = excluded.scope;

-- What was said of it before it was claimed again, or in the life before, is not said of it any more.
-- name: drop_terms
DELETE FROM semel_search WHERE digest = :digest;

-- name: renew
UPDATE semel_record SET lease_us = :now + :lease_us, updated_us = :now WHERE {lease};

-- name: complete
UPDATE semel_record SET status = 'completed', outcome = :outcome, error_type = NULL, error_message = NULL, {settle}
WHERE {lease};

-- An attempt whose handler was never called does not count: :unstarted is 1 then.
-- name: fail
UPDATE semel_record SET status = 'failed', retryable = :retryable, error_type = :error_type,
    error_message = :error_message, doubtful = :doubtful, attempts = max(attempts - :unstarted, 0), {settle}
WHERE {lease};

-- Not settled: a doubt does not expire.
-- name: doubt
UPDATE semel_record SET status = 'in_doubt', error_type = :error_type, error_message = :error_message,
    doubtful = :doubtful, attempts = max(attempts - :unstarted, 0), updated_us = :now, lease_us = min(lease_us, :now)
WHERE {lease};

-- A dead letter, of an event that nobody tries again by itself: in the transaction that ends its record. It has one name
-- for each body under a record, so that it is never there twice.
-- part: new_letter
INSERT INTO semel_letter (
    id, consumer, scope, record, reason, type, subject, content, readable, attempts, error_type, error_message, keep_us,
    first_us, last_us, seen, expires_us
)
SELECT :letter_id, :letter_consumer, :letter_scope, :letter_record, :letter_reason, :letter_type, :letter_subject,
    :letter_content, :letter_readable, :letter_attempts, :letter_error_type, :letter_error_message, :letter_keep_us,
    :now, :now, 1, :now + :letter_keep_us

-- part: letter_again
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, attempts = excluded.attempts,
    error_type = excluded.error_type, error_message = excluded.error_message, keep_us = excluded.keep_us,
    last_us = excluded.last_us, seen = seen + 1, expires_us = excluded.expires_us

-- Follows what ends a record. A key that may be claimed again leaves none.
-- name: keep_letter
{new_letter} FROM semel_record WHERE digest = :digest AND NOT retryable
{letter_again};

-- Forgotten before its letter, the event of a record would be processed anew.
-- name: keep_as_long
UPDATE semel_record SET expires_us = max(expires_us, :now + :letter_keep_us) WHERE digest = :digest AND NOT retryable;

-- Follows what completes a record.
-- name: complete_letter
DELETE FROM semel_letter WHERE id = :letter;

-- Follows a decision after which the event does not run. A letter of another event under the same id is not about it.
-- name: close_letters
DELETE FROM semel_letter WHERE record = :digest AND reason <> 'reused';

-- name: erase_letters
DELETE FROM semel_letter WHERE record = :digest;

-- name: put_letter
{new_letter} WHERE true
{letter_again}
RETURNING {letter};

-- name: touch_letter
UPDATE semel_letter SET last_us = :now, seen = seen + 1 WHERE id = (
    SELECT id FROM semel_letter WHERE record = :record AND consumer = :consumer AND reason <> 'reused'
    ORDER BY first_us, id LIMIT 1
) RETURNING {letter};

-- name: drop_letter
DELETE FROM semel_letter WHERE id = :id AND consumer = :consumer RETURNING {letter};

-- name: scan_letters
SELECT {letter} FROM semel_letter AS l WHERE {restrictions} ORDER BY l.first_us, l.id LIMIT :limit;

-- name: purge_letters
DELETE FROM semel_letter WHERE rowid IN (
    SELECT rowid FROM semel_letter WHERE expires_us <= :now ORDER BY expires_us LIMIT :limit
);

-- A finished step enters under the lease, once: sent again after a lost reply it finds itself there.
-- name: checkpoint
INSERT INTO semel_step (digest, position, name, outcome)
SELECT :digest, :position, :name, :outcome FROM semel_record
WHERE {lease} AND NOT EXISTS (
    SELECT 1 FROM semel_step AS s
    WHERE s.digest = :digest AND s.position = :position AND s.name = :name AND s.outcome = :outcome
);

-- Follows checkpoint in the same transaction, at its instant.
-- name: count_step
UPDATE semel_record SET steps = steps + 1, updated_us = :now WHERE {lease};

-- The first write of a step in the caller's transaction. It changes nothing: it takes the write lock before the step
-- has read anything (so that the step cannot end in BUSY_SNAPSHOT), proves the lease, and makes a connection of
-- sqlite3's default kind begin its transaction by itself.
-- name: enter
UPDATE semel_record SET updated_us = updated_us
WHERE {lease} AND EXISTS (
    SELECT 1 FROM semel_meta AS m WHERE m.name = 'install_id' AND m.value = :install
);

-- A decision ends a doubt. The new nonce and fence shut out an attempt that may still be running; the fence that was
-- seen, a decision about what has gone on since.
-- name: resolve
UPDATE semel_record SET status = :status, retryable = (:status = 'failed' AND :error_type IS NULL), outcome = :outcome,
    error_type = coalesce(:error_type, error_type), error_message = coalesce(:error_message, error_message), nonce = :nonce,
    fence = fence + 1, doubtful = 0, resolution = :note, {settle}
WHERE digest = :digest AND nonce <> :nonce AND (:fence IS NULL OR fence = :fence) AND CASE WHEN :corrects IS NULL
    THEN status = 'in_doubt' OR (status = 'running' AND (:forced OR lease_us <= :now))
    -- A correction replaces the outcome of the very record that was seen, unless its content was erased since.
    ELSE status = 'completed' AND :status = 'completed' AND nonce = :corrects AND value <> '' END;

-- What was final may be tried again. Only the very record that was seen is changed, so two decisions are not both carried
-- out; whoever claimed it before shows another nonce and changes nothing.
-- name: reopen
UPDATE semel_record SET status = 'failed', retryable = 1, attempts = 0, nonce = :nonce,
    error_type = coalesce(error_type, :error_type), error_message = coalesce(error_message, :error_message),
    resolution = :note, {settle}
WHERE digest = :digest AND nonce = :seen AND value <> '' AND (status = 'cancelled' OR (status = 'failed' AND NOT retryable));

-- The failure of an attempt that left no record.
-- name: count_first
INSERT INTO semel_record (
    digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
    reconcile_after_us, doubtful, attempts, error_type, error_message, subject, business_key, process_instance,
    requester, tags, created_us, started_us, updated_us, completed_us, expires_us, keep_us
) VALUES (
    :digest, :scope, :operation, :value, 'failed', coalesce(:most > 1, 1), :fingerprint, :fence, :nonce, :now,
    :in_doubt_policy, :reconcile_after_us, 0, 1, :error_type, :error_message, :subject, :business_key,
    :process_instance, :requester, :tags, :now, :now, :now, :now, :now + :keep_us, :keep_us
) ON CONFLICT (digest) DO NOTHING;

-- A further one. A record that is running, settled for good, expired or another request's is left alone.
-- name: count_again
UPDATE semel_record SET retryable = coalesce(attempts + 1 < :most, 1), attempts = attempts + 1, fence = fence + 1,
    nonce = :nonce, error_type = :error_type, error_message = :error_message, started_us = :now, {settle}
WHERE digest = :digest AND nonce <> :nonce AND fingerprint = :fingerprint AND status = 'failed' AND retryable
    AND expires_us > :now;

-- name: forget_expired
DELETE FROM semel_record WHERE digest = :digest AND {expired};

-- A record that is claimed again, or not settled yet, is left alone. No instant changes, so it expires as before. Its
-- finished steps go in the same transaction.
-- name: erase
UPDATE semel_record SET scope = '', value = '', fingerprint = x'', retryable = 0, doubtful = 0,
    outcome = CASE WHEN status = 'completed' THEN :tombstone END,
    error_type = CASE WHEN status = 'failed' THEN :error_type END,
    error_message = CASE WHEN status = 'failed' THEN :error_message END,
    subject = NULL, business_key = NULL, process_instance = NULL, requester = NULL, tags = NULL,
    resolution = :note, steps = 0
WHERE digest = :digest AND {settled};

-- The same transaction as erase. Every note is later than the one before it, whatever the clock says: whoever confirms
-- the earlier one must not take this one away.
-- name: note_invalidation
INSERT INTO semel_invalidation (digest, operation, noted_us)
SELECT digest, operation, :now FROM semel_record WHERE digest = :digest
ON CONFLICT (digest) DO UPDATE SET noted_us = max(excluded.noted_us, noted_us + 1);

-- name: invalidations
SELECT digest, operation, noted_us FROM semel_invalidation ORDER BY noted_us, digest LIMIT :limit;

-- What was noted again since the invalidation that is confirmed stays.
-- name: confirm
DELETE FROM semel_invalidation WHERE digest = :digest AND noted_us <= :before_us;

-- Status and expiry stand in the WHERE of the deletion itself: a record claimed again since is not deleted.
-- name: purge
DELETE FROM semel_record WHERE rowid IN (
    SELECT rowid FROM semel_record WHERE expires_us <= :now AND {settled} ORDER BY expires_us LIMIT :limit
) RETURNING digest, steps, coalesce(subject, business_key, process_instance, requester, tags) IS NOT NULL;

-- name: lapse
UPDATE semel_record SET status = 'in_doubt', error_type = :error_type, error_message = :error_message, doubtful = 1,
    updated_us = :now
WHERE rowid IN (
    SELECT rowid FROM semel_record
    WHERE status IN ('running', 'in_doubt') AND status = 'running' AND lease_us <= :now
    ORDER BY lease_us LIMIT :limit
) RETURNING +digest, CAST(operation AS BLOB), :now - started_us;

-- name: tally
UPDATE semel_record SET replays = replays + :replays, replayed_us = :now WHERE digest = :digest;

-- Where records are found: all of them, or those that have a searched value, which the index gives in order; a cross join
-- is carried out in the order in which it is written. The instant shuts out what was kept for a life of the key that is
-- over.
-- name: found_r
semel_record AS r

-- name: found_s
semel_search AS s CROSS JOIN semel_record AS r ON r.digest = s.digest AND r.created_us = s.created_us

-- One page. {restrictions} and {order} are put together from fixed texts.
-- name: scan
SELECT {r_record} FROM {found} WHERE {restrictions} ORDER BY {order} LIMIT :limit;

-- name: count_records
SELECT r.operation, r.status, count(*) FROM {found} WHERE {restrictions} GROUP BY r.operation, r.status;

-- How far so many records reach: along an index by time, and nothing of the records themselves is read.
-- name: skip_r
SELECT r.created_us FROM semel_record AS r WHERE {restrictions} ORDER BY {order} LIMIT 1 OFFSET :number;

-- name: skip_s
SELECT s.created_us FROM semel_search AS s WHERE {restrictions} ORDER BY {order} LIMIT 1 OFFSET :number;

-- The same transaction as count_first, whose record has no life before: triggers know of changes alone.
-- name: note_first_failure
INSERT INTO semel_history (
    digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
)
SELECT digest, created_us, fence * 8 + 1, scope, 'attempt', attempts, started_us, updated_us, nonce,
    CASE WHEN retryable THEN 'retryable' ELSE status END, error_type, error_message
FROM semel_record WHERE digest = :digest;

-- The same transaction as erase.
-- name: erase_history
UPDATE semel_history SET scope = '', error_type = CASE WHEN error_type IS NOT NULL THEN :error_type END,
    error_message = CASE WHEN error_type IS NOT NULL THEN :error_message END
WHERE digest = :digest;

-- Erasing again finds that it was noted.
-- name: note_erasure
INSERT INTO semel_history (digest, life, position, scope, kind, number, started_us, ended_us)
SELECT digest, created_us, fence * 8 + 4, '', 'erased', attempts, :now, :now FROM semel_record WHERE digest = :digest
ON CONFLICT DO NOTHING;

-- name: history
SELECT position / 8, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
FROM semel_history WHERE digest = :digest AND life = :life ORDER BY position;

-- name: worker
SELECT process, host, pid, version, started_us FROM semel_worker WHERE process = :process;

-- A worker started when it was first noted.
-- name: register
INSERT INTO semel_worker (process, host, pid, version, started_us, seen_us)
VALUES (:process, :host, :pid, :version, :now, :now)
ON CONFLICT (process) DO UPDATE SET host = excluded.host, pid = excluded.pid, version = excluded.version,
    seen_us = excluded.seen_us;

-- name: purge_workers
DELETE FROM semel_worker WHERE seen_us <= :now - :keep_us;

-- name: install_id
SELECT value FROM semel_meta WHERE name = 'install_id';
