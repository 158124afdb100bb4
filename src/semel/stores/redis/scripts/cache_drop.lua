-- Puts a tombstone in the place of record and epoch, so that nothing is filled in for a while, and says for how long
-- there has been one: whoever was told a record before that may keep it for a time that is known.
-- ARGV: how long the tombstone stands
local kind, body = cached()
if kind == 't' then
    return math.max(now - tonumber(body), 0)
end
put('t', whole(now), now + tonumber(ARGV[1]))
return 0
