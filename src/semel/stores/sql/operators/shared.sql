-- Statements about the audit chain and tokens that every SQL store understands as they are. What changes two tables, and
-- a server says in its own way, is in the statements of that server.

-- name: head
SELECT {head}, {clock} FROM {audit_head_table} WHERE chain = ?;

-- Of two that begin a chain one finds it there.
-- name: insert_head
{insert_ignore} {audit_head_table} (chain, scope, seq, hash, at_us, kept_from, sealed, sealed_us, seal_hash)
VALUES (?, ?, 0, ?, 0, 1, 0, {clock}, ?) {or_nothing};

-- name: heads
SELECT {head} FROM {audit_head_table} WHERE chain > ? ORDER BY chain LIMIT ?;

-- name: now
SELECT {clock};

-- Read after the head: whoever appended one of these since then has moved the head, so that it is looked for again.
-- name: known
SELECT {entry} FROM {audit_table} WHERE chain = ? AND id {among};

-- name: entries
SELECT {entry} FROM {audit_table} WHERE chain = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?;

-- name: seals
SELECT {seal} FROM {audit_seal_table} WHERE chain = ? AND last > ? AND last <= ? ORDER BY last LIMIT ?;

-- One statement, so that an entry and its head are seen as they were at the same instant.
-- name: stray_entries
SELECT a.chain, a.scope, a.seq, h.seq FROM {audit_table} AS a LEFT JOIN {audit_head_table} AS h ON h.chain = a.chain
WHERE h.chain IS NULL OR a.seq > h.seq OR a.seq < 1 ORDER BY a.chain, a.seq LIMIT 1000;

-- name: stray_seals
SELECT s.chain, COALESCE(h.scope, ''), s.last, h.sealed FROM {audit_seal_table} AS s
LEFT JOIN {audit_head_table} AS h ON h.chain = s.chain
WHERE h.chain IS NULL OR s.last > h.sealed ORDER BY s.chain, s.last LIMIT 1000;

-- An action that began and of whose end the chain knows nothing.
-- part: is_open
a.phase = 1 AND NOT EXISTS (SELECT 1 FROM {audit_table} AS e WHERE e.chain = a.chain AND e.ends = a.seq)

-- name: scan
SELECT {a_entry}, {is_open} FROM {audit_table} AS a
WHERE {condition} ORDER BY a.at_us DESC, a.seq DESC, a.chain DESC LIMIT ?;

-- name: scan_open
SELECT {a_entry}, {is_open} FROM {audit_table} AS a
WHERE {is_open} AND {condition} ORDER BY a.at_us DESC, a.seq DESC, a.chain DESC LIMIT ?;

-- name: has_written
SELECT written IS NOT NULL FROM {audit_table} WHERE chain = ? AND seq = ?;

-- name: redact
UPDATE {audit_table} SET written = NULL WHERE chain = ? AND seq = ?;

-- Never back, and never beyond what is sealed.
-- name: keep_from
UPDATE {audit_head_table} SET kept_from = ? WHERE chain = ? AND kept_from < ? AND sealed >= ?;

-- name: old
SELECT a.seq FROM {audit_table} AS a JOIN {audit_head_table} AS h ON h.chain = a.chain
WHERE a.chain = ? AND a.seq < ? AND a.seq < h.kept_from ORDER BY a.seq LIMIT ?;

-- name: drop
DELETE FROM {audit_table} WHERE chain = ? AND seq <= ?
    AND seq < (SELECT h.kept_from FROM {audit_head_table} AS h WHERE h.chain = ?);

-- Of two that make a token of one name one finds it there.
-- name: insert_token
{insert_ignore} {token_table} (id, name, secret_hash, roles, scopes, created_by, created_us, expires_us)
VALUES (?, ?, ?, ?, ?, ?, {clock}, {clock} + ?) {or_nothing};

-- name: token_by_name
SELECT {token}, {clock} FROM {token_table} WHERE name = ?;

-- name: token_by_id
SELECT {token}, {clock} FROM {token_table} WHERE id = ?;

-- name: tokens
SELECT {token} FROM {token_table} WHERE name > ? ORDER BY name LIMIT ?;

-- Of many that use a token at the same time one writes it down.
-- name: touch_token
UPDATE {token_table} SET used_us = {clock} WHERE id = ? AND (used_us IS NULL OR used_us <= {clock} - ?);

-- name: revoke_token
UPDATE {token_table} SET revoked_us = {clock}, revoked_by = ? WHERE name = ? AND revoked_us IS NULL;
