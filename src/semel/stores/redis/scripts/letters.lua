-- All letters of a record.
return redis.call('HGETALL', key)
