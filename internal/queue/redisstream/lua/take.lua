-- take hands out hints of one tenant under its cap, in the order of lane, phase,
-- place and task. What was published lies in the lanes' streams in the order in
-- which it came; take first sorts that into a set for each lane, and adds what
-- it hands out to the stream again, where it is the consumer's until it acks. A
-- hint whose place is longer ago than the age counts one lane higher. Of the
-- hints of a lane some turns are kept for the bulk and for what has waited
-- longest: see queue.Turns, which has the same ones.
--
-- KEYS[1]  run:{tenant}   SET of task ids handed out and not done
-- KEYS[2]  wait:{tenant}  set when the cap keeps somebody from taking
-- KEYS[3]  turn:{tenant}  HASH lane → hints handed out, modulo the aged turn
-- KEYS[4…] q:{tenant}:p<lane>  stream, w:{tenant}:p<lane>  ZSET of hints that
--          wait, of each lane, first lane first. A score is phase × span + place;
--          a member is task id, cost, kind and ms when it was published
-- ARGV[1]  consumer group
-- ARGV[2]  consumer
-- ARGV[3]  cap
-- ARGV[4]  hints wanted
-- ARGV[5]  age in ms, 0 for never
-- ARGV[6]  hints of a phase that are looked at where kinds are skipped
-- ARGV[7]  span: more than any place in ms
-- ARGV[8]  turns of a lane of which the last is for the bulk
-- ARGV[9]  turns of a lane of which the last is for what is aged
-- ARGV[10] ms by which what begins a document ages later
-- ARGV[11…] kinds to skip
-- returns  {'ok', {index of the lane from 1, entry id, {field, value, …}}, …},
--          the same with 'last' when no more wait and with 'filled' when more
--          wait and the cap allows none of them, {'empty'}, {'capped'}, or
--          {'skipped'} when only skipped kinds wait
local free = tonumber(ARGV[3]) - redis.call('SCARD', KEYS[1])
if free <= 0 then
  redis.call('DEL', KEYS[2]) -- first, since a Redis without memory allows it and then the next
  redis.call('SET', KEYS[2], '1')
  return {'capped'}
end
local group, consumer = ARGV[1], ARGV[2]
local want, age, look, span = math.min(free, tonumber(ARGV[4])), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local lanes, phases, begin, bulk = (#KEYS - 3) / 2, 4, 2, 3
local skip, skipping, skipped = {}, #ARGV > 10, false
for i = 11, #ARGV do
  skip[ARGV[i]] = true
end
local cutoff = 0
if age > 0 then
  local now = redis.call('TIME')
  cutoff = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) - age
end
local function stream(lane)
  return KEYS[2 + 2 * lane]
end
local function waiting(lane)
  return KEYS[3 + 2 * lane]
end

-- phaseOf is that of a hint which a version without phases has published.
local begun = {parse = 1, index = 1, dataflow = 1, finalize = 0}

-- sort moves what the group has not read from a lane's stream to its set.
local function sort(lane)
  local length = redis.call('XLEN', stream(lane))
  if length == 0 then
    return
  end
  local groups, last = redis.pcall('XINFO', 'GROUPS', stream(lane)), nil
  if groups.err then
    return
  end
  for _, g in ipairs(groups) do
    local at = {}
    for i = 1, #g, 2 do
      at[g[i]] = g[i + 1]
    end
    if at['name'] == group and length > at['pending'] then
      last = at['last-delivered-id']
    end
  end
  if not last then
    return
  end
  for _, entry in ipairs(redis.call('XRANGE', stream(lane), '(' .. last, '+')) do
    local f = {}
    for i = 1, #entry[2], 2 do
      f[entry[2][i]] = entry[2][i + 1]
    end
    local phase, place = tonumber(f.p) or begun[f.k] or 2, tonumber(f.w) or tonumber(f.a)
    redis.call('XDEL', stream(lane), entry[1]) -- first, since a Redis without memory allows it and then the next
    redis.call('ZADD', waiting(lane), string.format('%d', phase * span + place), f.t .. ' ' .. f.c .. ' ' .. f.k .. ' ' .. f.a)
  end
end

-- head reads the first hints of a lane and phase, without those of skipped kinds.
local function head(lane, phase)
  local list, count = {at = 1}, want
  if skipping then
    count = look
  end
  local found = redis.call('ZRANGEBYSCORE', waiting(lane), string.format('%d', phase * span), string.format('(%d', (phase + 1) * span),
    'WITHSCORES', 'LIMIT', 0, count)
  for i = 1, #found, 2 do
    local task, cost, kind, at = string.match(found[i], '^(.*) (%d+) (%S*) (%d+)$')
    if skip[kind] then
      skipped = true
    elseif #list < want then
      local score = tonumber(found[i + 1])
      local place = score - phase * span
      local aged = place < cutoff and (phase ~= begin or place < cutoff - tonumber(ARGV[10]))
      list[#list + 1] = {lane = lane, member = found[i], score = score, phase = phase, place = place, aged = aged, task = task, cost = cost, kind = kind, at = at}
    end
  end
  return list
end

local heads = {}
for lane = 1, lanes do
  sort(lane)
  if redis.call('ZCARD', waiting(lane)) > 0 then
    heads[lane] = {}
    for phase = 0, phases - 1 do
      heads[lane][phase] = head(lane, phase)
    end
  end
end

-- first finds the list of a lane whose head comes first by the given order, of
-- those that the lane serves: its own, and those aged of the lane below.
local function first(lane, from, to, aged, before)
  local best
  for l = lane, math.min(lane + 1, lanes) do
    for phase = from, to do
      local list = heads[l] and heads[l][phase]
      local h = list and list[list.at]
      if h and (l == lane and not aged or h.aged) and (not best or before(h, best[best.at])) then
        best = list
      end
    end
  end
  return best
end
local function byScore(a, b)
  return a.score < b.score or a.score == b.score and a.member < b.member
end
local function byPlace(a, b)
  return a.place < b.place
end

local chosen, turns = {}, {}
for lane = 1, lanes do
  local turn
  while #chosen < want do
    -- guard: order: Redis hands out by phase
    local list = first(lane, 0, phases - 1, false, byScore)
    if not list then
      break
    end
    turn = (turn or tonumber(redis.call('HGET', KEYS[3], lane) or '0')) + 1
    -- guard: turns: what is aged is served in Redis
    if turn % tonumber(ARGV[9]) == 0 then
      list = first(lane, 0, phases - 1, true, byPlace) or list
    -- guard: turns: the bulk has its share in Redis
    elseif turn % tonumber(ARGV[8]) == 0 then
      list = first(lane, bulk, bulk, false, byScore) or list
    end
    turn = turn % tonumber(ARGV[9])
    chosen[#chosen + 1] = list[list.at]
    list.at = list.at + 1
  end
  turns[lane] = turn
end

if #chosen == 0 then
  if skipped then
    return {'skipped'}
  end
  return {'empty'}
end
local out, added = {'ok'}, {}
for _, h in ipairs(chosen) do
  redis.call('ZREM', waiting(h.lane), h.member)
  local fields = {'t', h.task, 'c', h.cost, 'k', h.kind, 'a', h.at, 'p', tostring(h.phase), 'w', string.format('%d', h.place)}
  out[#out + 1] = {h.lane, redis.call('XADD', stream(h.lane), '*', unpack(fields)), fields}
  redis.call('SADD', KEYS[1], h.task)
  added[h.lane] = (added[h.lane] or 0) + 1
end
for lane, count in pairs(added) do
  local read = {'XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream(lane), '>'}
  local got = redis.pcall(unpack(read))
  if got and got.err then
    if not string.find(got.err, 'NOGROUP', 1, true) then
      error(got.err)
    end
    redis.call('XGROUP', 'CREATE', stream(lane), group, '0')
    redis.call(unpack(read))
  end
end
for lane, turn in pairs(turns) do
  redis.call('HSET', KEYS[3], lane, turn)
end
local more = 0
for lane = 1, lanes do
  more = more + redis.call('ZCARD', waiting(lane))
end
if more == 0 then
  out[1] = 'last'
elseif #chosen == free then
  -- guard: filled: who fills the cap and leaves hints has the next free place announced
  -- Those whose place it is may serve another tenant then, while others wait. Of
  -- kinds that are skipped here others may take some; a wake-up in vain is one take.
  redis.call('SET', KEYS[2], '1')
  out[1] = 'filled'
end
return out
