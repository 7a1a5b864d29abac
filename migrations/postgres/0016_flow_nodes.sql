-- +goose Up
-- Nodes of flows are tasks of their own. pool names the executors that may run
-- one ('' for all); on_failure says what follows when it has failed for good: ''
-- it is dead, 'skip' and 'default' it is done without an output. A task with a
-- pool has 2 more in paused, so that it is fed to its pool alone. generations.flow
-- is the flow as the plan decided it, as JSON.
-- Rollback cost: a program of the version before runs no task that has a pool.
ALTER TABLE tasks ADD COLUMN pool VARCHAR(64) NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN on_failure VARCHAR(8) NOT NULL DEFAULT '';
ALTER TABLE generations ADD COLUMN flow TEXT;

-- +goose Down
ALTER TABLE generations DROP COLUMN flow;
ALTER TABLE tasks DROP COLUMN on_failure;
ALTER TABLE tasks DROP COLUMN pool;
