local key = KEYS[1]
local settled = { completed = true, failed = true, cancelled = true }

-- A plain tostring() would round an instant in microseconds to fourteen digits.
local function whole(number)
    return string.format('%.0f', number)
end

-- Fields of the record by name; those that are absent are false.
local function fields(...)
    local found = {}
    for place, value in ipairs(redis.call('HMGET', key, ...)) do
        found[select(place, ...)] = value
    end
    return found
end

-- The record as it is now, the instant, and the finished steps where they are wanted.
local function told(with_steps)
    local record = redis.call('HMGET', key, {fields})
    local steps = record[#record]
    record[#record + 1] = whole(now)
    if with_steps and steps then
        local all = redis.call('HGETALL', key)
        for place = 1, #all, 2 do
            if string.sub(all[place], 1, 5) == 'step:' then
                record[#record + 1] = all[place + 1]
            end
        end
    end
    return record
end

-- The fence that keeps late workers out: nonce and fence of the lease shown are those of the record as it is now.
local function owned(record, nonce, fence)
    return record.nonce == nonce and record.fence == fence
end

-- When an outcome recorded now expires. A run that used up most of its time is given all of it again.
local function kept_until(record)
    local expires, keep = tonumber(record.expires_us), tonumber(record.keep_us)
    return expires - now > math.floor(keep / 2) and expires or now + keep
end

local function ended_lease(record)
    return whole(math.min(tonumber(record.lease_us), now))
end

-- At most 200 bytes, and no half of a character.
local function brief(text)
    local stop = 200
    if #text <= stop then
        return text
    end
    while stop > 0 and bit.band(string.byte(text, stop + 1), 0xC0) == 0x80 do
        stop = stop - 1
    end
    return string.sub(text, 1, stop)
end

-- Enters into the history, in fields of the record itself: whatever removes the record removes them. The newest 20 stay.
local function enter(fence, kind, number, started, nonce, ending, error, ended)
    local last = redis.call('HINCRBY', key, 'entries', 1)
    local digits = string.gsub(nonce, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
    local pair = error and cmsgpack.unpack(error)
    local text = table.concat({ fence, kind, number, started, ended or whole(now), digits, ending }, ':')
    redis.call('HSET', key, 'entry:' .. whole(last),
        text .. ':' .. (pair and cmsgpack.pack({ brief(pair[1]), brief(pair[2]) }) or ''))
    redis.call('HDEL', key, 'entry:' .. whole(last - 20))
end

-- Whoever waits is told. The reply is not looked at: a user who may not publish must not fail a completion.
local function tell(record, channel, digest)
    if record.wanted then
        redis.pcall('PUBLISH', channel, digest)
    end
end

-- Dead letters of a record are in a hash of their own, in the slot of the record: a field for each, by its id. A value is
-- when it was first and last seen, how often, until when it is kept, why it is there, and whose it is; then the letter.
-- Answers until when it is kept.
local function put_letter(letters, id, mark, keep, packed)
    local first, seen = whole(now), 1
    local before = redis.call('HGET', letters, id)
    if before then
        local since, times = string.match(before, '^(%d+):%d+:(%d+):')
        first, seen = since, tonumber(times) + 1
    end
    local expires = now + tonumber(keep)
    redis.call('HSET', letters, id, table.concat({ first, whole(now), whole(seen), whole(expires), mark, packed }, ':'))
    local left = redis.call('PTTL', letters)
    if left < 0 or now / 1000 + left < expires / 1000 then
        collect(expires, letters)
    end
    return expires
end

-- Somebody decided what becomes of a record: the letters of its event have served.
local function close_letters(letters)
    for _, id in ipairs(redis.call('HKEYS', letters)) do
        local value = redis.call('HGET', letters, id)
        if string.match(value, '^%d+:%d+:%d+:%d+:([^:]*):') ~= 'reused' then
            redis.call('HDEL', letters, id)
        end
    end
end
