-- Adds replays to a record that is still there; adding to one that is gone would leave a stump that is no record.
-- ARGV: replays
if redis.call('HEXISTS', key, 'status') == 1 then
    redis.call('HINCRBY', key, 'replays', ARGV[1])
    redis.call('HSET', key, 'replayed_us', whole(now))
end
return now
