-- +goose Up
-- A job may be open for more files until it is closed or nothing was added for a
-- while (open_for, milliseconds): open_until is when, 0 for a job that is not.
-- name is what its sender calls it, files (a JSON list) its first files, and
-- requester the key that asked for it.
-- Rollback cost: a program of the version before takes open jobs for ended ones.
ALTER TABLE jobs ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN files TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN requester TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN open_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN open_for INTEGER NOT NULL DEFAULT 0;
CREATE INDEX k_job_open ON jobs (open_until) WHERE open_until>0;

-- +goose Down
DROP INDEX k_job_open;
ALTER TABLE jobs DROP COLUMN open_for;
ALTER TABLE jobs DROP COLUMN open_until;
ALTER TABLE jobs DROP COLUMN requester;
ALTER TABLE jobs DROP COLUMN files;
ALTER TABLE jobs DROP COLUMN name;
