-- done frees the places of tasks under their tenant's cap.
--
-- KEYS[1]  run:{tenant}   SET of task ids handed out and not done
-- KEYS[2]  wait:{tenant}  set when the cap keeps somebody from taking
-- ARGV[1…] task ids
-- returns  1 if a consumer that waits at the cap may go on, else 0
for i = 1, #ARGV do
  redis.call('SREM', KEYS[1], ARGV[i])
end
return redis.call('DEL', KEYS[2])
