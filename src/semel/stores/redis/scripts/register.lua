-- Notes a worker; it started when it was first noted, and is forgotten by itself some time after it was last noted.
-- ARGV: host, pid, version, how long it is known in microseconds
redis.call('HSETNX', key, 'started_us', whole(now))
redis.call('HSET', key, 'host', ARGV[1], 'pid', ARGV[2], 'version', ARGV[3])
collect(now + tonumber(ARGV[4]))
return now
