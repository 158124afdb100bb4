-- Gives the record, or the epoch under which one may be put in: the one that stands, else the caller's, placed in the
-- same step, so that an invalidation after it is noticed by the put. Behind a tombstone there is none, nor where there is no room.
-- ARGV: epoch, how long it stands
local kind, body, ends = cached()
if kind == '1' then
    return { 1, body, now, ends - now }
elseif kind == 'e' then
    return { 0, body, now, 0 }
elseif kind then
    return { 0, '', now, 0 }
end
local refusal = put('e', ARGV[1], now + tonumber(ARGV[2]))
if refusal then
    return is_full(refusal) and { 0, '', now, 0 } or refusal
end
return { 0, ARGV[1], now, 0 }
