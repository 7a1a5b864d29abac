-- leaderAcquire makes a token the holder of a free lease and counts the term.
--
-- KEYS[1] {sched}:leader:<name>  STRING token, with a time to live
-- KEYS[2] {sched}:term:<name>    counter of terms
-- ARGV[1] token
-- ARGV[2] time to live in ms
-- returns 1 if the lease is the token's now, else 0
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  redis.call('INCR', KEYS[2])
  return 1
end
if redis.call('GET', KEYS[1]) == ARGV[1] then -- won before, and the answer was lost
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
