-- The event of a record was delivered again: its oldest letter was seen once more. ARGV: whose it is
local found, oldest, rest
for _, id in ipairs(redis.call('HKEYS', key)) do
    local value = redis.call('HGET', key, id)
    local first, times, more, reason, owner = string.match(value, '^(%d+):%d+:(%d+):(%d+:([^:]*):([^:]*):.*)$')
    if owner == ARGV[1] and reason ~= 'reused' and (not found or tonumber(first) < tonumber(oldest)) then
        found, oldest, rest = id, first, whole(tonumber(times) + 1) .. ':' .. more
    end
end
if not found then
    return false
end
redis.call('HSET', key, found, oldest .. ':' .. whole(now) .. ':' .. rest)
return { found, redis.call('HGET', key, found) }
