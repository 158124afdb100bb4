-- Reads the record and the clock in one step. Whoever waits leaves word in the same step: an end before it is read, an
-- end after it is told, so none falls in between. ARGV: whether somebody waits
local status = redis.call('HGET', key, 'status')
if not status then
    if redis.call('EXISTS', key) == 1 then
        return redis.error_reply('UNREADABLE the key holds a hash that is no record')
    end
    return now
end
if ARGV[1] == '1' and status == 'running' then
    redis.call('HSET', key, 'wanted', '1')
end
return told(true)
