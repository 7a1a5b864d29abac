-- activate puts a tenant that may have work among those that are picked from:
-- at the virtual time if it owes nothing, so that nobody saves up while idle,
-- else at its old pass, so that nobody sheds a debt by going empty. One that left
-- at its cap had work all the time, and returns at its old pass.
--
-- KEYS[1] {sched}:active  ZSET tenant → pass
-- KEYS[2] {sched}:idle    ZSET tenant → pass of those that left in debt
-- KEYS[3] {sched}:vt      virtual time
-- KEYS[4] {sched}:act     HASH tenant → the same by a version before
-- KEYS[5] {sched}:seq     counter of activations
-- KEYS[6] {sched}:known   SET of tenants
-- KEYS[7] {sched}:bell    LIST of wake-ups
-- KEYS[8] {sched}:round   HASH tenant → number of its latest activation, which
--         KEYS[4] is to executors of a version that sees only what is in the
--         streams: without a number there they let no tenant go that has more
-- KEYS[9] {sched}:capped  ZSET tenant → pass of those that left at their cap
-- ARGV[1] tenant
-- ARGV[2] wake-ups, 0–64
-- ARGV[3] how far behind the virtual time one that left at its cap may return
-- returns 1 if the tenant was not active, else 0
local debt = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or '0')
local capped = redis.call('ZSCORE', KEYS[9], ARGV[1])
-- The first write must be one that a Redis without memory allows: it then
-- allows those that follow, and tasks can go on to be taken and end.
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[9], ARGV[1])
local joined = 0
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local vt = tonumber(redis.call('GET', KEYS[3]) or '0')
  local pass = math.max(vt, debt)
  if capped then
    pass = math.max(vt - tonumber(ARGV[3]), tonumber(capped))
  end
  redis.call('ZADD', KEYS[1], pass, ARGV[1])
  joined = 1
end
-- guard: order: executors of a version before let no tenant go
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('HSET', KEYS[8], ARGV[1], redis.call('INCR', KEYS[5]))
redis.call('SADD', KEYS[6], ARGV[1])
for _ = 1, tonumber(ARGV[2]) do
  redis.call('LPUSH', KEYS[7], '1')
end
redis.call('LTRIM', KEYS[7], 0, 63)
return joined
