-- Deletes a record only if it is settled and expired at this instant: it may have been claimed since it was looked at.
local record = fields('status', 'expires_us')
if not settled[record.status] or tonumber(record.expires_us) > now then
    return 0
end
return redis.call('DEL', key)
