-- A compare-and-set on the epoch: whoever read the store before a drop shows an epoch that the drop removed.
-- ARGV: epoch, when the record ends, the record
local kind, body = cached()
local ends = tonumber(ARGV[2])
if kind ~= 'e' or body ~= ARGV[1] or ends <= now then
    return 0
end
put('1', ARGV[3], ends)
return 1
