-- +goose Up
-- Why an evaluation ran, and what the dataset was like. Code that does not know
-- the columns is not disturbed.
-- Rollback cost: evaluations do not say why they ran, and run once more.
ALTER TABLE evaluations ADD COLUMN cause VARCHAR(64) NOT NULL DEFAULT '';
ALTER TABLE evaluations ADD COLUMN state VARCHAR(1024) NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE evaluations DROP COLUMN state;
ALTER TABLE evaluations DROP COLUMN cause;
