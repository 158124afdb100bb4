-- Keeps a letter, or sees it once more. The key is that of the letters. ARGV: id, mark, how long it is kept, the letter
put_letter(key, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return { ARGV[1], redis.call('HGET', key, ARGV[1]) }
