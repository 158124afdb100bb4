-- Deletes a letter of its consumer. ARGV: id, whose it is
local value = redis.call('HGET', key, ARGV[1])
if not value or string.match(value, '^%d+:%d+:%d+:%d+:[^:]*:([^:]*):') ~= ARGV[2] then
    return false
end
redis.call('HDEL', key, ARGV[1])
return { ARGV[1], value }
