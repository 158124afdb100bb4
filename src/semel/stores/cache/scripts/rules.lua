local key = KEYS[1]

-- A plain tostring() would round an instant in microseconds to fourteen digits.
local function whole(number)
    return string.format('%.0f', number)
end

-- What is cached: its kind ('1' a record, 'e' an epoch, 't' a tombstone), and its body. What has ended is not there,
-- whether the server has removed it or not. A kind of another release is there, and is not touched.
local function cached()
    local value = redis.call('GET', key)
    if value and (tonumber(string.sub(value, 2, 17)) or 0) > now then
        return string.sub(value, 1, 1), string.sub(value, 18), tonumber(string.sub(value, 2, 17))
    end
end

-- Writes an entry; what it returns is why the server refused, if it did.
local function put(kind, body, ends)
    local said = redis.pcall('SET', key, kind .. string.format('%016.0f', ends) .. body)
    if said.err then
        return said
    end
    collect(ends)
end

-- A server without room that evicts nothing is well, and gives what it has.
local function is_full(refusal)
    return string.find(refusal.err, 'OOM', 1, true) ~= nil
end
