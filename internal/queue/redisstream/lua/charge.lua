-- charge adds to a tenant's pass what a task took beyond its cost. A tenant that has
-- left keeps it as a debt.
--
-- KEYS[1] {sched}:active  ZSET tenant → pass
-- KEYS[2] {sched}:idle    ZSET tenant → pass of those that left in debt
-- KEYS[3] {sched}:vt      virtual time
-- KEYS[4] {sched}:share   HASH tenant → "weight cap"
-- KEYS[5] {sched}:capped  ZSET tenant → pass of those that left at their cap
-- ARGV[1] tenant
-- ARGV[2] pass per unit of weight
redis.call('ZREM', KEYS[2], '') -- frees nothing; see pick on Redis without memory
local weight = tonumber(string.match(redis.call('HGET', KEYS[4], ARGV[1]) or '1', '^%d+'))
local more = tonumber(ARGV[2]) / weight
for _, set in ipairs({KEYS[1], KEYS[5]}) do
  if redis.call('ZSCORE', set, ARGV[1]) then
    redis.call('ZINCRBY', set, more, ARGV[1])
    return 1
  end
end
local vt = tonumber(redis.call('GET', KEYS[3]) or '0')
local debt = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or '0')
redis.call('ZADD', KEYS[2], math.max(vt, debt) + more, ARGV[1])
return 1
