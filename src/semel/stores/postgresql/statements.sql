-- Every statement of the PostgreSQL store.
--
-- {input} stands for a table of what is asked for, one row per operation: arrays for a list, plain values for one.
-- {clock} is the server's clock in microseconds. {record} are the columns of a record, {r_record} the same of `r`.
-- In the caller's transaction it is empty where the database is not the store's, or the transaction is not the claim's.
-- {in_order} sorts a list, and is nothing for one: to set up a sort of one row costs the server 1.5 % of a first run.
-- Values are bound by position; those of {input} come first.

-- part: claim_columns
digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
reconcile_after_us, doubtful, attempts, subject, business_key, process_instance, requester, tags,
created_us, updated_us, expires_us, keep_us

-- part: claim_row
w.digest, w.scope, w.operation, w.value, 'running', false, w.fingerprint, 1, w.nonce, w.now + w.lease_us,
nullif(w.in_doubt_policy, {usual_policy}), nullif(w.reconcile_after_us, {usual_quiet}), false, 1, w.subject, w.business_key, w.process_instance, w.requester,
w.tags, w.now, w.now, w.now + w.keep_us, w.keep_us

-- What came of each claim: the row that was met or written, or only the digest where an open transaction holds the key.
-- part: claimed
SELECT {record}, now, NULL::text AS transaction FROM seen
UNION ALL SELECT {won_record}, w.now, {transaction} FROM won AS r JOIN wanted AS w ON w.digest = r.digest
UNION ALL SELECT {held_record}, w.now, NULL FROM wanted AS w WHERE NOT w.free

-- What the records are searched by, kept with the claim that won them. Equal numbers of two values are one row.
-- part: keeping
INSERT INTO {search_table} AS s (created_us, term, digest, scope)
SELECT r.created_us, t.term, r.digest, r.scope FROM won AS r
JOIN wanted AS w ON w.digest = r.digest AND w.nonce = r.nonce JOIN terms AS t ON t.digest = r.digest
WHERE r.status = 'running'
ON CONFLICT (digest, term) DO UPDATE SET created_us = excluded.created_us, scope = excluded.scope

-- name: keep_terms
, terms AS MATERIALIZED ({terms}), kept AS ({keeping})

-- The first word of a claim: it wins a key that nobody has, and tells what it met otherwise. A key that is there and can
-- be taken over, and one that a rival took in this very moment (for which it tells nothing at all), goes to `claim`,
-- the arbiter. It exists because nearly every claim ends here, and PostgreSQL pays for the arbiter's many expressions
-- at each execution, whether they are used or not.
-- name: claim_first
WITH e AS MATERIALIZED ({input}),
seen AS MATERIALIZED (
    SELECT r.*, e.now
    FROM e CROSS JOIN LATERAL (SELECT * FROM {record_table} AS x WHERE x.digest = e.digest OFFSET 0) AS r
),
wanted AS MATERIALIZED (
    SELECT e.*, pg_try_advisory_xact_lock(e.lock) AS free
    FROM e WHERE NOT EXISTS (SELECT 1 FROM seen AS s WHERE s.digest = e.digest)
),
won AS (
    INSERT INTO {record_table} AS r ({claim_columns})
    SELECT {claim_row} FROM wanted AS w WHERE w.free {in_order}
    ON CONFLICT (digest) DO NOTHING
    RETURNING {record}
){kept_terms}
{claimed};

-- The first word of a claim in the caller's transaction, in short. What was won is known from the claim itself, and a record
-- that was met is told as one text: to prepare a column for each value of a record would cost the server a quarter of the
-- statement, whether there is a record or not. The mark of a restored backup changes the status of what was won; then
-- `claim` tells the record.
-- name: claim_here
WITH e AS MATERIALIZED ({input}),
seen AS MATERIALIZED (
    SELECT row_to_json(r)::text AS found
    FROM e CROSS JOIN LATERAL (SELECT {record} FROM {record_table} AS x WHERE x.digest = e.digest OFFSET 0) AS r
),
wanted AS MATERIALIZED (
    SELECT e.*, pg_try_advisory_xact_lock(e.lock) AS free FROM e WHERE NOT EXISTS (SELECT 1 FROM seen)
),
won AS (
    INSERT INTO {record_table} AS r ({claim_columns})
    SELECT {claim_row} FROM wanted AS w WHERE w.free
    ON CONFLICT (digest) DO NOTHING
    RETURNING r.status, {transaction} AS transaction
){kept_terms}
SELECT e.now, s.found, w.free, o.status, o.transaction
FROM e LEFT JOIN seen AS s ON true LEFT JOIN wanted AS w ON true LEFT JOIN won AS o ON true;

-- name: keep_terms_here
, kept AS (
    INSERT INTO {search_table} AS s (created_us, term, digest, scope)
    SELECT w.now, t.term, w.digest, w.scope FROM won AS o CROSS JOIN wanted AS w CROSS JOIN unnest(?::bigint[]) AS t(term)
    WHERE o.status = 'running'
    ON CONFLICT (digest, term) DO UPDATE SET created_us = excluded.created_us, scope = excluded.scope
)

-- What a record was searched by before it was claimed again, or in the life before, is not said of it any more. What is
-- said again stays, because the order of two writes in one statement is not defined.
-- name: drop_terms
, dropped AS (
    DELETE FROM {search_table} AS s USING won AS r, wanted AS w
    WHERE s.digest = r.digest AND w.digest = r.digest AND w.nonce = r.nonce AND r.status = 'running' AND r.fence > 1
        {unless_said}
)

-- name: unless_said
AND NOT EXISTS (SELECT 1 FROM terms AS t WHERE t.digest = s.digest AND t.term = s.term)

-- The arbiter. `seen` decides nothing: it spares a write and a lock where nothing can be won. The advisory lock keeps a
-- key that an open transaction holds from stalling its neighbours: not free means that somebody is writing this key.
-- `won` decides on the newest version of the row and always answers: DO NOTHING, or DO UPDATE with a WHERE, would give
-- no row at all for a rival that commits meanwhile. Rows are locked in the order of digests, so no two lists deadlock.
-- name: claim
WITH e AS MATERIALIZED ({input}),
seen AS MATERIALIZED (
    SELECT r.*, e.now
    FROM e CROSS JOIN LATERAL (SELECT * FROM {record_table} AS x WHERE x.digest = e.digest OFFSET 0) AS r
    WHERE NOT {wins}
),
wanted AS MATERIALIZED (
    SELECT e.*, pg_try_advisory_xact_lock(e.lock) AS free
    FROM e WHERE NOT EXISTS (SELECT 1 FROM seen AS s WHERE s.digest = e.digest)
),
won AS (
    INSERT INTO {record_table} AS r ({claim_columns})
    SELECT {claim_row} FROM wanted AS w WHERE w.free {in_order}
    ON CONFLICT (digest) DO UPDATE SET (
        scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
        reconcile_after_us, doubtful, attempts, outcome, error_type, error_message, subject, business_key,
        process_instance, requester, tags, created_us, started_us, updated_us, expires_us, keep_us,
        resolution, replays, replayed_us, steps, wanted, doubt_us
    ) = (
        SELECT
            -- Also the texts: a record that was erased in this very moment must not get them back by losing.
            CASE WHEN z.wins THEN excluded.scope ELSE r.scope END,
            CASE WHEN z.wins THEN excluded.operation ELSE r.operation END,
            CASE WHEN z.wins THEN excluded.value ELSE r.value END,
            CASE WHEN z.wins THEN 'running' ELSE r.status END,
            r.retryable AND NOT z.wins,
            CASE WHEN z.wins THEN excluded.fingerprint ELSE r.fingerprint END,
            CASE WHEN z.wins THEN r.fence + 1 ELSE r.fence END,
            CASE WHEN z.wins THEN excluded.nonce ELSE r.nonce END,
            CASE WHEN z.wins THEN excluded.lease_us ELSE r.lease_us END,
            CASE WHEN z.wins THEN excluded.in_doubt_policy ELSE r.in_doubt_policy END,
            CASE WHEN z.wins THEN excluded.reconcile_after_us ELSE r.reconcile_after_us END,
            CASE WHEN z.expired THEN false WHEN NOT z.wins OR {settled} THEN r.doubtful ELSE true END,
            CASE WHEN z.expired THEN 1 WHEN z.wins THEN r.attempts + 1 ELSE r.attempts END,
            CASE WHEN z.wins THEN NULL ELSE r.outcome END,
            CASE WHEN z.expired THEN NULL ELSE r.error_type END,
            CASE WHEN z.expired THEN NULL ELSE r.error_message END,
            CASE WHEN z.wins THEN excluded.subject ELSE r.subject END,
            CASE WHEN z.wins THEN excluded.business_key ELSE r.business_key END,
            CASE WHEN z.wins THEN excluded.process_instance ELSE r.process_instance END,
            CASE WHEN z.wins THEN excluded.requester ELSE r.requester END,
            CASE WHEN z.wins THEN excluded.tags ELSE r.tags END,
            CASE WHEN z.expired THEN excluded.created_us ELSE r.created_us END,
            CASE WHEN z.expired THEN NULL WHEN z.wins THEN excluded.updated_us ELSE r.started_us END,
            CASE WHEN z.wins THEN excluded.updated_us ELSE r.updated_us END,
            CASE WHEN z.wins THEN excluded.expires_us ELSE r.expires_us END,
            CASE WHEN z.wins THEN excluded.keep_us ELSE r.keep_us END,
            CASE WHEN z.expired THEN NULL ELSE r.resolution END,
            CASE WHEN z.wins THEN NULL ELSE r.replays END,
            CASE WHEN z.wins THEN NULL ELSE r.replayed_us END,
            -- None yet, but not NULL where the life before had some: they lie there until the record is deleted.
            CASE WHEN z.expired THEN r.steps * 0 ELSE r.steps END,
            r.wanted AND NOT z.wins,
            CASE WHEN z.wins THEN NULL ELSE r.doubt_us END
        FROM (
            SELECT {expired} AS expired, {wins} AS wins
            FROM (
                SELECT excluded.fingerprint, excluded.nonce, excluded.updated_us AS now,
                    coalesce(excluded.in_doubt_policy, {usual_policy}) AS in_doubt_policy,
                    coalesce(excluded.reconcile_after_us, {usual_quiet}) AS reconcile_after_us
            ) AS e
        ) AS z
    )
    RETURNING {record}
){kept_terms}{dropped_terms}
{claimed};

-- The fence: a late worker matches no row and changes nothing. A row that somebody else has locked is left out rather
-- than waited for (a step in an open transaction holds its record), so that its neighbours are not held up. Rows are
-- locked in the order of digests; an UPDATE would lock them in whatever order its join gives, and deadlock with claims.
-- part: own
own AS MATERIALIZED (
    SELECT s.*, r.created_us
    FROM {e_in_order} AS s
    CROSS JOIN LATERAL (
        SELECT x.created_us FROM {record_table} AS x
        WHERE x.digest = s.digest AND x.nonce = s.nonce AND x.fence = s.fence AND x.status = 'running'
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS r
)

-- A run that used up most of keep_for would otherwise be forgotten as soon as it is done.
-- part: kept
CASE WHEN r.expires_us - e.now > r.keep_us / 2 THEN r.expires_us ELSE e.now + r.keep_us END

-- What came of each: done, or the row as it is seen by a statement that could not change it. Whoever waits for the key
-- is told, and only where somebody does: a notification makes all commits queue behind each other.
-- part: told
SELECT e.digest, d.digest IS NOT NULL AS done, e.now, r.nonce, r.fence, r.status, r.updated_us, r.updated_us,
    r.error_type, r.error_message, CASE WHEN d.wanted THEN pg_notify({channel}, encode(d.digest, 'hex')) END
FROM e LEFT JOIN done AS d ON d.digest = e.digest
LEFT JOIN LATERAL (
    SELECT * FROM {record_table} AS x WHERE x.digest = e.digest AND d.digest IS NULL OFFSET 0
) AS r ON true

-- name: renew
WITH e AS MATERIALIZED ({input}), {own}, done AS (
    UPDATE {record_table} AS r SET lease_us = e.now + e.lease_us, updated_us = e.now
    FROM own AS e WHERE r.digest = e.digest
    RETURNING r.digest, false AS wanted
) {told};

-- part: completing
WITH e AS MATERIALIZED ({input}), {own}, done AS (
    UPDATE {record_table} AS r SET status = 'completed', outcome = e.outcome, error_type = NULL, error_message = NULL,
        updated_us = e.now, lease_us = least(r.lease_us, e.now), expires_us = {kept}
    FROM own AS e WHERE r.digest = e.digest
    RETURNING r.digest, r.wanted
)

-- name: complete
{completing}{riding} {told};

-- The dead letter goes with the write that completes the record.
-- name: complete_letter
{completing}, dropped AS (
    DELETE FROM {letter_table} AS l USING e WHERE l.id = e.letter AND EXISTS (SELECT 1 FROM done)
) {told};

-- The completion in the caller's transaction, in short: there the record is the caller's own, which nobody else can have
-- locked. Where it changes nothing, `complete` tells why. OFFSET 0 keeps the clock from being read once per column.
-- name: complete_here
UPDATE {record_table} AS r SET status = 'completed', outcome = e.outcome, error_type = NULL, error_message = NULL,
    updated_us = e.now, lease_us = least(r.lease_us, e.now), expires_us = {kept}
FROM (
    SELECT ?::bytea AS digest, ?::bytea AS nonce, ?::bigint AS fence, ?::bytea AS outcome, ?::text AS transaction,
        {clock} AS now
    OFFSET 0
) AS e
WHERE r.digest = e.digest AND r.nonce = e.nonce AND r.fence = e.fence AND r.status = 'running'
    AND pg_current_xact_id()::text = e.transaction
RETURNING e.now, CASE WHEN r.wanted THEN pg_notify({channel}, encode(r.digest, 'hex')) END;

-- An attempt whose handler was never called does not count: unstarted is 1 then.
-- part: failing
WITH e AS MATERIALIZED ({input}), {own}, done AS (
    UPDATE {record_table} AS r SET status = e.status, retryable = e.retryable, error_type = e.error_type,
        error_message = e.error_message, doubtful = e.doubtful, attempts = greatest(r.attempts - e.unstarted, 0),
        updated_us = e.now, lease_us = least(r.lease_us, e.now),
        doubt_us = CASE WHEN e.status = 'in_doubt' THEN e.now END, expires_us =

-- A doubt is not settled, so it does not expire.
-- part: failed_until
CASE WHEN e.status = 'failed' THEN {kept} ELSE r.expires_us END

-- part: failed
FROM own AS e WHERE r.digest = e.digest
    RETURNING r.digest, r.wanted
)

-- name: fail
{failing} {failed_until} {failed} {told};

-- A dead letter, of an event that nobody tries again by itself. It has one name for each body under a record, so that it
-- is never there twice.
-- part: new_letter
INSERT INTO {letter_table} AS l (
    id, consumer, scope, record, reason, type, subject, content, readable, attempts, error_type, error_message, keep_us,
    first_us, last_us, seen, expires_us
)
SELECT e.letter_id, e.letter_consumer, e.letter_scope, e.letter_record, e.letter_reason, e.letter_type, e.letter_subject,
    e.letter_content, e.letter_readable, e.letter_attempts, e.letter_error_type, e.letter_error_message,
    e.letter_keep_us, e.now, e.now, 1, e.now + e.letter_keep_us
FROM e

-- part: letter_again
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, attempts = excluded.attempts,
    error_type = excluded.error_type, error_message = excluded.error_message, keep_us = excluded.keep_us,
    last_us = excluded.last_us, seen = l.seen + 1, expires_us = excluded.expires_us

-- The letter is written by the statement that ends the record, which is kept for at least as long: forgotten before its
-- letter, the event would be processed anew.
-- name: fail_letter
{failing} greatest({failed_until}, e.now + e.letter_keep_us) {failed}, lettered AS (
    {new_letter} WHERE EXISTS (SELECT 1 FROM done) {letter_again}
) {told};

-- A finished step enters under the lease, once: sent again after a lost reply it finds itself there.
-- name: checkpoint
WITH e AS MATERIALIZED ({input}), {own}, added AS (
    INSERT INTO {step_table} (digest, life, position, name, outcome)
    SELECT DISTINCT e.digest, e.created_us, e.position, e.name, e.outcome FROM own AS e
    WHERE NOT EXISTS (
        SELECT 1 FROM {step_table} AS s
        WHERE s.digest = e.digest AND s.position = e.position AND s.life = e.created_us
            AND s.name = e.name AND s.outcome = e.outcome
    )
    RETURNING digest
), counted AS (
    UPDATE {record_table} AS r SET steps = coalesce(r.steps, 0) + a.steps, updated_us = a.now
    FROM (
        SELECT a.digest, count(*) AS steps, (SELECT max(e.now) FROM e) AS now FROM added AS a GROUP BY a.digest
    ) AS a
    WHERE r.digest = a.digest
    RETURNING r.digest
), done AS (SELECT own.digest, false AS wanted FROM own)
{told};

-- The first touch of a step in the caller's transaction: proves the lease and holds the record, so that nobody takes
-- over while the step runs, and names the transaction. With the advisory lock nobody who claims the key waits for it.
-- name: enter
WITH e AS MATERIALIZED ({input}), {own}, done AS (
    SELECT e.digest, false AS wanted FROM own AS e
    WHERE pg_try_advisory_xact_lock(e.lock)
)
SELECT t.*, pg_current_xact_id()::text FROM ({told}) AS t;

-- name: read
WITH e AS MATERIALIZED ({input})
SELECT {r_record}, e.now FROM e
LEFT JOIN LATERAL (SELECT * FROM {record_table} AS x WHERE x.digest = e.digest OFFSET 0) AS r ON true;

-- From now on whoever ends this run tells it. What somebody has locked is left for the waiter's own look: it may be held
-- by a long transaction, and all waiters of a process are served by this one list.
-- name: want
UPDATE {record_table} AS r SET wanted = true
FROM (
    SELECT x.digest FROM {record_table} AS x
    WHERE x.digest = ANY(?::bytea[]) AND x.status = 'running' AND NOT x.wanted
    ORDER BY x.digest FOR NO KEY UPDATE SKIP LOCKED
) AS w
WHERE r.digest = w.digest;

-- name: steps
SELECT position, name, outcome FROM {step_table} WHERE digest = ?::bytea AND life = ?::bigint ORDER BY position, step;

-- A decision ends a doubt. The new nonce and fence shut out an attempt that may still be running; the fence that was
-- seen, a decision about what has gone on since.
-- The letters of its event have served, unless it may run now: nobody else may have the event. One of another event under
-- the same id has not.
-- name: resolve
WITH e AS MATERIALIZED ({input}), done AS (
    UPDATE {record_table} AS r SET status = e.status, retryable = (e.status = 'failed' AND e.error_type IS NULL),
        outcome = e.outcome, error_type = coalesce(e.error_type, r.error_type),
        error_message = coalesce(e.error_message, r.error_message), nonce = e.nonce, fence = r.fence + 1,
        doubtful = false, resolution = e.note, updated_us = e.now, lease_us = least(r.lease_us, e.now),
        expires_us = {kept}, doubt_us = NULL
    FROM e
    WHERE r.digest = e.digest AND r.nonce <> e.nonce AND (e.fence IS NULL OR r.fence = e.fence)
        AND CASE WHEN e.corrects IS NULL
            THEN r.status = 'in_doubt' OR (r.status = 'running' AND (e.forced OR r.lease_us <= e.now))
            -- A correction replaces the outcome of the very record that was seen, unless its content was erased since.
            ELSE r.status = 'completed' AND e.status = 'completed' AND r.nonce = e.corrects AND r.value <> '' END
    RETURNING r.*
), closed AS (
    DELETE FROM {letter_table} AS l USING done
    WHERE l.record = done.digest AND NOT done.retryable AND l.reason <> 'reused'
)
SELECT {r_record} FROM done AS r;

-- What was final may be tried again. Only the very record that was seen is changed, so two decisions are not both carried
-- out; whoever claimed it before shows another nonce and changes nothing.
-- name: reopen
WITH e AS MATERIALIZED ({input})
UPDATE {record_table} AS r SET status = 'failed', retryable = true, attempts = 0, nonce = e.nonce,
    error_type = coalesce(r.error_type, e.error_type), error_message = coalesce(r.error_message, e.error_message),
    resolution = e.note, updated_us = e.now, lease_us = least(r.lease_us, e.now), expires_us = {kept}
FROM e
WHERE r.digest = e.digest AND r.nonce = e.seen AND r.value <> ''
    AND (r.status = 'cancelled' OR (r.status = 'failed' AND NOT r.retryable))
RETURNING {r_record};

-- The failure of an attempt that left no record. The advisory lock keeps it from waiting for an open transaction that is
-- writing this very key: such a key is somebody else's business now.
-- part: count_insert
WITH e AS MATERIALIZED ({input}), won AS (
    INSERT INTO {record_table} AS r (
        digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
        reconcile_after_us, doubtful, attempts, error_type, error_message, subject, business_key, process_instance,
        requester, tags, created_us, updated_us, expires_us, keep_us
    )
    SELECT
        e.digest, e.scope, e.operation, e.value, 'failed', coalesce(e.most > 1, true), e.fingerprint, e.fence, e.nonce,
        e.now, nullif(e.in_doubt_policy, {usual_policy}), nullif(e.reconcile_after_us, {usual_quiet}), false,
        1, e.error_type, e.error_message, e.subject,
        e.business_key, e.process_instance, e.requester, e.tags, e.now, e.now,

-- part: count_inserted
e.keep_us
    FROM e WHERE pg_try_advisory_xact_lock(e.lock)
    ON CONFLICT (digest) DO NOTHING
    RETURNING r.*
), kept AS (
    INSERT INTO {search_table} AS s (created_us, term, digest, scope)
    SELECT r.created_us, t.term, r.digest, r.scope FROM won AS r CROSS JOIN unnest(?::bigint[]) AS t(term)
    ON CONFLICT (digest, term) DO UPDATE SET created_us = excluded.created_us, scope = excluded.scope
), entered AS (
    -- The triggers know of changes alone.
    INSERT INTO {history_table} (
        digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
    )
    SELECT r.digest, r.created_us, r.fence::bigint * 8 + 1, r.scope, 'attempt', r.attempts, r.created_us, r.updated_us,
        r.nonce, CASE WHEN r.retryable THEN 'retryable' ELSE r.status END, r.error_type, r.error_message
    FROM won AS r
)

-- name: count_first
{count_insert} e.now + e.keep_us, {count_inserted}
SELECT {r_record} FROM won AS r;

-- name: count_first_letter
{count_insert} e.now + greatest(e.keep_us, e.letter_keep_us), {count_inserted}, lettered AS (
    {new_letter} WHERE EXISTS (SELECT 1 FROM won) {letter_again}
)
SELECT {r_record} FROM won AS r;

-- A further one. A record that is running, settled for good, expired or another request's is left alone, and so is one
-- whose key an open transaction holds: nobody waits for it.
-- part: count_update
UPDATE {record_table} AS r SET retryable = coalesce(r.attempts + 1 < e.most, true), attempts = r.attempts + 1,
    fence = r.fence + 1, nonce = e.nonce, error_type = e.error_type, error_message = e.error_message,
    started_us = e.now, updated_us = e.now, lease_us = least(r.lease_us, e.now), expires_us =

-- part: count_updated
FROM e
WHERE r.digest = e.digest AND r.nonce <> e.nonce AND r.fingerprint = e.fingerprint
    AND r.status = 'failed' AND r.retryable AND r.expires_us > e.now AND pg_try_advisory_xact_lock(e.lock)

-- name: count_again
WITH e AS MATERIALIZED ({input})
{count_update} {kept} {count_updated}
RETURNING {r_record};

-- Only the last one leaves a letter.
-- name: count_again_letter
WITH e AS MATERIALIZED ({input}), done AS (
    {count_update}
        CASE WHEN r.attempts + 1 < e.most THEN {kept} ELSE greatest({kept}, e.now + e.letter_keep_us) END
    {count_updated}
    RETURNING r.*
), lettered AS (
    {new_letter} WHERE EXISTS (SELECT 1 FROM done WHERE NOT done.retryable) {letter_again}
)
SELECT {r_record} FROM done AS r;

-- name: forget_expired
WITH gone AS (
    DELETE FROM {record_table} AS r WHERE r.digest = ?::bytea AND {settled} AND r.expires_us <= {clock}
        AND pg_try_advisory_xact_lock(?::bigint)
    RETURNING r.digest
), forgotten AS (DELETE FROM {step_table} AS s USING gone WHERE s.digest = gone.digest
), dropped AS (DELETE FROM {search_table} AS s USING gone WHERE s.digest = gone.digest)
SELECT count(*) FROM gone;

-- A record that is not settled, or was claimed again since, is left alone. No instant changes: updated_us is when it
-- was settled. Steps and the note for the caches are part of the statement, so nobody sees one without the other. Every
-- note is later than the one before it, whatever the clock says: whoever confirms that one must not take this one away.
-- name: erase
WITH e AS MATERIALIZED ({input}), done AS (
    UPDATE {record_table} AS r SET scope = '', value = '', fingerprint = '', retryable = false, doubtful = false,
        outcome = CASE WHEN r.status = 'completed' THEN e.tombstone END,
        error_type = CASE WHEN r.status = 'failed' THEN e.error_type END,
        error_message = CASE WHEN r.status = 'failed' THEN e.error_message END,
        subject = NULL, business_key = NULL, process_instance = NULL, requester = NULL, tags = NULL,
        resolution = e.note, steps = NULL
    FROM e WHERE r.digest = e.digest AND {settled}
    RETURNING r.*
), forgotten AS (
    DELETE FROM {step_table} AS s USING done WHERE s.digest = done.digest
), dropped AS (
    DELETE FROM {search_table} AS s USING done WHERE s.digest = done.digest
), closed AS (
    DELETE FROM {letter_table} AS l USING done WHERE l.record = done.digest
), noted AS (
    INSERT INTO {invalidation_table} AS i (noted_us, digest, operation)
    SELECT e.now, d.digest, d.operation FROM done AS d JOIN e ON e.digest = d.digest WHERE e.invalidates
    ON CONFLICT (digest) DO UPDATE SET noted_us = greatest(excluded.noted_us, i.noted_us + 1)
), blanked AS (
    UPDATE {history_table} AS h SET scope = '', error_type = CASE WHEN h.error_type IS NOT NULL THEN e.error_type END,
        error_message = CASE WHEN h.error_type IS NOT NULL THEN e.error_message END
    FROM done AS d JOIN e ON e.digest = d.digest WHERE h.digest = d.digest
), entered AS (
    -- Erasing again finds that it was noted.
    INSERT INTO {history_table} (digest, life, position, scope, kind, number, started_us, ended_us)
    SELECT d.digest, d.created_us, d.fence::bigint * 8 + 4, '', 'erased', d.attempts, e.now, e.now
    FROM done AS d JOIN e ON e.digest = d.digest
    ON CONFLICT DO NOTHING
)
SELECT {r_record} FROM done AS r;

-- name: pending
SELECT digest, operation, noted_us FROM {invalidation_table} ORDER BY noted_us, digest LIMIT ?::bigint;

-- What was noted again since the invalidation that is confirmed stays.
-- name: confirm
WITH e AS MATERIALIZED ({input}), done AS (
    DELETE FROM {invalidation_table} AS i USING e WHERE i.digest = e.digest AND i.noted_us <= e.before_us
)
SELECT e.now FROM e;

-- Status and expiry are judged on the locked row: a record claimed again since is not deleted. What others hold is
-- left for the next time.
-- name: purge
WITH e AS MATERIALIZED ({input}), gone AS MATERIALIZED (
    SELECT r.digest FROM {record_table} AS r
    WHERE r.keep_us {sign} (SELECT e.keep FROM e) AND r.expires_us <= (SELECT e.now FROM e) AND {settled}
    ORDER BY r.expires_us LIMIT (SELECT e.most FROM e) FOR UPDATE OF r SKIP LOCKED
), deleted AS (
    DELETE FROM {record_table} AS r USING gone WHERE r.digest = gone.digest RETURNING r.digest, r.steps
), forgotten AS (
    DELETE FROM {step_table} AS s USING deleted WHERE s.digest = deleted.digest AND deleted.steps IS NOT NULL
), dropped AS (
    DELETE FROM {search_table} AS s USING deleted WHERE s.digest = deleted.digest
)
SELECT count(*) FROM deleted;

-- What the last sweep noted, and the instant before the look for lapsed leases begins.
-- name: sweep_state
SELECT (SELECT value FROM {meta} WHERE name = 'sweep'), {clock};

-- Of two sweeps that began with the same note one leaves its own; the other has looked for nothing.
-- name: save_sweep_state
INSERT INTO {meta} AS m (name, value) VALUES ('sweep', ?::bytea)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE m.value = ?::bytea;

-- For the look at a store, which goes by the same index. What has lapsed is among what was claimed last, as a rule.
-- name: count_in_doubt
SELECT count(*) FROM (SELECT 1 FROM {record_table} AS r WHERE r.doubt_us IS NOT NULL LIMIT ?::bigint) AS n;

-- name: count_expired
SELECT count(*) FROM (
    SELECT 1 FROM {record_table} AS r WHERE r.keep_us {sign} ?::bigint AND r.expires_us <= {clock} AND {settled}
    LIMIT ?::bigint
) AS n;

-- name: count_lapsed
SELECT count(*), count(*) FILTER (WHERE n.status = 'running' AND n.lease_us <= {clock}) FROM (
    SELECT r.status, r.lease_us FROM {record_table} AS r WHERE r.keep_us {sign} ?::bigint
    ORDER BY r.keep_us DESC, r.expires_us DESC LIMIT ?::bigint
) AS n;

-- name: next_keep
SELECT min(r.keep_us) FROM {record_table} AS r WHERE r.keep_us > ?::bigint;

-- What was claimed since an instant and still runs: by one value of keep_us, or by all above one.
-- name: running_keep
SELECT r.digest, r.expires_us - r.keep_us, r.lease_us FROM {record_table} AS r
WHERE r.keep_us = ?::bigint AND r.expires_us >= ?::bigint AND r.status = 'running'
ORDER BY r.expires_us LIMIT ?::bigint;

-- name: running_rest
SELECT r.digest, r.expires_us - r.keep_us, r.lease_us FROM {record_table} AS r
WHERE r.keep_us > ?::bigint AND r.expires_us - r.keep_us >= ?::bigint AND r.status = 'running'
ORDER BY r.expires_us - r.keep_us LIMIT ?::bigint;

-- name: running_among
SELECT r.digest, r.expires_us - r.keep_us, r.lease_us FROM {record_table} AS r
WHERE r.digest = ANY(?::bytea[]) AND r.status = 'running';

-- Judged again on the locked row: a lease that was renewed since is left alone. What others hold is left for the next
-- time.
-- name: lapse
WITH e AS MATERIALIZED ({input}), stale AS MATERIALIZED (
    SELECT r.digest FROM {record_table} AS r, e
    WHERE r.digest = ANY(e.digests) AND r.status = 'running' AND r.lease_us <= e.now
    ORDER BY r.digest FOR NO KEY UPDATE OF r SKIP LOCKED
), marked AS (
    UPDATE {record_table} AS r SET status = 'in_doubt', error_type = e.error_type, error_message = e.error_message,
        doubtful = true, updated_us = e.now, doubt_us = e.now
    FROM stale, e WHERE r.digest = stale.digest
    RETURNING r.digest, r.operation, e.now - coalesce(r.started_us, r.created_us) AS age_us, r.wanted
)
SELECT m.digest, m.operation, m.age_us, CASE WHEN m.wanted THEN pg_notify({channel}, encode(m.digest, 'hex')) END
FROM marked AS m;

-- Rows are locked in the order of digests, as everywhere: an UPDATE by itself would deadlock with claims.
-- name: tally
WITH e AS MATERIALIZED ({input}), met AS MATERIALIZED (
    SELECT a.digest, a.replays, a.now
    FROM (
        SELECT e.digest, sum(e.replays)::integer AS replays, max(e.now) AS now FROM e GROUP BY e.digest ORDER BY e.digest
    ) AS a
    CROSS JOIN LATERAL (
        SELECT x.digest FROM {record_table} AS x WHERE x.digest = a.digest FOR NO KEY UPDATE
    ) AS r
), counted AS (
    UPDATE {record_table} AS r SET replays = coalesce(r.replays, 0) + a.replays, replayed_us = a.now
    FROM met AS a WHERE r.digest = a.digest
)
SELECT e.digest, e.now FROM e;

-- Where records are found: all of them, or those that have a searched value, which the index gives in order. The
-- instant shuts out what was kept for a life of the key that is over. OFFSET 0 keeps the server from reading all records.
-- name: found_r
{record_table} AS r

-- name: found_s
{search_table} AS s CROSS JOIN LATERAL (
    SELECT * FROM {record_table} AS x WHERE x.digest = s.digest AND x.created_us = s.created_us OFFSET 0
) AS r

-- name: history
SELECT position / 8, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
FROM {history_table} WHERE digest = ?::bytea AND life = ?::bigint ORDER BY position;

-- name: worker
SELECT process, host, pid, version, started_us FROM {worker_table} WHERE process = ?::bytea;

-- A worker started when it was first noted.
-- name: register
WITH e AS MATERIALIZED ({input}), done AS (
    INSERT INTO {worker_table} AS w (process, host, pid, version, started_us, seen_us)
    SELECT e.process, e.host, e.pid, e.version, e.now, e.now FROM e
    ON CONFLICT (process) DO UPDATE SET host = excluded.host, pid = excluded.pid, version = excluded.version,
        seen_us = excluded.seen_us
)
SELECT e.now FROM e;

-- name: purge_workers
WITH e AS MATERIALIZED ({input}), gone AS (
    DELETE FROM {worker_table} AS w USING e WHERE w.seen_us <= e.now - e.keep_us RETURNING 1
)
SELECT count(*) FROM gone;

-- name: put_letter
WITH e AS MATERIALIZED ({input})
{new_letter} WHERE true {letter_again}
RETURNING {letter};

-- name: touch_letter
WITH e AS MATERIALIZED ({input}), oldest AS MATERIALIZED (
    SELECT l.id FROM {letter_table} AS l JOIN e ON l.record = e.record AND l.consumer = e.consumer
    WHERE l.reason <> 'reused' ORDER BY l.first_us, l.id LIMIT 1
)
UPDATE {letter_table} AS l SET last_us = e.now, seen = l.seen + 1 FROM oldest, e WHERE l.id = oldest.id
RETURNING {letter};

-- name: drop_letter
DELETE FROM {letter_table} AS l WHERE l.id = ?::bytea AND l.consumer = ?::text RETURNING {letter};

-- name: scan_letters
SELECT {letter} FROM {letter_table} AS l WHERE {restrictions} ORDER BY l.first_us, l.id LIMIT ?::bigint;

-- Judged on the locked row: a letter that was put again since is kept for longer.
-- name: purge_letters
WITH e AS MATERIALIZED ({input}), gone AS MATERIALIZED (
    SELECT l.id FROM {letter_table} AS l WHERE l.expires_us <= (SELECT e.now FROM e)
    ORDER BY l.expires_us LIMIT (SELECT e.most FROM e) FOR UPDATE OF l SKIP LOCKED
), deleted AS (
    DELETE FROM {letter_table} AS l USING gone WHERE l.id = gone.id RETURNING 1
)
SELECT count(*) FROM deleted;

-- One page. {restrictions} and {order} are put together from fixed texts.
-- name: scan
SELECT {r_record} FROM {found} WHERE {restrictions} ORDER BY {order} LIMIT ?::bigint;

-- name: count_records
SELECT r.operation, r.status, count(*) FROM {found} WHERE {restrictions} GROUP BY r.operation, r.status;

-- How far so many records reach: along an index by time.
-- name: skip_r
SELECT r.created_us FROM {record_table} AS r WHERE {restrictions} ORDER BY {order} LIMIT 1 OFFSET ?::bigint;

-- name: skip_s
SELECT s.created_us FROM {search_table} AS s WHERE {restrictions} ORDER BY {order} LIMIT 1 OFFSET ?::bigint;

-- What a new connection is asked first: which schema, which database, and whether it may be written.
-- name: ready
SELECT coalesce((SELECT max(version) FROM {schema_table}), 0), (SELECT value FROM {meta} WHERE name = 'install_id'),
    pg_is_in_recovery(), (SELECT max(oldest) FROM {schema_table});
