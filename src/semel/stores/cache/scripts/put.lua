-- A compare-and-set on the epoch: whoever read the store before an invalidation shows an epoch that it removed.
-- Answers 1: done, 0: not under this epoch, 2: no room.
-- ARGV: epoch, when the record ends, the record
local kind, body = cached()
local ends = tonumber(ARGV[2])
if kind ~= 'e' or body ~= ARGV[1] or ends <= now then
    return 0
end
local refusal = put('1', ARGV[3], ends)
if refusal then
    return is_full(refusal) and 2 or refusal
end
return 1
