-- +goose Up
-- Names of datasets that their graphs keep apart. A new table: code that does not
-- know it is not disturbed.
-- Rollback cost: what was taken apart is merged again.
CREATE TABLE graph_splits (
  dataset_id TEXT NOT NULL, id TEXT NOT NULL, tenant_id TEXT NOT NULL, names TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (dataset_id, id)
);

-- +goose Down
DROP TABLE graph_splits;
