-- take reads hints of one tenant under its cap, lane by lane. An entry that has
-- waited longer than the age counts one lane higher. Entries of skipped kinds
-- that stand before wanted ones go to the tail of their stream, in one step
-- with the read; where only skipped ones wait, nothing moves.
--
-- KEYS[1]  run:{tenant}   SET of task ids handed out and not done
-- KEYS[2]  wait:{tenant}  set when the cap kept somebody from taking
-- KEYS[3…] q:{tenant}:p<lane>  streams, first lane first
-- ARGV[1]  consumer group
-- ARGV[2]  consumer
-- ARGV[3]  cap
-- ARGV[4]  hints wanted
-- ARGV[5]  age in ms, 0 for never
-- ARGV[6]  entries that are looked at, where kinds are skipped or old ones come first
-- ARGV[7…] kinds to skip
-- returns  {'ok', {index of the stream from 1, entry id, {field, value, …}}, …},
--          the same with 'last' when no more wait, {'empty'}, {'capped'}, or
--          {'skipped'} when only skipped kinds wait
local room = tonumber(ARGV[3]) - redis.call('SCARD', KEYS[1])
if room <= 0 then
  redis.call('DEL', KEYS[2]) -- first, since a Redis without memory allows it and then the next
  redis.call('SET', KEYS[2], '1')
  return {'capped'}
end
local want, age, look = math.min(room, tonumber(ARGV[4])), tonumber(ARGV[5]), tonumber(ARGV[6])
local skip, skipping, skipped = {}, #ARGV > 6, false
for i = 7, #ARGV do
  skip[ARGV[i]] = true
end
local cutoff = 0
if age > 0 then
  local now = redis.call('TIME')
  cutoff = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) - age
end

local function field(entry, name)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == name then
      return entry[2][i + 1]
    end
  end
  return ''
end

-- undelivered peeks at the first entries that the group has not read yet.
local function undelivered(stream, count)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err then
    return {}
  end
  for _, group in ipairs(groups) do
    local at = {}
    for i = 1, #group, 2 do
      at[group[i]] = group[i + 1]
    end
    if at['name'] == ARGV[1] then
      return redis.call('XRANGE', stream, '(' .. at['last-delivered-id'], '+', 'COUNT', count)
    end
  end
  return {}
end

local out = {'ok'}
local function read(lane, old)
  local stream, need = KEYS[lane + 2], want - (#out - 1)
  local count = need
  if need <= 0 or redis.call('XLEN', stream) == 0 then
    return
  end
  if old then
    -- Only those at the front count: nearly always the first tells that none does.
    local first = undelivered(stream, 1)[1]
    if not first or tonumber(field(first, 'a')) > cutoff then
      return
    end
  end
  if old or skipping then
    local wanted = 0
    count = 0
    for i, entry in ipairs(undelivered(stream, look)) do
      if wanted == need or (old and tonumber(field(entry, 'a')) > cutoff) then
        break
      end
      if skip[field(entry, 'k')] then
        skipped = true
      else
        wanted = wanted + 1
        count = i
      end
    end
    if count == 0 then
      return
    end
  end
  local got = redis.pcall('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count, 'STREAMS', stream, '>')
  if not got then
    return
  end
  if got.err then
    if string.find(got.err, 'NOGROUP', 1, true) then
      return -- the next publish makes it
    end
    error(got.err)
  end
  for _, entry in ipairs(got[1][2]) do
    if skip[field(entry, 'k')] then
      redis.call('XADD', stream, '*', unpack(entry[2]))
      redis.call('XACK', stream, ARGV[1], entry[1])
      redis.call('XDEL', stream, entry[1])
    else
      redis.call('SADD', KEYS[1], field(entry, 't'))
      out[#out + 1] = {lane, entry[1], entry[2]}
    end
  end
end

local lanes = #KEYS - 2
for lane = 1, lanes do
  if age > 0 and lane < lanes then
    read(lane + 1, true)
  end
  read(lane, false)
end
if #out > 1 then
  out[1] = 'last'
  for lane = 1, lanes do
    local length = redis.call('XLEN', KEYS[lane + 2])
    if length > 0 and length > redis.call('XPENDING', KEYS[lane + 2], ARGV[1])[1] then
      out[1] = 'ok'
    end
  end
  return out
elseif skipped then
  return {'skipped'}
end
return {'empty'}
