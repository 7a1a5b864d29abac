-- searched drops a tenant from those to be searched, nothing of it being taken.
-- A tenant that is active stays, since somebody may be about to take: one that
-- is not gets here again by being activated and picked.
--
-- KEYS[1] {sched}:searched  ZSET tenant → ms when it was last searched, or first picked
-- KEYS[2] {sched}:active    ZSET tenant → pass
-- ARGV[1] tenant
-- returns 1 if it was dropped, else 0
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return 0
end
return redis.call('ZREM', KEYS[1], ARGV[1])
