-- Puts a tombstone in the place of record and epoch, so that nothing is put in for a while, and says for how long
-- there has been one: whoever was told a record before that may keep it for a time that is known.
-- The deletion comes first: it needs no memory, and after it a server that is full does not refuse the rest.
-- ARGV: how long the tombstone stands
local kind, body, ends = cached()
local since, till = now, now + tonumber(ARGV[1])
if kind == 't' then
    since, till = tonumber(body), math.max(ends, till)
end
redis.call('DEL', key)
local refusal = put('t', whole(since), till)
if refusal then
    return refusal
end
return math.max(now - since, 0)
