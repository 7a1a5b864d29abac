-- +goose NO TRANSACTION
-- +goose Up
-- A job may be open for more files until it is closed or nothing was added for a
-- while (open_for, milliseconds): open_until is when, 0 for a job that is not.
-- name is what its sender calls it, files (a JSON list) its first files, and
-- requester the key that asked for it.
-- Rollback cost: a program of the version before takes open jobs for ended ones.
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS name VARCHAR(512) NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS files VARCHAR(1024) NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS requester VARCHAR(255) NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS open_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS open_for BIGINT NOT NULL DEFAULT 0;
DROP INDEX CONCURRENTLY IF EXISTS k_job_open;
CREATE INDEX CONCURRENTLY k_job_open ON jobs (open_until) WHERE open_until>0;

-- +goose Down
DROP INDEX CONCURRENTLY k_job_open;
ALTER TABLE jobs DROP COLUMN open_for;
ALTER TABLE jobs DROP COLUMN open_until;
ALTER TABLE jobs DROP COLUMN requester;
ALTER TABLE jobs DROP COLUMN files;
ALTER TABLE jobs DROP COLUMN name;
