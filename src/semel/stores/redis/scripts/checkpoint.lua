-- Records a finished step under the lease, in the record itself: whoever takes over sees the step or the step's attempt
-- is refused, never neither. The name of the field is the digest of the step, so the same one again adds nothing.
-- ARGV: nonce, fence, field, step
local record = fields('nonce', 'fence', 'status', 'steps')
if not owned(record, ARGV[1], ARGV[2]) or record.status ~= 'running' then
    return 0
end
if redis.call('HEXISTS', key, ARGV[3]) == 0 then
    local steps = whole(tonumber(record.steps or '0') + 1)
    redis.call('HSET', key, ARGV[3], steps .. ':' .. ARGV[4], 'steps', steps, 'updated_us', whole(now))
end
return now
