-- Ends a doubt by decision: a compare-and-set on a record that is in doubt at this instant. The new nonce and fence shut
-- out whoever may still be running; sent again it finds its own nonce.
-- With a nonce to correct, it replaces the outcome of the very record that was seen, unless its content was erased since.
-- ARGV: nonce, status, note, channel, digest, and the outcome where there is one ('1' and its bytes; else '0' and ''),
-- the nonce to correct ('' for none), the error of a failure for good ('' for none), whether a live lease is ended,
-- and the fence that was seen ('-1' for any): what has gone on since is left alone
local record = fields('status', 'nonce', 'fence', 'lease_us', 'expires_us', 'keep_us', 'wanted', 'fingerprint',
    'attempts', 'started_us', 'completed_us', 'decided')
if not record.status then
    return false
elseif record.nonce == ARGV[1] then
    return { 1, told(true) }
end
local allowed
if ARGV[8] == '' then
    local lapsed = record.status == 'running' and (ARGV[10] == '1' or tonumber(record.lease_us) <= now)
    allowed = lapsed or record.status == 'in_doubt'
else
    local seen = record.status == 'completed' and record.nonce == ARGV[8]
    allowed = seen and ARGV[2] == 'completed' and record.fingerprint ~= ''
end
if not allowed or (ARGV[11] ~= '-1' and ARGV[11] ~= record.fence) then
    return { 0, told(true) }
end
-- What only the record knew so far: an attempt that runs, or one whose value is replaced.
if record.status == 'running' then
    enter(record.fence, 'attempt', record.attempts, record.started_us, record.nonce, 'in_doubt')
elseif record.status == 'completed' and record.decided ~= record.fence then
    enter(record.fence, 'attempt', record.attempts, record.started_us, record.nonce, 'completed', nil, record.completed_us)
end
local fence = whole(tonumber(record.fence) + 1)
local ending = (ARGV[2] == 'failed' and ARGV[9] == '') and 'retryable' or ARGV[2]
enter(fence, 'resolved', record.attempts, whole(now), ARGV[1], ending, ARGV[9] ~= '' and ARGV[9] or nil)
local kept = kept_until(record)
if ending ~= 'retryable' then -- else nobody but the letter may have the event that may run now
    close_letters(KEYS[2])
end
redis.call('HSET', key, 'decided', fence)
redis.call('HSET', key, 'status', ARGV[2], 'retryable',
    ARGV[2] == 'failed' and ARGV[9] == '' and '1' or '0', 'nonce', ARGV[1],
    'fence', fence, 'doubtful', '0', 'resolution', ARGV[3], 'updated_us', whole(now),
    'completed_us', whole(now), 'expires_us', whole(kept), 'lease_us', ended_lease(record))
if ARGV[6] == '1' then
    redis.call('HSET', key, 'outcome', ARGV[7])
else
    redis.call('HDEL', key, 'outcome')
end
if ARGV[9] ~= '' then
    redis.call('HSET', key, 'error', ARGV[9])
end
redis.call('HDEL', key, 'wanted')
local answer = { 1, told(true) }
collect(kept)
tell(record, ARGV[4], ARGV[5])
return answer
