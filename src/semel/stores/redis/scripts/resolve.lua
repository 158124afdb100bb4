-- Ends a doubt by decision: a compare-and-set on a record that is in doubt at this instant. The new nonce and fence shut
-- out whoever may still be running; sent again it finds its own nonce.
-- ARGV: nonce, status, note, channel, digest, and the outcome where there is one ('1' and its bytes; else '0' and '')
local record = fields('status', 'nonce', 'fence', 'lease_us', 'expires_us', 'keep_us', 'wanted')
if not record.status then
    return false
elseif record.nonce == ARGV[1] then
    return { 1, told(true) }
end
local lapsed = record.status == 'running' and tonumber(record.lease_us) <= now
if not lapsed and record.status ~= 'in_doubt' then
    return { 0, told(true) }
end
local kept = kept_until(record)
redis.call('HSET', key, 'status', ARGV[2], 'retryable', ARGV[2] == 'failed' and '1' or '0', 'nonce', ARGV[1],
    'fence', whole(tonumber(record.fence) + 1), 'doubtful', '0', 'resolution', ARGV[3], 'updated_us', whole(now),
    'completed_us', whole(now), 'expires_us', whole(kept), 'lease_us', ended_lease(record))
if ARGV[6] == '1' then
    redis.call('HSET', key, 'outcome', ARGV[7])
else
    redis.call('HDEL', key, 'outcome')
end
redis.call('HDEL', key, 'wanted')
local answer = { 1, told(true) }
collect(kept)
tell(record, ARGV[4], ARGV[5])
return answer
