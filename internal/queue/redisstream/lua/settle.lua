-- settle brings the charges of pick in line with what was taken, and lets
-- tenants go that have nothing to give.
--
-- KEYS[1]  {sched}:active  ZSET tenant → pass
-- KEYS[2]  {sched}:idle    ZSET tenant → pass of those that left in debt
-- KEYS[3]  {sched}:vt      virtual time
-- KEYS[4]  {sched}:act     HASH tenant → number of its latest activation by a version before
-- KEYS[5]  {sched}:cost    HASH tenant → cost of its latest task
-- KEYS[6]  {sched}:round   HASH tenant → number of its latest activation
-- KEYS[7]  {sched}:bell    LIST of wake-ups
-- KEYS[8]  {sched}:capped  ZSET tenant → pass of those that left at their cap
-- ARGV[1]  stride
-- ARGV[2…] per tenant six: tenant; cost to add to its charge, may be negative;
--          weight; cost of the latest task taken, 0 for none; activation number
--          to let it go, '' to let it stay; '1' if it goes since it is at its cap.
--          A tenant that was activated since has another number and stays: it may
--          have work that the take did not see.
-- returns  the number of tenants that stay, whose turn may be next
redis.call('ZREM', KEYS[2], '') -- frees nothing; see pick on Redis without memory
local vt = tonumber(redis.call('GET', KEYS[3]) or '0')
for i = 2, #ARGV, 6 do
  local tenant, delta, weight, latest, act, capped = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local pass = redis.call('ZSCORE', KEYS[1], tenant)
  if delta ~= 0 then
    local set = pass and KEYS[1] or redis.call('ZSCORE', KEYS[8], tenant) and KEYS[8] or KEYS[2]
    if pass or redis.call('ZSCORE', set, tenant) then
      local new = redis.call('ZINCRBY', set, tonumber(ARGV[1]) * delta / weight, tenant)
      pass = pass and new
    end
  end
  if latest ~= '0' then
    redis.call('HSET', KEYS[5], tenant, latest)
  end
  if act ~= '' and pass and (redis.call('HGET', KEYS[4], tenant) or '') .. '/' .. (redis.call('HGET', KEYS[6], tenant) or '') == act then
    redis.call('ZREM', KEYS[1], tenant)
    redis.call('HDEL', KEYS[4], tenant)
    redis.call('HDEL', KEYS[6], tenant)
    -- guard: fairness: who was kept by its cap is still owed in Redis
    if capped == '1' then
      redis.call('ZADD', KEYS[8], pass, tenant)
    elseif tonumber(pass) > vt then
      redis.call('ZADD', KEYS[2], pass, tenant)
    end
  end
end
local active = redis.call('ZCARD', KEYS[1])
if active == 0 then
  redis.call('DEL', KEYS[7]) -- nobody to wake; whatever comes wakes anew
end
return active
