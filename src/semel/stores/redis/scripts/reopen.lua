-- Lets a key run again whose failure was final, or that was cancelled: a compare-and-set on the very record that was seen.
-- Whoever claimed it before shows another nonce and changes nothing. Sent again it finds its own nonce.
-- ARGV: nonce, nonce of the record that was seen, note, error where there is none
local record = fields('status', 'nonce', 'retryable', 'fingerprint', 'error', 'lease_us', 'expires_us', 'keep_us',
    'fence', 'attempts')
if not record.status then
    return false
elseif record.nonce == ARGV[1] then
    return { 1, told(true) }
end
local over = record.status == 'cancelled' or (record.status == 'failed' and record.retryable == '0')
if not over or record.nonce ~= ARGV[2] or record.fingerprint == '' then
    return { 0, told(true) }
end
enter(record.fence, 'reopened', record.attempts, whole(now), ARGV[1], 'retryable')
local kept = kept_until(record)
redis.call('HSET', key, 'status', 'failed', 'retryable', '1', 'attempts', '0', 'nonce', ARGV[1], 'resolution', ARGV[3],
    'error', record.error or ARGV[4], 'updated_us', whole(now), 'completed_us', whole(now), 'expires_us', whole(kept),
    'lease_us', ended_lease(record))
local answer = { 1, told(true) }
collect(kept)
return answer
