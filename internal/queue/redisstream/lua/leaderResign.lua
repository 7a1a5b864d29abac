-- leaderResign frees a lease that the token holds.
--
-- KEYS[1] {sched}:leader:<name>  STRING token, with a time to live
-- ARGV[1] token
-- returns 1 if the lease was the token's, else 0
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
