-- ack removes entries that are spent: right after the claim, since from then on
-- the lease in the database is the only one.
--
-- KEYS[1]  q:{tenant}:p<lane>  stream
-- KEYS[2]  run:{tenant}        SET of task ids handed out and not done
-- KEYS[3]  wait:{tenant}       set when the cap keeps somebody from taking
-- ARGV[1]  consumer group
-- ARGV[2]  1 if the tasks run and keep their places under the cap, else 0
-- ARGV[3…] entry id, task id of each
-- returns  1 if a consumer that waits at the cap may go on, else 0
for i = 3, #ARGV, 2 do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
if ARGV[2] == '1' then
  return 0
end
for i = 4, #ARGV, 2 do
  redis.call('SREM', KEYS[2], ARGV[i])
end
return redis.call('DEL', KEYS[3])
