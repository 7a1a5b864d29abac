-- setShare stores a tenant's weight and cap.
--
-- KEYS[1] {sched}:share  HASH tenant → "weight cap"
-- ARGV[1] tenant
-- ARGV[2] "weight cap"
-- returns 1 if that changed what was known of the tenant, else 0
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known == ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return known and 1 or 0
