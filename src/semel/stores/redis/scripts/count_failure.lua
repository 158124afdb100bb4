-- Counts an attempt that was rolled back with its caller's transaction. A record that is running, in doubt, settled for
-- good or another request's is left alone. Sent again it finds its own nonce.
-- ARGV: fingerprint, nonce, keep_us, in_doubt, reconcile_after_us, key, about, error, how many attempts there may be ('' for any);
-- with the letters of the record as a second key what is kept where the failure is final: id, mark, how long, and the letter
local seen = fields('status', 'nonce', 'fingerprint', 'retryable', 'expires_us', 'keep_us', 'lease_us', 'fence', 'attempts')
local status = seen.status
if not status and redis.call('EXISTS', key) == 1 then
    return redis.error_reply('UNREADABLE the key holds a hash that is no record')
elseif status == 'failed' and seen.nonce == ARGV[2] then
    return { 1, told(true) }
end

local function write(attempts, kept, lease, ...)
    local most = tonumber(ARGV[9])
    local final = most and attempts >= most
    if final and KEYS[2] then
        kept = math.max(kept, put_letter(KEYS[2], ARGV[10], ARGV[11], ARGV[12], ARGV[13]))
    end
    local fence = whole(tonumber(seen.fence or '0') + 1)
    enter(fence, 'attempt', whole(attempts), whole(now), ARGV[2], final and 'failed' or 'retryable', ARGV[8])
    redis.call('HSET', key, 'status', 'failed', 'retryable', final and '0' or '1', 'fence', fence, 'nonce', ARGV[2], 'lease_us', lease, 'attempts', whole(attempts),
        'error', ARGV[8], 'started_us', whole(now), 'updated_us', whole(now), 'completed_us', whole(now),
        'expires_us', whole(kept), ...)
    local answer = { 1, told(true) }
    collect(kept)
    return answer
end

if status and not (settled[status] and tonumber(seen.expires_us) <= now) then
    if status ~= 'failed' or seen.retryable ~= '1' or seen.fingerprint ~= ARGV[1] then
        return { 0, told(true) }
    end
    return write(tonumber(seen.attempts) + 1, kept_until(seen), ended_lease(seen))
end
redis.call('DEL', key)
return write(1, now + tonumber(ARGV[3]), whole(now), 'fingerprint', ARGV[1], 'keep_us', ARGV[3], 'in_doubt_policy', ARGV[4],
    'reconcile_after_us', ARGV[5], 'key', ARGV[6], 'about', ARGV[7], 'doubtful', '0', 'created_us', whole(now),
    'replays', '0')
