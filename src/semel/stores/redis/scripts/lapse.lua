-- Marks a record only if its lease is over at this instant: it may have been renewed since it was looked at. Answers with
-- the texts of its key, and how long ago the attempt began.
-- ARGV: error
local record = fields('status', 'lease_us', 'fence', 'nonce', 'attempts', 'started_us', 'key')
if record.status ~= 'running' or tonumber(record.lease_us) > now then
    return 0
end
redis.call('HSET', key, 'status', 'in_doubt', 'error', ARGV[1], 'doubtful', '1', 'updated_us', whole(now))
enter(record.fence, 'attempt', record.attempts, record.started_us, record.nonce, 'in_doubt', ARGV[1])
return {record.key, whole(now - tonumber(record.started_us))}
