-- +goose NO TRANSACTION
-- +goose Up
-- What a task is served by within its tenant and lane, instead of the time from
-- which it may run: its phase (0 finish, 1 ranges, 2 begin, 3 bulk), then its
-- place (the queue time of its document's job, in ms), then its id. Tasks that
-- may still run get both. Code of the version before writes neither: what it
-- spawns is of phase 2 and place 0, which counts from run_at, and is served
-- before the plans. It still finds the feed by the first columns of k_feed, and
-- sorts what it finds.
-- The index is built while a fleet works, before the one that it replaces goes. Each
-- statement may be repeated, so that a migration that was broken off runs again.
-- Rollback cost: the index is built anew.
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS phase SMALLINT NOT NULL DEFAULT 2;
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS place BIGINT NOT NULL DEFAULT 0;
DROP INDEX CONCURRENTLY IF EXISTS k_feed_next;
CREATE INDEX CONCURRENTLY k_feed_next ON tasks (state, paused, tenant_id, lane, phase, place, id);
DROP INDEX CONCURRENTLY IF EXISTS k_feed;
ALTER INDEX k_feed_next RENAME TO k_feed;
UPDATE tasks SET phase=CASE kind WHEN 'finalize' THEN 0 WHEN 'parse' THEN 1 WHEN 'index' THEN 1 WHEN 'dataflow' THEN 1 ELSE 2 END,
  place=COALESCE((SELECT j.created_at FROM jobs j WHERE j.id=tasks.job_id), run_at)
  WHERE state NOT IN ('done','superseded');
UPDATE tasks SET phase=3 WHERE phase=1 AND state NOT IN ('done','superseded') AND (doc_id, gen) IN (
  SELECT doc_id, gen FROM tasks WHERE state NOT IN ('done','superseded') AND kind IN ('parse','index','dataflow') GROUP BY doc_id, gen HAVING COUNT(*)>32);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS k_feed;
CREATE INDEX CONCURRENTLY k_feed ON tasks (state, paused, tenant_id, lane, run_at, id);
ALTER TABLE tasks DROP COLUMN place;
ALTER TABLE tasks DROP COLUMN phase;
