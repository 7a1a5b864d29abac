-- pick chooses whose turn it is, by stride scheduling: the tenant with the least
-- pass is charged what its latest task cost, over its weight. settle corrects
-- the charge once the true cost is known.
--
-- KEYS[1] {sched}:active  ZSET tenant → pass
-- KEYS[2] {sched}:idle    ZSET tenant → pass of those that left in debt
-- KEYS[3] {sched}:vt      virtual time
-- KEYS[4] {sched}:act     HASH tenant → number of its latest activation by a version before
-- KEYS[5] {sched}:share   HASH tenant → "weight cap"
-- KEYS[6] {sched}:cost    HASH tenant → cost of its latest task
-- KEYS[7] {sched}:searched  ZSET tenant → ms when its untimely ends were last looked for
-- KEYS[8] {sched}:bell    LIST of wake-ups
-- KEYS[9] {sched}:round   HASH tenant → number of its latest activation
-- ARGV[1] picks wanted
-- ARGV[2] stride: pass per unit of cost at weight 1
-- ARGV[3] cap of tenants without a share
-- returns per tenant picked five strings: tenant, picks, charge for each pick
--         in units of cost, "weight cap", number of its latest activation
local vt = tonumber(redis.call('GET', KEYS[3]) or '0')
-- Debts that the virtual time has caught up with are none. This comes first
-- because a Redis without memory allows writes after one that frees some.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', vt)

local order, picks, cost, share = {}, {}, {}, {}
for _ = 1, tonumber(ARGV[1]) do
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  local tenant, pass = first[1], tonumber(first[2])
  if not tenant then
    break
  end
  if not picks[tenant] then
    order[#order + 1] = tenant
    picks[tenant] = 0
    cost[tenant] = redis.call('HGET', KEYS[6], tenant) or '1'
    share[tenant] = redis.call('HGET', KEYS[5], tenant) or ('1 ' .. ARGV[3])
  end
  picks[tenant] = picks[tenant] + 1
  local weight = tonumber(string.match(share[tenant], '^%d+'))
  vt = math.max(vt, pass)
  redis.call('ZADD', KEYS[1], pass + tonumber(ARGV[2]) * tonumber(cost[tenant]) / weight, tenant)
end
if #order == 0 then
  redis.call('DEL', KEYS[8]) -- nobody to wake; whatever comes wakes anew
  return {}
end
redis.call('SET', KEYS[3], vt)

local now = redis.call('TIME')
local at = now[1] .. string.format('%03d', math.floor(tonumber(now[2]) / 1000))
local out = {}
for _, tenant in ipairs(order) do
  redis.call('ZADD', KEYS[7], 'NX', at, tenant)
  out[#out + 1] = tenant
  out[#out + 1] = tostring(picks[tenant])
  out[#out + 1] = cost[tenant]
  out[#out + 1] = share[tenant]
  out[#out + 1] = (redis.call('HGET', KEYS[4], tenant) or '') .. '/' .. (redis.call('HGET', KEYS[9], tenant) or '')
end
return out
