-- +goose Up
-- Which index is searched, which model made it, and how far the one beside it is
-- filled: one row, changed only by whoever read its version.
-- Rollback cost: a migration of the index that is under way is forgotten.
CREATE TABLE index_state (k VARCHAR(64) PRIMARY KEY, version BIGINT NOT NULL, v MEDIUMTEXT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE index_state;
