-- +goose Up
-- What a saved query was generated from. Code that does not know the column is
-- not disturbed.
-- Rollback cost: generated queries are not told from written ones.
ALTER TABLE saved_queries ADD COLUMN source TEXT COLLATE "C" NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE saved_queries DROP COLUMN source;
