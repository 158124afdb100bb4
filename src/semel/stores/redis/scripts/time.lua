-- The server's clock, read once: lease and expiry are compared with the same instant that is written.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- Only rubbish collection: every script compares the instant by itself, so a late removal changes no answer.
local function collect(expires, name)
    redis.call('PEXPIREAT', name or KEYS[1], string.format('%.0f', math.ceil(expires / 1000)))
end
