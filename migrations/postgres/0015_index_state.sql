-- +goose Up
-- Which index is searched, which model made it, and how far the one beside it is
-- filled: one row, changed only by whoever read its version.
-- Rollback cost: a migration of the index that is under way is forgotten.
CREATE TABLE index_state (k TEXT COLLATE "C" PRIMARY KEY, version BIGINT NOT NULL, v TEXT NOT NULL);

-- +goose Down
DROP TABLE index_state;
