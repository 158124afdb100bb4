-- Reads the record and its history in one step.
if not redis.call('HGET', key, 'status') then
    return now
end
local entries = {}
local all = redis.call('HGETALL', key)
for place = 1, #all, 2 do
    if string.sub(all[place], 1, 6) == 'entry:' then
        entries[#entries + 1] = string.sub(all[place], 7) .. ':' .. all[place + 1]
    end
end
return { told(true), entries }
