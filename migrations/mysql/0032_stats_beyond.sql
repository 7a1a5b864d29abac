-- +goose Up
-- What fairness charged for the tasks of a minute in addition to their pages, since
-- they took more processor time. Code that does not know the column writes 0.
-- Rollback cost: the fairness index counts pages of the last minutes alone.
ALTER TABLE stats_minutes ADD COLUMN beyond BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE stats_minutes DROP COLUMN beyond;
