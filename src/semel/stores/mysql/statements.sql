-- Every statement of the MySQL store, the same for MySQL and MariaDB.
--
-- {input} stands for a table of what is asked for, one row per operation, in the order of digests: rows are locked in
-- that order, so no two lists deadlock. {clock} is the server's clock in microseconds when the statement began.
-- {record} are the columns of a record, {r_record} the same of `r`. In the caller's transaction {input} is read through
-- gates: empty where the database is not the store's, or an open transaction holds one of them.
-- Nothing is ever decided by affected rows: what they count depends on the flags of the connection.
-- Values are bound by position.

-- part: claiming
INSERT INTO {record_table} (
    digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
    reconcile_after_us, doubtful, attempts, subject, business_key, process_instance, requester, tags,
    created_us, started_us, updated_us, expires_us, keep_us
)
SELECT
    e.digest, e.scope, e.operation, e.value, 'running', FALSE, e.fingerprint, 1, e.nonce, e.now + e.lease_us,
    nullif(e.in_doubt_policy, {usual_policy}), nullif(e.reconcile_after_us, {usual_quiet}), FALSE, 1, e.subject, e.business_key, e.process_instance, e.requester,
    e.tags, e.now, e.now, e.now, e.now + e.keep_us, e.keep_us
FROM ({input}) AS e {unless}

-- The first word of a claim: it wins a key that nobody has; what is there is read back after it and judged, and only what
-- can be taken over goes to `claim`, the arbiter. Nearly every claim ends here, and the server reads and prepares the
-- arbiter's many expressions at each execution, whether they are used or not. A rival's row changes nothing.
-- name: claim_first
{claiming} ON DUPLICATE KEY UPDATE fence = {t}.fence;

-- Locks nothing at READ COMMITTED.
-- name: unless_there
WHERE NOT EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = e.digest)

-- The arbiter, which decides on the newest version of the row. `fence` is assigned first, from the old values, and is
-- negative from there on if the claim wins; assignments follow each other from left to right, and each of them looks at
-- nothing else. A test of the nonce instead would let a late copy of a claim that is completed by now reset it.
-- What `expired` and `settled` look at (status, expires_us) is assigned after all that depends on them.
-- name: claim
{claiming}
ON DUPLICATE KEY UPDATE
    fence = IF({t_wins}, -({t}.fence + 1), {t}.fence),
    doubtful = IF({t}.fence < 0, NOT {t_expired} AND ({t}.doubtful OR NOT ({t_settled})), {t}.doubtful),
    taken_nonce = IF({t}.fence < 0, IF({t}.status = 'running', {t}.nonce, NULL), {t}.taken_nonce),
    taken_started_us = IF({t}.fence < 0, IF({t}.status = 'running', {t}.started_us, NULL), {t}.taken_started_us),
    attempts = IF({t}.fence < 0, IF({t_expired}, 1, {t}.attempts + 1), {t}.attempts),
    error_type = IF({t}.fence < 0 AND {t_expired}, NULL, {t}.error_type),
    error_message = IF({t}.fence < 0 AND {t_expired}, NULL, {t}.error_message),
    resolution = IF({t}.fence < 0 AND {t_expired}, NULL, {t}.resolution),
    steps = IF({t}.fence < 0 AND {t_expired}, 0, {t}.steps),
    created_us = IF({t}.fence < 0 AND {t_expired}, e.now, {t}.created_us),
    scope = IF({t}.fence < 0, e.scope, {t}.scope),
    value = IF({t}.fence < 0, e.value, {t}.value),
    status = IF({t}.fence < 0, 'running', {t}.status),
    retryable = IF({t}.fence < 0, FALSE, {t}.retryable),
    fingerprint = IF({t}.fence < 0, e.fingerprint, {t}.fingerprint),
    nonce = IF({t}.fence < 0, e.nonce, {t}.nonce),
    lease_us = IF({t}.fence < 0, e.now + e.lease_us, {t}.lease_us),
    in_doubt_policy = IF({t}.fence < 0, nullif(e.in_doubt_policy, {usual_policy}), {t}.in_doubt_policy),
    reconcile_after_us = IF({t}.fence < 0, nullif(e.reconcile_after_us, {usual_quiet}), {t}.reconcile_after_us),
    outcome = IF({t}.fence < 0, NULL, {t}.outcome),
    subject = IF({t}.fence < 0, e.subject, {t}.subject),
    business_key = IF({t}.fence < 0, e.business_key, {t}.business_key),
    process_instance = IF({t}.fence < 0, e.process_instance, {t}.process_instance),
    requester = IF({t}.fence < 0, e.requester, {t}.requester),
    tags = IF({t}.fence < 0, e.tags, {t}.tags),
    started_us = IF({t}.fence < 0, e.now, {t}.started_us),
    updated_us = IF({t}.fence < 0, e.now, {t}.updated_us),
    completed_us = IF({t}.fence < 0, NULL, {t}.completed_us),
    expires_us = IF({t}.fence < 0, e.now + e.keep_us, {t}.expires_us),
    keep_us = IF({t}.fence < 0, e.keep_us, {t}.keep_us),
    replays = IF({t}.fence < 0, 0, {t}.replays),
    replayed_us = IF({t}.fence < 0, NULL, {t}.replayed_us),
    doubt_us = IF({t}.fence < 0, NULL, {t}.doubt_us),
    fence = ABS({t}.fence);

-- What the records are searched by, in the transaction of the claim that won them. It locks nothing but what it writes:
-- at READ COMMITTED the record is not locked by being looked at.
-- name: keep_terms
INSERT INTO {search_table} (digest, term, created_us, scope)
SELECT r.digest, e.term, r.created_us, r.scope
FROM ({input}) AS e STRAIGHT_JOIN {record_table} AS r FORCE INDEX (PRIMARY) ON r.digest = e.digest
WHERE r.nonce = e.nonce AND r.status = e.status
ON DUPLICATE KEY UPDATE created_us = r.created_us, scope = r.scope;

-- What was said of a record before it was claimed again, or in the life before, is not said of it any more.
-- name: drop_terms
DELETE FROM {search_table} WHERE digest IN ({digests}) AND EXISTS (
    SELECT 1 FROM {record_table} AS r
    WHERE r.digest = {search_table}.digest AND r.nonce IN ({nonces}) AND r.status = 'running' AND r.fence > 1
);

-- The same in the caller's transaction, for one record that is known to be its own. It is looked up without a lock and
-- removed by its key: whoever locks what is not there deadlocks with the next one who writes there.
-- name: kept_terms
SELECT term FROM {search_table} WHERE digest = ?;

-- name: drop_terms_here
DELETE FROM {search_table} WHERE digest = ? AND term IN ({terms});

-- name: keep_terms_here
INSERT INTO {search_table} (digest, term, created_us, scope) VALUES {rows}
ON DUPLICATE KEY UPDATE created_us = ?, scope = ?;

-- Decides nothing: spares a write and a lock where nothing can be won. At READ COMMITTED it locks nothing itself; in the
-- caller's transaction, where it would lock the gap of a key that is not there, it is left out.
-- name: unless
WHERE NOT EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = e.digest AND NOT {wins});

-- name: claimed
SELECT {r_record}, {clock}, NULL FROM {record_table} AS r WHERE r.digest IN ({digests});

-- All gates of one turn, or no row. Each is looked up by its key alone, so that nothing is locked but these four rows,
-- and the first that is held ends it.
-- name: through_gates
FROM {gate} AS g1 STRAIGHT_JOIN {gate} AS g2 STRAIGHT_JOIN {gate} AS g3 STRAIGHT_JOIN {gate} AS g4
WHERE g1.stripe = ? AND g2.stripe = ? AND g3.stripe = ? AND g4.stripe = ? AND g1.install_id = ? FOR UPDATE SKIP LOCKED;

-- The turn after the last gates. Nobody waits here but for whoever writes this very key, and for no longer than
-- lock_timeout.
-- name: through_no_gate
FROM {meta} AS x WHERE x.name = 'install_id' AND x.value = ?;

-- How many gates of a turn this transaction holds, and the record, which is locked only where it holds all: to look for
-- a record that is not there would lock the gap, and be in the way of other keys.
-- name: held_by_gates
SELECT (g1.stripe IS NOT NULL) + (g2.stripe IS NOT NULL) + (g3.stripe IS NOT NULL) + (g4.stripe IS NOT NULL) AS gates,
    {r_record}
FROM (SELECT 1 AS one) AS o
LEFT JOIN {gate} AS g1 ON g1.stripe = ? LEFT JOIN {gate} AS g2 ON g2.stripe = ?
LEFT JOIN {gate} AS g3 ON g3.stripe = ? LEFT JOIN {gate} AS g4 ON g4.stripe = ?
LEFT JOIN {record_table} AS r
    ON r.digest = IF(g1.stripe IS NULL OR g2.stripe IS NULL OR g3.stripe IS NULL OR g4.stripe IS NULL, NULL, ?)
FOR UPDATE SKIP LOCKED;

-- name: held_by_no_gate
SELECT 4 AS gates, {r_record}
FROM (SELECT 1 AS one) AS o LEFT JOIN {record_table} AS r ON r.digest = ? FOR UPDATE SKIP LOCKED;

-- The same in the caller's transaction, where only a locking read sees what others committed since it began. No row at
-- all: another database. A row without a status: no gate was free, so an open transaction is writing this key; or some
-- were, and the last column says that it has to be asked again at the gates of the next turn.
-- name: claimed_here
SELECT {m_record}, {clock}, IF(r.status IS NULL AND r.gates > 0, TRUE, NULL)
FROM (SELECT ? AS digest FROM {meta} AS x WHERE x.name = 'install_id' AND x.value = ?) AS m
LEFT JOIN ({held}) AS r ON TRUE;

-- The caller's session has a time limit of its own for locks, of 50 s as a rule. MySQL has no word for a single
-- statement, and does not read the comment: there the session's limit is changed before, and restored after.
-- name: within_lock_timeout
/*M!100100 SET STATEMENT innodb_lock_wait_timeout = {lock_timeout} FOR */;

-- name: limit_lock_wait
SET @semel_lock_wait = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = {lock_timeout};

-- name: restore_lock_wait
SET SESSION innodb_lock_wait_timeout = @semel_lock_wait;

-- The fence: a late worker matches no row and changes nothing.
-- part: mine
r.nonce = e.nonce AND r.fence = e.fence AND r.status = 'running'

-- A run that used up most of keep_for would otherwise be forgotten as soon as it is done.
-- part: kept
IF(r.expires_us - e.now > r.keep_us / 2, r.expires_us, e.now + r.keep_us)

-- Joined first to last: the rows are locked in the order of digests. No assignment below looks at a column that
-- another one changes, because their order is not defined where tables are joined.
-- part: own
({input}) AS e STRAIGHT_JOIN {record_table} AS r FORCE INDEX (PRIMARY) ON r.digest = e.digest

-- name: renew
UPDATE {own} SET r.lease_us = e.now + e.lease_us, r.updated_us = e.now WHERE {mine};

-- One write alone is said without a join: MariaDB 10.11 was seen to crash in its optimizer on an UPDATE joined to a table
-- of one constant row. The clock is the start of the statement, so it is one instant wherever it stands.
-- part: mine_alone
r.digest = ? AND r.nonce = ? AND r.fence = ? AND r.status = 'running'

-- part: kept_alone
IF(r.expires_us - {clock} > r.keep_us / 2, r.expires_us, {clock} + r.keep_us)

-- name: renew_one
UPDATE {record_table} AS r SET r.lease_us = {clock} + ?, r.updated_us = {clock} WHERE {mine_alone};

-- name: complete_one
UPDATE {record_table} AS r SET r.status = 'completed', r.outcome = ?, r.error_type = NULL, r.error_message = NULL,
    r.completed_us = {clock}, r.updated_us = {clock}, r.lease_us = LEAST(r.lease_us, {clock}),
    r.expires_us = {kept_alone}
WHERE {mine_alone};

-- name: fail_one
UPDATE {record_table} AS r SET r.retryable = ?, r.error_type = ?, r.error_message = ?, r.doubtful = ?,
    r.attempts = GREATEST(r.attempts - ?, 0), r.updated_us = {clock}, r.lease_us = LEAST(r.lease_us, {clock}),
    r.completed_us = IF(? = 'failed', {clock}, NULL), r.expires_us = IF(? = 'failed', {kept_alone}, r.expires_us),
    r.doubt_us = IF(? = 'failed', NULL, {clock}),
    r.status = ?
WHERE {mine_alone};

-- A lease that is the current one now, and running, was so before; and a locked row would have failed the update.
-- So it was renewed, from the instant that the row tells.
-- name: renewed
SELECT e.digest, {mine}, IF({mine}, r.lease_us - e.lease_us, e.now), r.nonce, r.fence, r.status, r.completed_us,
    r.updated_us, r.error_type, r.error_message
FROM ({input}) AS e LEFT JOIN {record_table} AS r ON r.digest = e.digest {lock};

-- name: complete
UPDATE {own} SET r.status = 'completed', r.outcome = e.outcome, r.error_type = NULL, r.error_message = NULL,
    r.completed_us = e.now, r.updated_us = e.now, r.lease_us = LEAST(r.lease_us, e.now), r.expires_us = {kept}
WHERE {mine};

-- A doubt is not settled, so it does not expire. An attempt whose handler was never called does not count: unstarted
-- is 1 then.
-- name: fail
UPDATE {own} SET r.status = e.status, r.retryable = e.retryable, r.error_type = e.error_type,
    r.error_message = e.error_message, r.doubtful = e.doubtful, r.attempts = GREATEST(r.attempts - e.unstarted, 0),
    r.completed_us = IF(e.status = 'failed', e.now, NULL), r.updated_us = e.now,
    r.lease_us = LEAST(r.lease_us, e.now), r.expires_us = IF(e.status = 'failed', {kept}, r.expires_us),
    r.doubt_us = IF(e.status = 'failed', NULL, e.now)
WHERE {mine};

-- What a write met, or left: the row itself tells whether it is the end that was asked for.
-- name: told
SELECT r.digest, FALSE, {clock}, r.nonce, r.fence, r.status, r.completed_us, r.updated_us, r.error_type, r.error_message
FROM {record_table} AS r WHERE r.digest IN ({digests}) {lock};

-- A finished step enters under the lease, once: sent again after a lost reply it meets itself. The record is locked
-- until the step is counted.
-- name: checkpoint
INSERT INTO {step_table} (digest, life, position, identity, number, name, outcome)
SELECT e.digest, r.created_us, e.position, e.identity, r.steps + e.place, e.name, e.outcome
FROM {own} WHERE {mine} FOR UPDATE
ON DUPLICATE KEY UPDATE number = {step_table}.number;

-- What was added under the lease is counted; a late worker has added nothing, and its record stays as it is. No join:
-- see renew_one.
-- name: count_steps
UPDATE {record_table} AS r
SET r.updated_us = {clock},
    r.steps = (SELECT COUNT(*) FROM {step_table} AS s WHERE s.digest = r.digest AND s.life = r.created_us)
WHERE r.digest IN ({digests})
    AND r.steps <> (SELECT COUNT(*) FROM {step_table} AS s WHERE s.digest = r.digest AND s.life = r.created_us);

-- name: checkpointed
SELECT e.digest, {mine}, e.now, r.nonce, r.fence, r.status, r.completed_us, r.updated_us, r.error_type, r.error_message
FROM ({input}) AS e LEFT JOIN {record_table} AS r ON r.digest = e.digest {lock};

-- The first touch of a step in the caller's transaction: proves the lease and holds the record, so that nobody takes
-- over while the step runs, and gates, so that nobody who claims the key waits for it.
-- No free gate reads like a record that is locked; some, and it has to be asked again at the gates of the next turn.
-- A record that is locked, by a renewal of its lease perhaps, is skipped like one that is gone: a look without a lock
-- tells them apart.
-- part: locked
(r.gates = 0 OR (r.nonce IS NULL AND p.digest IS NOT NULL))

-- name: enter
SELECT m.digest,
    IF(r.gates IN (0, 4), COALESCE(r.nonce = m.nonce AND r.fence = m.fence AND r.status = 'running', FALSE), NULL), {clock},
    IF({locked}, m.nonce, r.nonce), IF({locked}, m.fence, r.fence), IF({locked}, 'running', r.status),
    NULL, NULL, NULL, NULL, NULL
FROM (SELECT ? AS digest, ? AS nonce, ? AS fence FROM {meta} AS x WHERE x.name = 'install_id' AND x.value = ?) AS m
LEFT JOIN ({held}) AS r ON TRUE
LEFT JOIN {record_table} AS p
    ON p.digest = m.digest AND p.nonce = m.nonce AND p.fence = m.fence AND p.status = 'running';

-- name: read
SELECT {r_record}, e.now FROM ({input}) AS e LEFT JOIN {record_table} AS r ON r.digest = e.digest ORDER BY e.place;

-- name: steps
SELECT position, name, outcome FROM {step_table} WHERE digest = ? AND life = ? ORDER BY position, number {share};

-- The fence that was seen shuts out a decision about what has gone on since.
-- part: resolvable
r.nonce <> e.nonce AND (e.fence IS NULL OR r.fence = e.fence) AND CASE WHEN e.corrects IS NULL
    THEN r.status = 'in_doubt' OR (r.status = 'running' AND (e.forced OR r.lease_us <= e.now))
    -- A correction replaces the outcome of the very record that was seen, unless its content was erased since.
    ELSE r.status = 'completed' AND e.status = 'completed' AND r.nonce = e.corrects AND r.value <> '' END

-- A decision ends a doubt. The new nonce and fence shut out an attempt that may still be running.
-- name: resolve
UPDATE {own} SET r.status = e.status, r.retryable = (e.status = 'failed' AND e.error_type IS NULL), r.outcome = e.outcome,
    r.error_type = COALESCE(e.error_type, r.error_type), r.error_message = COALESCE(e.error_message, r.error_message),
    r.nonce = e.nonce,
    r.fence = r.fence + 1, r.doubtful = FALSE, r.resolution = e.note, r.completed_us = e.now, r.updated_us = e.now,
    r.lease_us = LEAST(r.lease_us, e.now), r.expires_us = {kept}, r.doubt_us = NULL
WHERE {resolvable};

-- name: resolved
SELECT {r_record} FROM {record_table} AS r WHERE r.digest = ? AND r.nonce = ?;

-- A claim has the nonce of the attempt that is counted: of its record nothing is to be told but a failure.
-- name: counted
SELECT {r_record} FROM {record_table} AS r WHERE r.digest = ? AND r.nonce = ? AND r.status = 'failed';

-- part: reopenable
r.nonce = e.seen AND r.value <> '' AND (r.status = 'cancelled' OR (r.status = 'failed' AND NOT r.retryable))

-- What was final may be tried again. Only the very record that was seen is changed, so two decisions are not both carried
-- out; whoever claimed it before shows another nonce and changes nothing.
-- name: reopen
UPDATE {own} SET r.status = 'failed', r.attempts = 0, r.nonce = e.nonce,
    r.error_type = COALESCE(r.error_type, e.error_type), r.error_message = COALESCE(r.error_message, e.error_message),
    r.resolution = e.note, r.completed_us = e.now, r.updated_us = e.now, r.lease_us = LEAST(r.lease_us, e.now),
    r.expires_us = {kept}, r.retryable = TRUE
WHERE {reopenable};

-- The failure of an attempt that left no record.
-- name: count_first
INSERT INTO {record_table} (
    digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
    reconcile_after_us, doubtful, attempts, error_type, error_message, subject, business_key, process_instance,
    requester, tags, created_us, started_us, updated_us, completed_us, expires_us, keep_us
)
SELECT
    e.digest, e.scope, e.operation, e.value, 'failed', COALESCE(e.most > 1, TRUE), e.fingerprint, e.fence, e.nonce, e.now,
    nullif(e.in_doubt_policy, {usual_policy}), nullif(e.reconcile_after_us, {usual_quiet}), FALSE, 1, e.error_type,
    e.error_message, e.subject, e.business_key,
    e.process_instance, e.requester, e.tags, e.now, e.now, e.now, e.now, e.now + e.keep_us, e.keep_us
FROM ({input}) AS e {unless}
ON DUPLICATE KEY UPDATE fence = {t}.fence;

-- A further one. A record that is running, settled for good, expired or another request's is left alone. One table, so
-- assignments follow each other from left to right: what is looked at is assigned after that.
-- name: count_again
UPDATE {record_table} AS r SET r.retryable = COALESCE(? > r.attempts + 1, ? IS NULL), r.attempts = r.attempts + 1,
    r.fence = r.fence + 1, r.nonce = ?, r.error_type = ?, r.error_message = ?, r.started_us = {clock},
    r.completed_us = {clock}, r.lease_us = LEAST(r.lease_us, {clock}), r.expires_us = {kept_alone},
    r.updated_us = {clock}
WHERE r.digest = ? AND r.nonce <> ? AND r.fingerprint = ? AND r.status = 'failed' AND r.retryable
    AND r.expires_us > {clock};

-- name: forget_expired_steps
DELETE FROM {step_table} WHERE digest = ? AND EXISTS (
    SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND {settled} AND r.expires_us <= {clock}
);

-- name: forget_expired_terms
DELETE FROM {search_table} WHERE digest = ? AND EXISTS (
    SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND {settled} AND r.expires_us <= {clock}
);

-- name: forget_expired
DELETE FROM {record_table} WHERE digest = ? AND status NOT IN ('running', 'in_doubt') AND expires_us <= {clock};

-- A record that is not settled, or was claimed again since, is left alone. No instant changes, so it expires as before.
-- What follows goes by the empty value, which no key has: it finds the record that was erased here, and no other.
-- name: erase
UPDATE {record_table} AS r SET r.scope = '', r.value = '', r.fingerprint = '', r.retryable = FALSE, r.doubtful = FALSE,
    r.outcome = IF(r.status = 'completed', ?, NULL), r.error_type = IF(r.status = 'failed', ?, NULL),
    r.error_message = IF(r.status = 'failed', ?, NULL), r.subject = NULL, r.business_key = NULL,
    r.process_instance = NULL, r.requester = NULL, r.tags = NULL, r.resolution = ?, r.steps = 0
WHERE r.digest = ? AND {settled};

-- name: erase_steps
DELETE FROM {step_table} WHERE digest = ?
    AND EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND r.value = '');

-- name: erase_terms
DELETE FROM {search_table} WHERE digest = ?
    AND EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND r.value = '');

-- Every note is later than the one before it, whatever the clock says: whoever confirms the earlier one must not take
-- this one away.
-- name: note_invalidation
INSERT INTO {invalidation_table} (digest, operation, noted_us)
SELECT r.digest, r.operation, {clock} FROM {record_table} AS r WHERE r.digest = ? AND r.value = ''
ON DUPLICATE KEY UPDATE noted_us = GREATEST({clock}, {invalidation_table}.noted_us + 1);

-- name: erased
SELECT {r_record} FROM {record_table} AS r WHERE r.digest = ? AND r.value = '';

-- name: pending
SELECT digest, operation, noted_us FROM {invalidation_table} ORDER BY noted_us, digest LIMIT ?;

-- What was noted again since the invalidation that is confirmed stays.
-- name: confirm
DELETE FROM {invalidation_table} WHERE digest = ? AND noted_us <= ?;

-- name: instant
SELECT {clock};

-- Which records to look at. Without a lock, so that a sweep is in nobody's way.
-- name: expired_ones
SELECT r.digest FROM {record_table} AS r FORCE INDEX ({prefix}record_expiry)
WHERE r.doubt_us IS NULL AND r.keep_us {sign} ? AND r.expires_us <= {clock} AND {settled}
ORDER BY r.expires_us LIMIT ?;

-- What the last sweep noted, and the instant before the look for lapsed leases begins.
-- name: sweep_state
SELECT (SELECT value FROM {meta} WHERE name = 'sweep'), {clock};

-- Of two sweeps that began with the same note one leaves its own; the other has looked for nothing.
-- name: save_sweep_state
INSERT INTO {meta} (name, value) VALUES ('sweep', ?) ON DUPLICATE KEY UPDATE value = IF(value = ?, ?, value);

-- name: next_keep
SELECT MIN(r.keep_us) FROM {record_table} AS r FORCE INDEX ({prefix}record_expiry)
WHERE r.doubt_us IS NULL AND r.keep_us > ?;

-- What was claimed since an instant and still runs: by one value of keep_us, or by all above one.
-- name: running_keep
SELECT r.digest, r.expires_us - r.keep_us, r.lease_us FROM {record_table} AS r FORCE INDEX ({prefix}record_expiry)
WHERE r.doubt_us IS NULL AND r.keep_us = ? AND r.expires_us >= ? AND r.status = 'running'
ORDER BY r.expires_us LIMIT ?;

-- name: running_rest
SELECT r.digest, r.expires_us - r.keep_us, r.lease_us FROM {record_table} AS r FORCE INDEX ({prefix}record_expiry)
WHERE r.doubt_us IS NULL AND r.keep_us > ? AND r.expires_us - r.keep_us >= ? AND r.status = 'running'
ORDER BY r.expires_us - r.keep_us LIMIT ?;

-- For the look at a store, which goes by the same index. What has lapsed is among what was claimed last, as a rule.
-- name: count_in_doubt
SELECT COUNT(*) FROM (
    SELECT 1 FROM {record_table} AS r FORCE INDEX ({prefix}record_expiry) WHERE r.doubt_us IS NOT NULL LIMIT ?
) AS n;

-- name: count_expired
SELECT COUNT(*) FROM (
    SELECT 1 FROM {record_table} AS r FORCE INDEX ({prefix}record_expiry)
    WHERE r.doubt_us IS NULL AND r.keep_us {sign} ? AND r.expires_us <= {clock} AND {settled} LIMIT ?
) AS n;

-- name: count_lapsed
SELECT COUNT(*), CAST(COALESCE(SUM(n.status = 'running' AND n.lease_us <= {clock}), 0) AS SIGNED) FROM (
    SELECT r.status, r.lease_us FROM {record_table} AS r FORCE INDEX ({prefix}record_expiry)
    WHERE r.doubt_us IS NULL AND r.keep_us {sign} ?
    ORDER BY r.doubt_us DESC, r.keep_us DESC, r.expires_us DESC LIMIT ?
) AS n;

-- name: running_among
SELECT r.digest, r.expires_us - r.keep_us, r.lease_us FROM {record_table} AS r
WHERE r.digest IN ({digests}) AND r.status = 'running';

-- With a lock wait timeout of 0, which the store's own sessions on MariaDB have, a transaction that skipped a locked row
-- cannot commit (error 1180). So it is another one for this statement; MySQL does not read the comment.
-- part: skipping
/*M!100100 SET STATEMENT innodb_lock_wait_timeout = 1 FOR */

-- Judged again on the locked row: a record claimed again since is left alone. What others hold is left for next time.
-- name: hold_expired
{skipping} SELECT r.digest FROM (SELECT {clock} AS now) AS e STRAIGHT_JOIN {record_table} AS r
WHERE r.digest IN ({digests}) AND {expired} FOR UPDATE SKIP LOCKED;

-- name: hold_lapsed
{skipping} SELECT r.digest, r.operation, {clock} - r.started_us FROM {record_table} AS r
WHERE r.digest IN ({digests}) AND r.status = 'running' AND r.lease_us <= {clock} FOR UPDATE SKIP LOCKED;

-- name: forget_steps
DELETE FROM {step_table} WHERE digest IN ({digests});

-- name: forget_terms
DELETE FROM {search_table} WHERE digest IN ({digests});

-- name: forget
DELETE FROM {record_table} WHERE digest IN ({digests});

-- name: lapse
UPDATE {record_table} SET status = 'in_doubt', error_type = ?, error_message = ?, doubtful = TRUE,
    updated_us = {clock}, doubt_us = {clock}
WHERE digest IN ({digests});

-- name: tally
UPDATE {own} SET r.replays = r.replays + e.replays, r.replayed_us = e.now;

-- name: tallied
SELECT e.digest, e.now FROM ({input}) AS e ORDER BY e.place;

-- Where records are found: all of them, or those that have a searched value, which the index gives in order. The instant
-- shuts out what was kept for a life of the key that is over.
-- name: found_r
{record_table} AS r

-- name: found_s
{search_table} AS s FORCE INDEX ({index}) STRAIGHT_JOIN {record_table} AS r FORCE INDEX (PRIMARY)
    ON r.digest = s.digest AND r.created_us = s.created_us

-- One page. {restrictions} and {order} are put together from fixed texts.
-- name: scan
SELECT {r_record} FROM {found} WHERE {restrictions} ORDER BY {order} LIMIT ?;

-- name: count_records
SELECT r.operation, r.status, COUNT(*) FROM {found} WHERE {restrictions} GROUP BY r.operation, r.status;

-- How far so many records reach: along an index by time.
-- name: skip_r
SELECT r.created_us FROM {record_table} AS r WHERE {restrictions} ORDER BY {order} LIMIT 1 OFFSET ?;

-- name: skip_s
SELECT s.created_us FROM {search_table} AS s WHERE {restrictions} ORDER BY {order} LIMIT 1 OFFSET ?;

-- Histories. Whatever enters is part of the transaction that changes the record, before it (for what the record is about
-- to forget, on the locked row) or after it (for what it says now). Entered again, an entry meets itself.
-- part: enter_history
INSERT INTO {history_table} (
    digest, life, position, scope, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
)

-- part: entered
ON DUPLICATE KEY UPDATE number = {history_table}.number

-- Attempts that were taken over: whose they were, the claim has left in the record.
-- name: note_taken_over
{enter_history}
SELECT r.digest, r.created_us, (r.fence - 1) * 8 + 1, r.scope, 'taken_over', r.attempts - 1, r.taken_started_us,
    r.started_us, r.taken_nonce, 'in_doubt', NULL, NULL
FROM {record_table} AS r WHERE r.digest IN ({digests}) AND r.status = 'running' AND r.taken_nonce IS NOT NULL
{entered};

-- A new life begins without the entries of the one that expired, and a claim enters one at most.
-- name: forget_past
DELETE h FROM {record_table} AS r STRAIGHT_JOIN {history_table} AS h ON h.digest = r.digest
WHERE r.digest IN ({digests}) AND (h.life <> r.created_us OR h.position < (r.fence - 100) * 8);

-- The attempt that a decision ends, or whose value it replaces, unless that value was itself a decision.
-- name: note_undecided
{enter_history}
SELECT r.digest, r.created_us, r.fence * 8 + 1, r.scope, 'attempt', r.attempts, r.started_us,
    IF(r.status = 'completed', r.completed_us, e.now), r.nonce, IF(r.status = 'completed', 'completed', 'in_doubt'), NULL, NULL
FROM {own} LEFT JOIN {history_table} AS h
    ON h.digest = r.digest AND h.life = r.created_us AND h.position = r.fence * 8 + 2
WHERE r.status IN ('running', 'completed') AND h.digest IS NULL AND {resolvable} FOR UPDATE
{entered};

-- name: note_decision
{enter_history}
SELECT r.digest, r.created_us, r.fence * 8 + 2, r.scope, 'resolved', r.attempts, r.updated_us, r.updated_us, r.nonce,
    IF(r.retryable, 'retryable', r.status), IF(r.status = 'failed' AND NOT r.retryable, r.error_type, NULL),
    IF(r.status = 'failed' AND NOT r.retryable, r.error_message, NULL)
FROM {record_table} AS r WHERE r.digest = ? AND r.nonce = ?
{entered};

-- name: note_reopening
{enter_history}
SELECT r.digest, r.created_us, r.fence * 8 + 3, r.scope, 'reopened', r.attempts, e.now, e.now, e.nonce, 'retryable', NULL, NULL
FROM {own} WHERE {reopenable} FOR UPDATE
{entered};

-- part: failed_attempt
SELECT r.digest, r.created_us, r.fence * 8 + 1, r.scope, 'attempt', r.attempts, r.started_us, r.updated_us, r.nonce,
    IF(r.retryable, 'retryable', r.status), r.error_type, r.error_message

-- The end of attempts whose handlers were called, before it is recorded: only what is running ends.
-- name: note_failures
{enter_history}
SELECT r.digest, r.created_us, r.fence * 8 + 1, r.scope, 'attempt', r.attempts, r.started_us, e.now, r.nonce,
    IF(e.retryable, 'retryable', e.status), e.error_type, e.error_message
FROM {own} WHERE {mine} AND e.unstarted = 0 FOR UPDATE
{entered};

-- A failure that was counted.
-- name: note_failure
{enter_history}
{failed_attempt} FROM {record_table} AS r WHERE r.digest = ? AND r.nonce = ? AND r.status = 'failed'
{entered};

-- name: note_lapses
{enter_history}
{failed_attempt} FROM {record_table} AS r WHERE r.digest IN ({digests})
{entered};

-- name: cut_history
DELETE FROM {history_table} WHERE digest = ? AND position < (
    SELECT position FROM (
        SELECT h.position FROM {history_table} AS h JOIN {record_table} AS r ON r.digest = h.digest AND r.created_us = h.life
        WHERE h.digest = ? ORDER BY h.position DESC LIMIT 1 OFFSET 99
    ) AS newest
);

-- name: erase_history
UPDATE {history_table} AS h SET h.scope = '', h.error_message = IF(h.error_type IS NULL, NULL, ?),
    h.error_type = IF(h.error_type IS NULL, NULL, ?)
WHERE h.digest = ? AND EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND r.value = '');

-- name: note_erasure
{enter_history}
SELECT r.digest, r.created_us, r.fence * 8 + 4, '', 'erased', r.attempts, {clock}, {clock}, NULL, NULL, NULL, NULL
FROM {record_table} AS r WHERE r.digest = ? AND r.value = ''
{entered};

-- name: forget_history
DELETE FROM {history_table} WHERE digest IN ({digests});

-- name: forget_expired_history
DELETE FROM {history_table} WHERE digest = ? AND EXISTS (
    SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND {settled} AND r.expires_us <= {clock}
);

-- name: history
SELECT position DIV 8, kind, number, started_us, ended_us, nonce, ending, error_type, error_message
FROM {history_table} WHERE digest = ? AND life = ? ORDER BY position;

-- name: worker
SELECT process, host, pid, version, started_us FROM {worker_table} WHERE process = ?;

-- A worker started when it was first noted.
-- name: register
INSERT INTO {worker_table} (process, host, pid, version, started_us, seen_us) VALUES (?, ?, ?, ?, {clock}, {clock})
ON DUPLICATE KEY UPDATE host = ?, version = ?, pid = ?, seen_us = {clock};

-- name: old_workers
SELECT COUNT(*) FROM {worker_table} WHERE seen_us <= {clock} - ?;

-- name: purge_workers
DELETE FROM {worker_table} WHERE seen_us <= {clock} - ?;

-- A dead letter, of an event that nobody tries again by itself. It has one name for each body under a record, so that it
-- is never there twice.
-- part: new_letter
INSERT INTO {letter_table} (
    id, consumer, scope, record, reason, type, subject, content, readable, attempts, error_type, error_message, keep_us,
    first_us, last_us, seen, expires_us
)
SELECT e.letter_id, e.letter_consumer, e.letter_scope, e.letter_record, e.letter_reason, e.letter_type, e.letter_subject,
    e.letter_content, e.letter_readable, e.letter_attempts, e.letter_error_type, e.letter_error_message,
    e.letter_keep_us,

-- part: letter_again
reason = e.letter_reason, attempts = e.letter_attempts, error_type = e.letter_error_type,
    error_message = e.letter_error_message, keep_us = e.letter_keep_us

-- In the transaction that ends a record, after that: where the record says what this failure says. Its instants are those
-- of the record, so that the same failure sent again finds that it was seen.
-- name: keep_letter
{new_letter} r.updated_us, r.updated_us, 1, r.updated_us + e.letter_keep_us
FROM ({input}) AS e STRAIGHT_JOIN {record_table} AS r FORCE INDEX (PRIMARY) ON r.digest = e.digest
WHERE r.nonce = e.nonce AND r.status IN ('failed', 'in_doubt') AND NOT r.retryable
    AND r.error_type = e.error_type AND r.error_message = e.error_message
ON DUPLICATE KEY UPDATE seen = {letter_table}.seen + ({letter_table}.last_us < r.updated_us), {letter_again},
    last_us = GREATEST({letter_table}.last_us, r.updated_us), expires_us = r.updated_us + e.letter_keep_us;

-- Forgotten before its letter, the event of a record would be processed anew.
-- name: keep_as_long
UPDATE {record_table} AS r SET r.expires_us = GREATEST(r.expires_us, r.updated_us + ?)
WHERE r.digest = ? AND r.nonce = ? AND r.status IN ('failed', 'in_doubt') AND NOT r.retryable
    AND r.error_type = ? AND r.error_message = ?;

-- In the transaction that completes a record, after that.
-- name: complete_letter
DELETE FROM {letter_table} WHERE id = ? AND EXISTS (
    SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND r.nonce = ? AND r.fence = ? AND r.status = 'completed'
);

-- In the transaction of a decision, after that; unless the event may run now: nobody else may have it. A letter of
-- another event under the same id is not about it.
-- name: close_letters
DELETE FROM {letter_table} WHERE record = ? AND reason <> 'reused' AND EXISTS (
    SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND r.nonce = ? AND NOT r.retryable
);

-- name: erase_letters
DELETE FROM {letter_table} WHERE record = ?
    AND EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = ? AND r.value = '');

-- name: put_letter
{new_letter} e.now, e.now, 1, e.now + e.letter_keep_us FROM ({input}) AS e
ON DUPLICATE KEY UPDATE seen = {letter_table}.seen + 1, {letter_again}, last_us = e.now,
    expires_us = e.now + e.letter_keep_us;

-- name: letter
SELECT {letter} FROM {letter_table} AS l WHERE l.id = ?;

-- name: touch_letter
UPDATE {letter_table} SET last_us = {clock}, seen = seen + 1 WHERE record = ? AND consumer = ? AND reason <> 'reused'
ORDER BY first_us, id LIMIT 1;

-- name: touched_letter
SELECT {letter} FROM {letter_table} AS l WHERE l.record = ? AND l.consumer = ? AND l.reason <> 'reused'
ORDER BY l.first_us, l.id LIMIT 1;

-- name: hold_letter
SELECT {letter} FROM {letter_table} AS l WHERE l.id = ? AND l.consumer = ? FOR UPDATE;

-- name: drop_letter
DELETE FROM {letter_table} WHERE id = ? AND consumer = ?;

-- name: scan_letters
SELECT {letter} FROM {letter_table} AS l WHERE {restrictions} ORDER BY l.first_us, l.id LIMIT ?;

-- name: expired_letters
SELECT l.id FROM {letter_table} AS l WHERE l.expires_us <= {clock} ORDER BY l.expires_us LIMIT ?;

-- A letter that was put again since is kept for longer.
-- name: purge_letters
DELETE FROM {letter_table} WHERE id IN ({digests}) AND expires_us <= {clock};

-- What a new connection is asked first: which schema, which database, and whether it may be written.
-- name: ready
SELECT COALESCE((SELECT MAX(version) FROM {schema_table}), 0), (SELECT value FROM {meta} WHERE name = 'install_id'),
    CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF'), (SELECT MAX(oldest) FROM {schema_table}),
    INSTR(LOWER(VERSION()), 'mariadb') = 0;
