-- publish adds hints of one tenant and lane to their stream, as far as the
-- window has room. It makes stream and consumer group anew each time, so that a
-- Redis that has lost its memory heals with the next publish.
--
-- KEYS[1]  q:{tenant}:p<lane>  stream
-- ARGV[1]  consumer group
-- ARGV[2]  window: entries the stream may hold, taken ones included
-- ARGV[3…] task id, cost, kind of each hint
-- returns  the number of hints added, from the front
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
  return made
end
local now = redis.call('TIME')
local at = now[1] .. string.format('%03d', math.floor(tonumber(now[2]) / 1000))
local room = tonumber(ARGV[2]) - redis.call('XLEN', KEYS[1])
local added = 0
for i = 3, #ARGV, 3 do
  if added >= room then
    break
  end
  redis.call('XADD', KEYS[1], '*', 't', ARGV[i], 'c', ARGV[i + 1], 'k', ARGV[i + 2], 'a', at)
  added = added + 1
end
return added
