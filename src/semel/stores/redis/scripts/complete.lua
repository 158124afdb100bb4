-- Records a value under the lease: a late worker finds another nonce and changes nothing. Sent again after a lost reply
-- it finds its own completion and answers with the instant of the first time.
-- ARGV: nonce, fence, outcome, channel, digest; with the letters of the record as a second key: the id of one that goes
local record = fields('nonce', 'fence', 'status', 'completed_us', 'expires_us', 'keep_us', 'lease_us', 'wanted')
if not owned(record, ARGV[1], ARGV[2]) then
    return 0
elseif record.status == 'completed' then
    return tonumber(record.completed_us)
elseif record.status ~= 'running' then
    return 0
end
local kept = kept_until(record)
redis.call('HSET', key, 'status', 'completed', 'outcome', ARGV[3], 'updated_us', whole(now),
    'completed_us', whole(now), 'expires_us', whole(kept), 'lease_us', ended_lease(record))
redis.call('HDEL', key, 'error', 'wanted')
if KEYS[2] then
    redis.call('HDEL', KEYS[2], ARGV[6])
end
collect(kept)
tell(record, ARGV[4], ARGV[5])
return now
