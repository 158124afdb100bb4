-- Extends a lease only while it is the current one: a worker that was overtaken cannot get its record back.
-- ARGV: nonce, fence, lease_us
local record = fields('nonce', 'fence', 'status')
if not owned(record, ARGV[1], ARGV[2]) or record.status ~= 'running' then
    return 0
end
local till = now + tonumber(ARGV[3])
redis.call('HSET', key, 'lease_us', whole(till), 'updated_us', whole(now))
return till
