-- +goose Up
-- Names of datasets that their graphs keep apart. A new table: code that does not
-- know it is not disturbed.
-- Rollback cost: what was taken apart is merged again.
CREATE TABLE graph_splits (
  dataset_id TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, tenant_id TEXT COLLATE "C" NOT NULL, names TEXT NOT NULL, created_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, id)
);

-- +goose Down
DROP TABLE graph_splits;
