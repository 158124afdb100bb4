-- The arbiter. Judging and writing are one step at one instant, so of two claims that meet exactly one sees the record
-- without the other's. The answer is the record as it is afterwards: a claim sent again finds its own nonce there.
-- ARGV: fingerprint, nonce, lease_us, keep_us, in_doubt, reconcile_after_us, key, about
local seen = fields('status', 'nonce', 'fingerprint', 'expires_us', 'retryable', 'doubtful', 'lease_us',
    'in_doubt_policy', 'reconcile_after_us', 'fence', 'attempts', 'started_us')
local status, mine = seen.status, ARGV[2]

local function may_take_over()
    local owner, claimer = seen.in_doubt_policy, ARGV[5]
    if owner == 'hold' or claimer == 'hold' then
        return false
    elseif claimer == 'reconcile' then
        local quiet = math.max(tonumber(seen.reconcile_after_us), tonumber(ARGV[6]))
        return tonumber(seen.lease_us) + quiet <= now
    end
    return owner == 'rerun'
end

-- A record of a live lease, of another request, or with its answer is not won; nor is a word that is not known.
local function winnable()
    if seen.fingerprint ~= ARGV[1] or (status == 'running' and seen.nonce == mine) then
        return false
    elseif settled[status] then
        return seen.retryable == '1' and (seen.doubtful == '0' or may_take_over())
    elseif status == 'running' then
        return tonumber(seen.lease_us) <= now and may_take_over()
    end
    return status == 'in_doubt' and may_take_over()
end

local function write(attempts, doubtful, ...)
    redis.call('HSET', key, 'status', 'running', 'retryable', '0', 'fingerprint', ARGV[1],
        'fence', whole(tonumber(seen.fence or '0') + 1), 'nonce', mine, 'lease_us', whole(now + tonumber(ARGV[3])),
        'in_doubt_policy', ARGV[5], 'reconcile_after_us', ARGV[6], 'doubtful', doubtful, 'attempts', whole(attempts),
        'about', ARGV[8], 'started_us', whole(now), 'updated_us', whole(now),
        'expires_us', whole(now + tonumber(ARGV[4])), 'keep_us', ARGV[4], 'replays', '0', ...)
end

if not status then
    if redis.call('EXISTS', key) == 1 then
        return redis.error_reply('UNREADABLE the key holds a hash that is no record')
    end
    write(1, '0', 'key', ARGV[7], 'created_us', whole(now))
    return now
end
if settled[status] and tonumber(seen.expires_us) <= now then
    redis.call('DEL', key)
    write(1, '0', 'key', ARGV[7], 'created_us', whole(now))
elseif winnable() then
    if status == 'running' then
        enter(seen.fence, 'taken_over', seen.attempts, seen.started_us, seen.nonce, 'in_doubt')
    end
    local doubtful = (seen.doubtful == '1' or not settled[status]) and '1' or '0'
    write(tonumber(seen.attempts) + 1, doubtful)
    redis.call('HDEL', key, 'outcome', 'completed_us', 'replayed_us')
    redis.call('PERSIST', key)
    return told(true)
end
return told(status == 'running' and seen.nonce == mine)
