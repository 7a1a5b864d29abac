-- dropConsumer gives back what a consumer took and did not ack, to the tail of
-- the stream, and then removes the consumer. XGROUP DELCONSUMER alone would
-- destroy its pending entries for good.
--
-- KEYS[1] q:{tenant}:p<lane>  stream
-- KEYS[2] run:{tenant}        SET of task ids handed out and not done
-- ARGV[1] consumer group
-- ARGV[2] consumer
-- ARGV[3] entries to give back at most
-- returns {entries given back, 1 if the consumer is gone else 0}
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[3], ARGV[2])
if pending.err then
  if string.find(pending.err, 'NOGROUP', 1, true) then
    return {0, 1}
  end
  return pending
end
local back = 0
for _, item in ipairs(pending) do
  local entry = redis.call('XRANGE', KEYS[1], item[1], item[1])[1]
  redis.call('XACK', KEYS[1], ARGV[1], item[1])
  if entry then
    redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
    redis.call('XDEL', KEYS[1], item[1])
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 't' then
        redis.call('SREM', KEYS[2], entry[2][i + 1])
      end
    end
    back = back + 1
  end
end
if #pending == tonumber(ARGV[3]) then
  return {back, 0}
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return {back, 1}
