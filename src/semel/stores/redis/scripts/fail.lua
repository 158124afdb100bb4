-- Records an end without a value under the lease. The same end again is known by its error; any other comes too late.
-- ARGV: nonce, fence, ending, error, doubtful, unstarted, channel, digest; with the letters of the record as a second key:
-- id, mark, how long it is kept, and the letter. The record is kept for at least as long.
local record = fields('nonce', 'fence', 'status', 'error', 'updated_us', 'attempts', 'expires_us', 'keep_us',
    'lease_us', 'wanted', 'started_us')
if not owned(record, ARGV[1], ARGV[2]) or record.status == 'completed' then
    return 0
elseif record.status ~= 'running' then
    return record.error == ARGV[4] and tonumber(record.updated_us) or 0
end
local ending = ARGV[3]
local attempts = math.max(tonumber(record.attempts) - tonumber(ARGV[6]), 0)
if ARGV[6] == '0' then
    local ends = { final = 'failed', retry = 'retryable', doubt = 'in_doubt' }
    enter(record.fence, 'attempt', record.attempts, record.started_us, record.nonce, ends[ending], ARGV[4])
end
local lasting = KEYS[2] and put_letter(KEYS[2], ARGV[9], ARGV[10], ARGV[11], ARGV[12]) or 0
local changes = { 'error', ARGV[4], 'doubtful', ARGV[5], 'attempts', whole(attempts), 'updated_us', whole(now),
    'lease_us', ended_lease(record) }
if ending == 'doubt' then
    redis.call('HSET', key, 'status', 'in_doubt', unpack(changes))
    if lasting > tonumber(record.expires_us) then
        redis.call('HSET', key, 'expires_us', whole(lasting))
    end
    redis.call('HDEL', key, 'wanted')
else
    local kept = math.max(kept_until(record), lasting)
    redis.call('HSET', key, 'status', 'failed', 'retryable', ending == 'retry' and '1' or '0',
        'completed_us', whole(now), 'expires_us', whole(kept), unpack(changes))
    redis.call('HDEL', key, 'wanted')
    collect(kept)
end
tell(record, ARGV[7], ARGV[8])
return now
