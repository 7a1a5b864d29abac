-- ack removes an entry that is spent: right after the claim, since from then on
-- the lease in the database is the only one.
--
-- KEYS[1] q:{tenant}:p<lane>  stream
-- KEYS[2] run:{tenant}        SET of task ids handed out and not done
-- KEYS[3] wait:{tenant}       set when the cap kept somebody from taking
-- ARGV[1] consumer group
-- ARGV[2] entry id
-- ARGV[3] task id
-- ARGV[4] 1 if the task runs and keeps its place under the cap, else 0
-- returns 1 if there is room for somebody whom the cap kept waiting, else 0
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
if ARGV[4] == '1' then
  return 0
end
redis.call('SREM', KEYS[2], ARGV[3])
return redis.call('DEL', KEYS[3])
