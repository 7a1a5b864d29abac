-- +goose Up
-- What programs store with datasets and documents: a JSON object, '' for none.
-- Columns with defaults: code that does not know them leaves them alone.
-- Rollback cost: what programs stored is forgotten.
ALTER TABLE datasets ADD COLUMN attributes MEDIUMTEXT NOT NULL DEFAULT ('');
ALTER TABLE documents ADD COLUMN attributes MEDIUMTEXT NOT NULL DEFAULT ('');

-- +goose Down
ALTER TABLE documents DROP COLUMN attributes;
ALTER TABLE datasets DROP COLUMN attributes;
