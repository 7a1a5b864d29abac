-- publish adds hints of one tenant and lane to their stream, as far as the
-- window has free capacity. It makes stream and consumer group anew each time, so that a
-- Redis that has lost its memory heals with the next publish.
--
-- KEYS[1]  q:{tenant}:p<lane>  stream
-- KEYS[2]  w:{tenant}:p<lane>  ZSET of hints that wait, as take has sorted them
-- ARGV[1]  consumer group
-- ARGV[2]  window: entries the stream may hold, taken ones included, with those
--          that wait in the phases of the hints; finish and ranges, which are
--          short, may come on top of a window that is full of others
-- ARGV[3]  score from which the hints of one phase wait, as take has it
-- ARGV[4…] task id, cost, kind, phase, place in ms of each hint
-- returns  the number of hints added, from the front
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
  return made
end
local now = redis.call('TIME')
local at = now[1] .. string.format('%03d', math.floor(tonumber(now[2]) / 1000))
local window, span = tonumber(ARGV[2]), tonumber(ARGV[3])
local held = redis.call('XLEN', KEYS[1])
local free = {}
local function freeOf(phase)
  local first, last = phase, phase
  if phase <= 1 then
    first, last = 0, 1
  end
  if not free[last] then
    local waiting = redis.call('ZCOUNT', KEYS[2], first * span, '(' .. string.format('%d', (last + 1) * span))
    free[last] = window - waiting - held
    -- guard: window: the ends of documents have capacity beside plans
    if last == 1 then
      free[last] = math.min(window - waiting, 2 * window - waiting - held)
    end
  end
  return last
end
local added = 0
for i = 4, #ARGV, 5 do
  local of = freeOf(tonumber(ARGV[i + 3]))
  if free[of] <= 0 then
    break
  end
  redis.call('XADD', KEYS[1], '*', 't', ARGV[i], 'c', ARGV[i + 1], 'k', ARGV[i + 2], 'a', at, 'p', ARGV[i + 3], 'w', ARGV[i + 4])
  for phase, left in pairs(free) do
    free[phase] = left - 1
  end
  added = added + 1
end
return added
