-- due lists tenants whose streams shall be searched for entries that were taken
-- and forgotten, and marks them as searched now, so that several searchers
-- divide the work and a search that breaks off is made good by the next.
--
-- KEYS[1] {sched}:searched  ZSET tenant → ms when it was last searched, or first picked
-- ARGV[1] ms since then
-- ARGV[2] tenants at most
-- returns tenants
local now = redis.call('TIME')
local ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ms - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
redis.call('ZREM', KEYS[1], '') -- frees nothing; see pick on Redis without memory
for _, tenant in ipairs(due) do
  redis.call('ZADD', KEYS[1], 'XX', ms, tenant)
end
return due
