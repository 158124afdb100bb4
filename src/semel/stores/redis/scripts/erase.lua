-- Takes out of a record that is settled at this instant what may be personal. Nothing that shuts the key changes, nor
-- when the server removes it. Sent again it leaves the same.
-- ARGV: note, tombstone, failure
local record = fields('status', 'key', 'fence', 'attempts', 'fingerprint')
if not record.status then
    return false
elseif not settled[record.status] then
    return { 0, told(true) }
end
redis.call('DEL', KEYS[2])
local texts = cmsgpack.unpack(record.key)
redis.call('HSET', key, 'key', cmsgpack.pack({ '', texts[2], '' }), 'fingerprint', '', 'retryable', '0', 'doubtful', '0', 'about', '',
    'resolution', ARGV[1])
redis.call('HDEL', key, 'steps', 'error')
for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 5) == 'step:' then
        redis.call('HDEL', key, field)
    elseif string.sub(field, 1, 6) == 'entry:' then
        local entry = redis.call('HGET', key, field)
        local plain = string.match(entry, '^[^:]*:[^:]*:[^:]*:[^:]*:[^:]*:[^:]*:[^:]*:')
        if plain ~= entry then
            redis.call('HSET', key, field, plain .. ARGV[3])
        end
    end
end
if record.fingerprint ~= '' then
    enter(record.fence, 'erased', record.attempts, whole(now), '', '')
end
if record.status == 'completed' then
    redis.call('HSET', key, 'outcome', ARGV[2])
elseif record.status == 'failed' then
    redis.call('HSET', key, 'error', ARGV[3])
end
return { 1, told(false) }
