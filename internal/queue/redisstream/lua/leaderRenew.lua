-- leaderRenew extends a lease that the token still holds.
--
-- KEYS[1] {sched}:leader:<name>  STRING token, with a time to live
-- ARGV[1] token
-- ARGV[2] time to live in ms
-- returns 1 if the lease was extended, 0 if it is not the token's any more
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
